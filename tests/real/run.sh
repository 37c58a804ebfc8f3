#!/usr/bin/env bash
# The tests that need Python: verl's trainers under supervise, proofs of real checkpoints against loading them, what verl and areal
# themselves do where it can hurt, the configuration dialect against OmegaConf and Hydra, what is known of verl's releases against their wheels.
#
# usage: run.sh VENV PROGRAMS      (PROGRAMS: the folder with the built binaries)
# ONLY=PART in the environment: only the scripts whose name contains it. Three run at once: what one waits for, the others compute
# (LANES=1: one after the other). FULL=1: each with all its cases, as before a release. Each line tells whose it is, each script is timed; the list ends the run, slowest first.
# areal's environment is made beside VENV, as .venv-areal, DeepSpeed's files as .venv-deepspeed, LLaMA-Factory's as .venv-llamafactory; verl's releases are unpacked there, in .verl-versions, mbridge in .mbridge.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
python=$venv/bin/python
programs=$(cd "$2" && pwd)
areal=$(dirname "$venv")/.venv-areal
deepspeed=$(dirname "$venv")/.venv-deepspeed
llamafactory=$(dirname "$venv")/.venv-llamafactory
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What a rank compiles at its import, the next one finds; what a run in one go comes to, every script.
unset PYTHONDONTWRITEBYTECODE
export SHARED=$work

only=${ONLY:-}
# Long ones first: what is left at the end should be short.
scripts=(ray_nodes stalls areal_stalls fsdp2_stalls ppo_recovery areal_recovery hf_recovery save_requests save_door proofs recovery unsafe_differential
  own_loop verl_versions areal_dialect omegaconf_differential verl_contents pickle_names verl_hazards kubernetes upload)
# What shows no other kind, before a release and by its name. The last is areal without us, whose version is pinned.
if [ -n "${FULL:-}$only" ]; then
  scripts+=(areal_requests areal_launchers ppo_stalls ray_recovery slurm_gang standby reshard merge_formats verl_releases rehearsal hf_programs launch_script
    queue_damage merge asked declared same_class torch_failures migrate zero json_differential areal_alone)
fi

own_loop() { "$python" "$here/own_loop.py" "$programs"; }
verl_hazards() { "$python" "$here/verl_hazards.py"; }
verl_versions() {
  "$here/install_verl_versions.sh" "$venv"
  "$python" "$here/verl_versions.py" "$programs/examples/verl_view" "$(dirname "$venv")/.verl-versions"
  if [ -n "${FULL:-}" ]; then "$python" "$here/verl_primaries.py" "$programs/supervise" "$(dirname "$venv")/.verl-versions"; fi
}
verl_releases() {
  "$here/install_verl_versions.sh" "$venv"
  "$python" "$here/verl_releases.py" "$programs" "$(dirname "$venv")/.verl-versions"
}
verl_contents() {
  PYTHONPATH=$here VERL_USE_EXTERNAL_MODULES=verl_cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda \
    "$python" "$here/verl_contents.py" "$programs"
}
# Checkpoints of every writer, damaged in every way; and once more with what a run has recorded of them.
proofs() {
  need_areal
  local each=8
  if [ -n "${FULL:-}" ]; then each=20; fi
  mkdir "$work/checkpoints"
  "$python" "$here/make_checkpoints.py" "$work/checkpoints" --areal "$areal"
  "$python" "$here/merge_formats.py" "$programs" --areal "$work/checkpoints/areal"
  "$python" "$here/proof_differential.py" "$programs" "$work/checkpoints" --areal "$areal" --each "$each"
  if [ -n "${FULL:-}" ]; then "$python" "$here/proof_records.py" "$programs" "$work/checkpoints" --each "$each"; fi
}
merge_formats() {
  "$here/install_mbridge.sh" "$venv"
  "$python" "$here/merge_formats.py" "$programs" --mbridge "$(dirname "$venv")/.mbridge"
}
zero() {
  "$here/install_deepspeed.sh" "$venv" "$deepspeed"
  "$python" "$here/zero.py" "$programs" "$deepspeed"
}
# LLaMA-Factory with FULL=1.
hf_programs() {
  local more=()
  "$here/install_deepspeed.sh" "$venv" "$deepspeed"
  if [ -n "${FULL:-}" ]; then
    "$here/install_llamafactory.sh" "$venv" "$llamafactory"
    more=(--llamafactory "$llamafactory")
  fi
  "$python" "$here/hf_programs.py" "$programs" "$deepspeed" "${more[@]}"
}
areal_alone() { need_areal && "$areal/bin/python" "$here/areal_alone.py"; }
areal_dialect() { need_areal && "$areal/bin/python" "$here/areal_dialect.py" "$programs/examples/areal_view"; }
areal_recovery() { need_areal && "$areal/bin/python" "$here/areal_recovery.py" "$programs"; }
areal_requests() { need_areal && "$areal/bin/python" "$here/areal_requests.py" "$programs"; }
areal_stalls() { need_areal && "$areal/bin/python" "$here/areal_stalls.py" "$programs"; }
areal_launchers() { need_areal && "$areal/bin/python" "$here/areal_launchers.py" "$programs"; }
omegaconf_differential() { "$python" "$here/omegaconf_differential.py" "$programs/examples/dump_yaml"; }
# Who comes second waits for the first; who comes third finds it done.
need_areal() { "$here/install_areal.sh" "$venv" "$areal"; }

# one NAME: a script of that name takes the folder with the programs, unless it is told otherwise above.
one() (
  set -e
  if declare -F "$1" >/dev/null; then "$1"; else "$python" "$here/$1.py" "$programs"; fi
)
# lane: runs each script that no other lane has taken; one that fails hides none of the others.
lane() {
  local name began
  set +e
  for name in "${wanted[@]}"; do
    mkdir "$work/$name" 2>/dev/null || continue
    began=$SECONDS
    one "$name" 2>&1 </dev/null | sed -u "s/^/$name: /" | tee "$work/$name.out"
    if [ "${PIPESTATUS[0]}" != 0 ]; then echo "$name" >>"$work/failed"; fi
    echo "$((SECONDS - began)) s $name" | tee -a "$work/times" | sed 's/^/== /'
  done
}

wanted=()
for name in "${scripts[@]}"; do
  if [[ $name.py == *"$only"* ]]; then wanted+=("$name"); fi
done
if [ ${#wanted[@]} -eq 0 ]; then
  echo "run.sh: no script has '$only' in its name; there are: ${scripts[*]}" >&2
  exit 2
fi
for _ in $(seq "${LANES:-3}"); do lane & done
wait
sort -rn "$work/times"
if [ "$(wc -l <"$work/times")" != ${#wanted[@]} ]; then
  echo "run.sh: only $(wc -l <"$work/times") of ${#wanted[@]} scripts ran" >&2
  exit 1
fi
if [ -e "$work/failed" ]; then
  # Once more, where it is not lost among what the other lanes print.
  while read -r name; do tail -n 25 "$work/$name.out"; done <"$work/failed"
  echo "run.sh: failed:" $(cat "$work/failed") >&2
  exit 1
fi
echo "run.sh: all passed, $SECONDS s"
