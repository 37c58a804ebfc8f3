#!/bin/bash
# Installs DeepSpeed for CPU ranks into a directory of its own, beside the environment that install.sh makes: Trainer, accelerate and
# TRL act otherwise where they find it, so only who names the directory finds it.
#
# usage: install_deepspeed.sh [VENV] [FOLDER]      (default: .venv-real and .venv-deepspeed at the root of the repository)
#
# It comes as sources; none of its kernels are built. The stamp works as install.sh's does.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=$(cd "${1:-$here/../../.venv-real}" && pwd)
folder=${2:-$here/../../.venv-deepspeed}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
log=$folder/install.log
stamp=$folder/.ready
want=$(cat "$here/install_deepspeed.sh" "$here/requirements_deepspeed.txt" "$base/.ready" | sha256sum | cut -d' ' -f1)

exec 9>"$folder/.lock"
flock 9
if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi
find "$folder" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
start=$SECONDS

pip() {
  "$base/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q install --no-deps --no-compile --target "$folder" "$@"
}

install() {
  local rest=$folder/rest.txt
  grep -v -e '^deepspeed==' "$here/requirements_deepspeed.txt" >"$rest"
  pip -r "$rest"
  # What builds it has to find torch and the wheel package.
  PYTHONPATH=$folder DS_BUILD_OPS=0 pip --no-build-isolation "$(grep '^deepspeed==' "$here/requirements_deepspeed.txt")"
  rm "$rest"
  PYTHONPATH=$folder "$base/bin/python" -c 'import deepspeed; assert deepspeed.initialize'
}

# Not as part of a condition: set -e would not hold in it.
set +e
(
  set -e
  install
) >"$log" 2>&1
code=$?
set -e
if [ "$code" -ne 0 ]; then
  tail -n 30 "$log" >&2
  echo "install_deepspeed.sh: failed; the whole output is in $log" >&2
  exit 1
fi
printf '%s' "$want" >"$stamp"
printf '%-12s %4d s, %s MB\n' deepspeed $((SECONDS - start)) "$(du -sm "$folder" | cut -f1)"
