#!/bin/bash
# Unpacks the wheel of an older verl, which is never installed: its files are put before the environment's where they are
# wanted. Prints the folder.
#
# usage: install_old_verl.sh VENV FOLDER VERSION
set -eu
venv=$(cd "$1" && pwd)
folder=$2
version=$3
if [ ! -e "$folder/$version/verl" ]; then
  mkdir -p "$folder/$version"
  "$venv/bin/python" -m pip download --quiet --no-deps --dest "$folder" "verl==$version" >&2
  "$venv/bin/python" -m zipfile -e "$folder"/verl-"$version"-*.whl "$folder/$version"
fi
cd "$folder/$version"
pwd
