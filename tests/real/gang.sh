#!/bin/bash
# Launches N ranks of one command by hand: no torchrun, only the rendezvous variables.
#
# usage: gang.sh N COMMAND...
#   PORT     where rank 0 listens (default 29611)
#   LOG_DIR  each rank's output goes to rank_R.out and rank_R.err there; else straight through
#   DRIVE    "yes" also sets what verl needs to run on CPU (see verl_cpu_platform.py); the default
# Ends with the first non-zero status of a rank, after the others were killed; 0 if all end well.
set -u
ranks=$1; shift
here=$(cd "$(dirname "$0")" && pwd)

export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${PORT:-29611}
if [ "${DRIVE:-yes}" = yes ]; then
  . "$here/cpu_env.sh"
fi

pids=()
trap 'kill -KILL "${pids[@]}" 2>/dev/null' EXIT
trap 'kill -TERM "${pids[@]}" 2>/dev/null' INT TERM
for ((rank = 0; rank < ranks; rank++)); do
  if [ -n "${LOG_DIR:-}" ]; then
    mkdir -p "$LOG_DIR"
    RANK=$rank LOCAL_RANK=$rank "$@" >"$LOG_DIR/rank_$rank.out" 2>"$LOG_DIR/rank_$rank.err" &
  else
    RANK=$rank LOCAL_RANK=$rank "$@" &
  fi
  pids+=($!)
done

for ((left = ranks; left > 0; left--)); do
  wait -n
  code=$?
  if [ "$code" -ne 0 ]; then
    exit "$code"
  fi
done
