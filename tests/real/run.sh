#!/usr/bin/env bash
# The tests that need Python: verl's trainers under supervise, proofs of real checkpoints against loading them, what verl and areal
# themselves do where it can hurt, the configuration dialect against OmegaConf and Hydra, what is known of verl's releases against their wheels.
#
# usage: run.sh VENV PROGRAMS      (PROGRAMS: the folder with the built binaries)
# areal's environment is made beside VENV, as .venv-areal; verl's releases are unpacked there, in .verl-versions.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
python=$venv/bin/python
programs=$(cd "$2" && pwd)
areal=$(dirname "$venv")/.venv-areal
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" "$here/omegaconf_differential.py" "$programs/examples/dump_yaml"
"$python" "$here/unsafe_differential.py" "$programs"
"$python" "$here/verl_hazards.py"
"$here/install_verl_versions.sh" "$venv"
"$python" "$here/verl_versions.py" "$programs/examples/verl_view" "$(dirname "$venv")/.verl-versions"
"$here/install_areal.sh" "$venv" "$areal"
"$areal/bin/python" "$here/areal_dialect.py" "$programs/examples/areal_view"
"$areal/bin/python" "$here/areal_alone.py"
"$areal/bin/python" "$here/areal_recovery.py" "$programs"
"$areal/bin/python" "$here/areal_launchers.py" "$programs"
"$python" "$here/make_checkpoints.py" "$work" --areal "$areal"
"$python" "$here/proof_differential.py" "$programs" "$work" --areal "$areal" --each 20
PYTHONPATH=$here VERL_USE_EXTERNAL_MODULES=verl_cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda \
  "$python" "$here/verl_contents.py" "$programs"
"$python" "$here/proof_records.py" "$programs" "$work" --each 20
"$python" "$here/migrate.py" "$programs"
"$python" "$here/recovery.py" "$programs"
"$python" "$here/ray_recovery.py" "$programs"
"$python" "$here/ppo_recovery.py" "$programs"
"$python" "$here/rehearsal.py" "$programs"
