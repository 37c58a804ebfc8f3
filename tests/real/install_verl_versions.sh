#!/bin/bash
# Unpacks the released versions of verl that the supervisor knows, each into a folder of its own: only their configurations are composed.
#
# usage: install_verl_versions.sh VENV [DIR]           (default DIR: .verl-versions beside VENV)
#
# A version that is there is not fetched again; the name of a folder is given to it when it is whole.
set -eu
venv=$(cd "$1" && pwd)
dir=${2:-$(dirname "$venv")/.verl-versions}
mkdir -p "$dir"

for version in 0.4.0 0.4.1 0.5.0 0.6.1 0.7.0 0.7.1 0.8.0 0.9.1; do
  if [ -d "$dir/$version" ]; then
    continue
  fi
  rm -rf "$dir/$version.part"
  "$venv/bin/python" -m pip --disable-pip-version-check --no-cache-dir -q install --no-deps --no-compile --no-warn-conflicts \
    --target "$dir/$version.part" "verl==$version"
  mv "$dir/$version.part" "$dir/$version"
done
