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

failed=()
# run COMMAND...: one script after the other, for some count seconds; one that fails hides none of the others.
run() {
  local name=${2##*/} began=$SECONDS
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - began)) s"
}

run "$python" "$here/omegaconf_differential.py" "$programs/examples/dump_yaml"
run "$python" "$here/unsafe_differential.py" "$programs"
run "$python" "$here/pickle_names.py" "$programs"
run "$python" "$here/verl_hazards.py"
"$here/install_verl_versions.sh" "$venv"
run "$python" "$here/verl_versions.py" "$programs/examples/verl_view" "$(dirname "$venv")/.verl-versions"
"$here/install_areal.sh" "$venv" "$areal"
run "$areal/bin/python" "$here/areal_dialect.py" "$programs/examples/areal_view"
run "$areal/bin/python" "$here/areal_alone.py"
run "$areal/bin/python" "$here/areal_recovery.py" "$programs"
run "$areal/bin/python" "$here/areal_launchers.py" "$programs"
run "$python" "$here/make_checkpoints.py" "$work" --areal "$areal"
run "$python" "$here/proof_differential.py" "$programs" "$work" --areal "$areal" --each 20
(
  export PYTHONPATH=$here VERL_USE_EXTERNAL_MODULES=verl_cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda
  "$python" "$here/verl_contents.py" "$programs"
) || failed+=(verl_contents.py)
run "$python" "$here/proof_records.py" "$programs" "$work" --each 20
run "$python" "$here/migrate.py" "$programs"
run "$python" "$here/recovery.py" "$programs"
run "$python" "$here/ray_recovery.py" "$programs"
run "$python" "$here/ppo_recovery.py" "$programs"
run "$python" "$here/rehearsal.py" "$programs"

if [ ${#failed[@]} -gt 0 ]; then
  echo "run.sh: failed: ${failed[*]}" >&2
  exit 1
fi
echo "run.sh: all passed, $SECONDS s"
