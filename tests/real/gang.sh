#!/bin/bash
# Launches N ranks of one command by hand: no torchrun, only the rendezvous variables.
#
# usage: gang.sh N COMMAND...
#   PORT     where rank 0 listens (default: one that is free; several gangs run at once)
#   LOG_DIR  each rank's output goes to rank_R.out and rank_R.err there (with MERGED=yes both to rank_R.log);
#            else straight through
#   GRACE    seconds that the other ranks get to fail by themselves after the first has failed (default 0)
# Ends with the first non-zero status of a rank, after the others were killed; 0 if all end well.
set -u
ranks=$1; shift
here=$(cd "$(dirname "$0")" && pwd)
. "$here/cpu_env.sh"
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
export WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=${PORT:-$(free_port)}

pids=()
trap 'kill -KILL "${pids[@]}" 2>/dev/null' EXIT
trap 'kill -TERM "${pids[@]}" 2>/dev/null' INT TERM
for ((rank = 0; rank < ranks; rank++)); do
  export RANK=$rank LOCAL_RANK=$rank
  if [ -z "${LOG_DIR:-}" ]; then
    "$@" &
  elif [ "${MERGED:-no}" = yes ]; then
    mkdir -p "$LOG_DIR"
    "$@" >"$LOG_DIR/rank_$rank.log" 2>&1 &
  else
    mkdir -p "$LOG_DIR"
    "$@" >"$LOG_DIR/rank_$rank.out" 2>"$LOG_DIR/rank_$rank.err" &
  fi
  pids+=($!)
done

any_left() { kill -0 "${pids[@]}" 2>/dev/null; }
for ((left = ranks; left > 0; left--)); do
  wait -n
  code=$?
  if [ "$code" -ne 0 ]; then
    for ((tenth = 0; tenth < ${GRACE:-0} * 10; tenth++)); do
      any_left || break
      sleep 0.1
    done
    exit "$code"
  fi
done
