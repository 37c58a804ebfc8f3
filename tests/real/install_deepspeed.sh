#!/bin/bash
# Installs DeepSpeed for CPU ranks into a directory of its own, beside the environment that install.sh makes: Trainer, accelerate and
# TRL act otherwise where they find it, so only who names the directory finds it.
#
# usage: install_deepspeed.sh [VENV] [FOLDER]      (default: .venv-real and .venv-deepspeed at the root of the repository)
#
# It comes as sources; none of its kernels are built.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=$(cd "${1:-$here/../../.venv-real}" && pwd)
. "$here/into_folder.sh"
begin "${2:-$here/../../.venv-deepspeed}" "$here/requirements_deepspeed.txt" "$base/.ready"

pip() {
  "$base/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q install --no-deps --no-compile --target "$folder" "$@"
}

install() {
  local rest=$folder/rest.txt
  grep -v -e '^deepspeed==' "$here/requirements_deepspeed.txt" >"$rest"
  pip -r "$rest"
  # Its build has to find torch and the wheel package.
  PYTHONPATH=$folder DS_BUILD_OPS=0 pip --no-build-isolation "$(grep '^deepspeed==' "$here/requirements_deepspeed.txt")"
  rm "$rest"
  PYTHONPATH=$folder "$base/bin/python" -c 'import deepspeed; assert deepspeed.initialize'
}

finish deepspeed
