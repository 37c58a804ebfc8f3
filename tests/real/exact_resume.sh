#!/bin/bash
# Is a resumed run of verl's SFT trainer the same as one in one go, bit for bit?
#
# usage: exact_resume.sh VENV [STRATEGY]      (fsdp2 or fsdp; about 40 seconds)
# Trains 8 steps; then 4, and from there to 8 with resume_path; compares steps 5 and 8 of both ranks.
set -eu
venv=$(cd "$1" && pwd)
export STRATEGY=${2:-fsdp2}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
  local name=$1; shift
  LOG_DIR="$work/log_$name" "$here/sft.sh" "$venv" "$work/model" "$@" || { tail -n 20 "$work/log_$name"/*.err >&2; exit 1; }
}

"$venv/bin/python" "$here/make_tiny_model.py" "$work/model" 2>/dev/null
run straight "$work/straight" trainer.total_training_steps=8
run first "$work/resumed" trainer.total_training_steps=4
run second "$work/resumed" trainer.total_training_steps=8 \
  trainer.resume_mode=resume_path trainer.resume_from_path="$work/resumed/global_step_4"
for step in 5 8; do
  echo "$STRATEGY, step $step:"
  "$venv/bin/python" "$here/compare_pt.py" "$work/straight/global_step_$step" "$work/resumed/global_step_$step"
done
