#!/usr/bin/env bash
# The tests that need Python: verl's trainers under supervise, proofs of real checkpoints against loading them, what verl and areal
# themselves do where it can hurt, the configuration dialect against OmegaConf and Hydra, what is known of verl's releases against their wheels.
#
# usage: run.sh VENV PROGRAMS      (PROGRAMS: the folder with the built binaries)
# ONLY=PART in the environment: only the scripts whose name contains it. Every part is timed; the list ends the run, slowest first.
# areal's environment is made beside VENV, as .venv-areal; verl's releases are unpacked there, in .verl-versions.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
python=$venv/bin/python
programs=$(cd "$2" && pwd)
areal=$(dirname "$venv")/.venv-areal
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

only=${ONLY:-}
failed=()
times=()
# wanted NAME...: one of the scripts is asked for.
wanted() {
  local name
  for name in "$@"; do
    if [[ $name == *"$only"* ]]; then return 0; fi
  done
  return 1
}
# timed NAME COMMAND...: one after the other, for some count seconds; one that fails hides none of the others.
timed() {
  local name=$1 began=$SECONDS
  shift
  "$@" || failed+=("$name")
  times+=("$((SECONDS - began)) s $name")
  echo "== ${times[-1]}"
}
# run PYTHON SCRIPT ARGUMENT...
run() {
  local name=${2##*/}
  if wanted "$name"; then timed "$name" "$@"; fi
}
# What several scripts stand on is made when the first of them is run; without it none of them can be.
need_areal() { "$here/install_areal.sh" "$venv" "$areal"; }
need_checkpoints() {
  need_areal
  if [ -z "$(ls "$work")" ]; then timed make_checkpoints.py "$python" "$here/make_checkpoints.py" "$work" --areal "$areal"; fi
}

run "$python" "$here/omegaconf_differential.py" "$programs/examples/dump_yaml"
run "$python" "$here/unsafe_differential.py" "$programs"
run "$python" "$here/json_differential.py" "$programs"
run "$python" "$here/pickle_names.py" "$programs"
run "$python" "$here/verl_hazards.py"
if wanted verl_versions.py; then
  "$here/install_verl_versions.sh" "$venv"
  run "$python" "$here/verl_versions.py" "$programs/examples/verl_view" "$(dirname "$venv")/.verl-versions"
fi
if wanted areal_dialect.py areal_alone.py areal_recovery.py areal_launchers.py; then
  need_areal
  run "$areal/bin/python" "$here/areal_dialect.py" "$programs/examples/areal_view"
  run "$areal/bin/python" "$here/areal_alone.py"
  run "$areal/bin/python" "$here/areal_recovery.py" "$programs"
  run "$areal/bin/python" "$here/areal_launchers.py" "$programs"
fi
if wanted proof_differential.py proof_records.py; then
  need_checkpoints
  run "$python" "$here/proof_differential.py" "$programs" "$work" --areal "$areal" --each 20
  run "$python" "$here/proof_records.py" "$programs" "$work" --each 20
fi
verl_contents() {
  PYTHONPATH=$here VERL_USE_EXTERNAL_MODULES=verl_cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda \
    "$python" "$here/verl_contents.py" "$programs"
}
if wanted verl_contents.py; then timed verl_contents.py verl_contents; fi
run "$python" "$here/migrate.py" "$programs"
run "$python" "$here/recovery.py" "$programs"
run "$python" "$here/ray_recovery.py" "$programs"
run "$python" "$here/ppo_recovery.py" "$programs"
run "$python" "$here/hf_recovery.py" "$programs"
run "$python" "$here/rehearsal.py" "$programs"

if [ ${#times[@]} -eq 0 ]; then
  echo "run.sh: no script has '$only' in its name" >&2
  exit 2
fi
printf '%s\n' "${times[@]}" | sort -rn
if [ ${#failed[@]} -gt 0 ]; then
  echo "run.sh: failed: ${failed[*]}" >&2
  exit 1
fi
echo "run.sh: all passed, $SECONDS s"
