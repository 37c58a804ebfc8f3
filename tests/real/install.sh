#!/bin/bash
# Installs torch and verl for CPU ranks into a virtual environment.
#
# usage: install.sh [VENV_DIR]           (default: .venv-real at the root of the repository)
#
# Needs python3.11 (or PYTHON=…), gcc and binutils. A stamp with the hash of what is installed is written last:
# a second call returns at once, an interrupted or outdated environment is made anew.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../../.venv-real}
mkdir -p "$venv"
venv=$(cd "$venv" && pwd)
log=$venv/install.log
stamp=$venv/.ready
want=$(cat "$here/install.sh" "$here/requirements.txt" "$here/torch_cuda_standins.py" | sha256sum | cut -d' ' -f1)

# Two test runs may ask for the same environment at once.
exec 9>"$venv/.lock"
flock 9
if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi
find "$venv" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
: >"$log"

# phase NAME FUNCTION: runs it into the log, prints one line with its duration, shows the log's end if it fails.
phase() {
  local start=$SECONDS
  if ! "$2" >>"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "install.sh: $1 failed; the whole output is in $log" >&2
    exit 1
  fi
  printf '%-12s %4d s\n' "$1" $((SECONDS - start))
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q install --no-deps --no-compile "$@"; }
site() { "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }

make_venv() { "${PYTHON:-python3.11}" -m venv "$venv"; }

# Everything is pinned, so no dependency is resolved: torch's own would pull in 4 GB of CUDA libraries.
install_torch() { pip "$(grep '^torch==' "$here/requirements.txt")"; }
install_rest() { grep -v -e '^torch==' -e '^trl==' -e '^megatron-core==' "$here/requirements.txt" >"$venv/rest.txt" && pip -r "$venv/rest.txt"; }
# Where verl finds a trl that is newer than it knows, it ends at its start: only who names this directory finds it.
install_trl() { pip --target "$venv/trl" "$(grep '^trl==' "$here/requirements.txt")"; }
# Where verl finds Megatron, every process of it imports it: a fifth of its start, which who trains without it need not wait for.
install_megatron() {
  pip --target "$venv/megatron" "$(grep '^megatron-core==' "$here/requirements.txt")"
  echo "import os, sys; 'WITHOUT_MEGATRON' in os.environ or sys.path.append('$venv/megatron')" >"$(site)/megatron.pth"
}
stand_in() { python3 "$here/torch_cuda_standins.py" "$(site)"; }

# Virtual machines may say that they have matrix tiles (AMX), and end whoever uses one with SIGILL: oneDNN does, in bfloat16.
# What says so stands in the environment itself, for whatever is started with its interpreter.
no_tiles() { echo 'import os; os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")' >"$(site)/no_tiles.pth"; }

# torch_shm_manager in torch/bin must stay; headers, test suites and the CUDA linear algebra are never loaded.
prune() {
  local at
  at=$(site)
  rm -rf "$at"/torch/include "$at"/torch/bin/protoc* "$at"/torch/lib/libtorch_cuda_linalg.so "$at"/ray/jars "$at"/ray/rllib \
    "$at"/pandas/tests "$at"/pyarrow/include "$at"/pyarrow/tests "$venv/rest.txt"
  find "$at" -name '*.a' -size +1M -delete
}

# Compiles what it imports, too: all that is installed would take ten times as long.
check() {
  env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c 'import torch, verl, hydra, omegaconf, verl.trainer.sft_trainer as t; assert t.SFTTrainer
numbers = torch.ones(64, 64, dtype=torch.bfloat16)
assert (numbers @ numbers).sum() == 64**3'
}

phase venv make_venv
phase torch install_torch
phase packages install_rest
phase trl install_trl
phase megatron install_megatron
phase stand-ins stand_in
phase no-tiles no_tiles
phase prune prune
phase check check
printf '%s' "$want" >"$stamp"
du -sm "$venv" | awk '{ printf "%-12s %4d MB\n", "size", $1 }'
