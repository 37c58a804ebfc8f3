#!/bin/bash
# Compares restart loops (a bash loop, torchrun, supervise) and proofs of checkpoints (cat, zipfile, unzip, torch.load, supervise).
#
# usage: run.sh [idle|comeback|proof|merge|log|long|all]       ROUNDS=20 KILLS=20 SFT_KILLS=5 WORKERS=4 change the size
#
# idle:  four idle workers, one is killed: how long until all are back; memory and CPU of the launcher itself
# comeback: two ranks of FSDP2 in torch alone, of verl's SFT trainer (SFT_KILLS) and of HF's Trainer, one is killed: how long until the next step, with
#        and without standby interpreters; what these cost a step
#
# proof: four FSDP2 shards of 424 MB are read and checked; a step of 50,000 files is proven and watched
#
# merge: those shards become a model, compared with verl.model_merger and cp; both models are compared; torch's and Megatron's checkpoints, and a large one
#
# log:   a log of 2 GB is diagnosed, compared with cat and grep -c
#
# long:  100,000 saves with 20 kept, decided by the core and journaled by a real I/O worker: bytes per save, `status`, the start of a term, memory
#
# SUPERVISE, IDLE_WORKER, MANY_FILES, LONG_RUN and VENV name the programs; SHARDS where the shards are kept (1.7 GB). Needs release builds and ../real/install.sh.
set -eu
what=${1:-all}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
supervise=${SUPERVISE:-$top/target/release/supervise}
worker=${IDLE_WORKER:-$top/target/release/idle_worker}
many=${MANY_FILES:-$top/target/release/many_files}
long=${LONG_RUN:-$top/target/release/long_run}
shards=${SHARDS:-$top/target/bench/shards}
venv=${VENV:-$top/.venv-real}
workers=${WORKERS:-4} rounds=${ROUNDS:-20} kills=${KILLS:-20}
results=${RESULTS:-$(mktemp)}
: >"$results"

# The command line under test. The settings remove waits, because how long to wait is the user's choice, not a cost.
supervised() {
  local n=$1; shift
  echo "$supervise" run --set supervisor.trainer=plain --set supervisor.gang.launcher=gang --set supervisor.gang.workers="$n" \
    --set supervisor.gang.gpus=none --set supervisor.run_dir="{dir}/supervise" \
    --set supervisor.retries=10000 --set supervisor.backoff.initial=0s --
}
torchrun() { echo env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "$venv/bin/torchrun" --standalone --nproc_per_node="$1" --max_restarts=1000000; }

measure() { python3 "$@" | tee -a "$results"; }

if [ "$what" = idle ] || [ "$what" = all ]; then
  idle() { local name=$1; shift; measure "$here/restart_latency.py" "$name" --workers "$workers" --rounds "$rounds" -- "$@"; }
  idle bash_loop "$here/bash_loop.sh" "$workers" "$worker"
  idle torchrun $(torchrun "$workers") --no_python "$worker"
  idle supervise $(supervised "$workers") "$worker"
fi
if [ -s "$results" ]; then
  python3 "$here/table.py" "$results"
fi
if [ "$what" = comeback ] || [ "$what" = all ]; then
  python3 "$here/comeback.py" "$supervise" "$venv/bin/python" --kills "$kills"
  for trainer in sft hf; do
    python3 "$here/comeback.py" "$supervise" "$venv/bin/python" --trainer $trainer --kills "${SFT_KILLS:-5}"
  done
  python3 "$here/standby_cost.py" "$supervise" "$venv/bin/python"
fi
if [ "$what" = proof ] || [ "$what" = all ]; then
  VENV=$venv "$here/shards.sh" "$shards"
  python3 "$here/proof.py" "$shards/global_step_1" "$supervise" --torch "$venv/bin/python" --many "$many"
fi

if [ "$what" = merge ] || [ "$what" = all ]; then
  VENV=$venv "$here/shards.sh" "$shards"
  python3 "$here/merge.py" "$shards/global_step_1" "$supervise" "$venv/bin/python"
  python3 "$here/merge_forms.py" "$shards.forms" "$supervise" "$venv/bin/python"
fi

if [ "$what" = log ] || [ "$what" = all ]; then
  SUPERVISE=$supervise "$here/diagnose.sh"
fi

if [ "$what" = long ] || [ "$what" = all ]; then
  place=$(mktemp -d)
  "$long" "$supervise" "$place/run" "${SAVES:-100000}" "${KEPT:-20}" | python3 "$here/long_run.py"
  rm -rf "$place"
fi
