#!/bin/bash
# Makes the input of proof.py: one step of verl's PPO layout, four FSDP2 model shards of 424 MB, written by verl's own manager.
#
# usage: shards.sh OUT          (kept: a second call returns at once; 1.7 GB, about 40 s, 16 GB of memory)
#
# VENV names the virtual environment of ../real/install.sh.
set -eu
out=$1
here=$(cd "$(dirname "$0")" && pwd)
real=$here/../real
python=${VENV:-$here/../../.venv-real}/bin/python
if [ -e "$out/latest_checkpointed_iteration.txt" ]; then
  exit 0
fi
rm -rf "$out" "$out.model" && mkdir -p "$out"
trap 'rm -rf "$out.model"' EXIT
"$python" "$real/make_tiny_model.py" "$out.model" --hidden 1024 --layers 24 --vocab 32000 >&2
"$real/gang.sh" 4 "$python" "$real/verl_fsdp_manager.py" "$out" "$out.model" --steps 1 --contents model >&2
