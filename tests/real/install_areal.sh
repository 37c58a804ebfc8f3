#!/bin/bash
# Installs areal for CPU ranks into a virtual environment that shares everything else with the one install.sh makes.
#
# usage: install_areal.sh [VENV] [AREAL_VENV]      (default: .venv-real and .venv-areal at the root of the repository)
#
# areal asks for torch below 2.11 and for other versions of OmegaConf and Hydra than verl. It runs with torch 2.11; the
# other two stand in its own environment, whose packages come first.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=$(cd "${1:-$here/../../.venv-real}" && pwd)
. "$here/into_folder.sh"
begin "${2:-$here/../../.venv-areal}" "$here/requirements_areal.txt" "$base/.ready"
venv=$folder

site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }

install() {
  "$base/bin/python" -m venv --without-pip "$venv"
  "$base/bin/python" -m pip --python "$venv/bin/python" --disable-pip-version-check --no-cache-dir -q install \
    --no-deps --no-compile -r "$here/requirements_areal.txt"
  site "$base" >"$(site "$venv")/trainers.pth"
  # The files of that kind beside the other packages are not read from here.
  cp "$(site "$base")/no_tiles.pth" "$(site "$venv")/"
  # Compilers for GPUs that are imported and never called.
  rm -rf "$(site "$venv")"/triton/backends/nvidia/bin "$(site "$venv")"/triton/_C/libproton.so
  env -u PYTHONDONTWRITEBYTECODE TORCH_COMPILE_DISABLE=1 "$venv/bin/python" -c 'import triton, areal.trainer.sft_trainer as t; assert t.SFTTrainer'
}

finish areal
