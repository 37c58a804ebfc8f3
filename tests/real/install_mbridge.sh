#!/bin/bash
# Unpacks mbridge, which verl's Megatron trainers write models with, into a folder of its own: without its dependencies, of which the test needs none.
#
# usage: install_mbridge.sh VENV [DIR]           (default DIR: .mbridge beside VENV)
set -eu
venv=$(cd "$1" && pwd)
dir=${2:-$(dirname "$venv")/.mbridge}
if [ -d "$dir" ]; then
  exit 0
fi
rm -rf "$dir.part"
"$venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q install --no-deps --no-compile --no-warn-conflicts \
  --target "$dir.part" mbridge==0.15.1
mv "$dir.part" "$dir"
