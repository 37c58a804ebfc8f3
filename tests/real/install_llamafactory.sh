#!/bin/bash
# Installs LLaMA-Factory, and the releases of transformers and TRL that it is made for, into a directory of its own, beside the environment that
# install.sh makes: only who names the directory finds it. torchaudio is left out: it is needed for sound alone, and hf_programs.py stands in for it.
#
# usage: install_llamafactory.sh [VENV] [FOLDER]      (default: .venv-real and .venv-llamafactory at the root of the repository)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=$(cd "${1:-$here/../../.venv-real}" && pwd)
. "$here/into_folder.sh"
begin "${2:-$here/../../.venv-llamafactory}" "$here/requirements_llamafactory.txt" "$base/.ready"

install() {
  "$base/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q install --no-deps --no-compile --target "$folder" -r "$here/requirements_llamafactory.txt"
}

finish llamafactory
