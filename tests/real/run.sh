#!/usr/bin/env bash
# The tests that need Python: verl's trainers under supervise, and the configuration dialect against OmegaConf and Hydra.
#
# usage: run.sh VENV PROGRAMS      (PROGRAMS: the folder with the built binaries)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$(cd "$1" && pwd)/bin/python
programs=$(cd "$2" && pwd)
"$python" "$here/omegaconf_differential.py" "$programs/examples/dump_yaml"
"$python" "$here/recovery.py" "$programs"
