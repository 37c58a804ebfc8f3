#!/bin/bash
# Reads a generated log with `supervise diagnose`: seconds and peak memory, compared with `cat` and `grep -c`.
#
# usage: diagnose.sh       MEGABYTES=2000 changes the size; SUPERVISE names the program
set -eu
here=$(cd "$(dirname "$0")" && pwd)
supervise=${SUPERVISE:-$here/../../target/release/supervise}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
python3 - "$log" "${MEGABYTES:-2000}" <<'P'
import sys
block = []
for n in range(20000):
    block.append(f"(TaskRunner pid=5001) step:{n} - actor/pg_loss:0.{n % 9973} - actor/grad_norm:0.311 - critic/rewards/mean:0.41 - response_length/mean:812.1 - timing_s/step:31.2 - perf/throughput:1811.2\n")
    block.append(f"(WorkerDict pid=5107) 2026-11-02 09:00:{n % 60:02} INFO batch {n} of 20000 took {n % 31} s, tokens {n * 17}, memory 61.2 GB\n")
data = "".join(block).encode()
end = b'Traceback (most recent call last):\n  File "x.py", line 1, in f\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n'
with open(sys.argv[1], "wb") as f:
    left = int(sys.argv[2]) * 1_000_000
    while left > 0:
        f.write(data)
        left -= len(data)
    f.write(end)
P
wc -c "$log"
cat "$log" >/dev/null
for command in "cat $log" "grep -c Error $log" "$supervise diagnose $log --exit-code 1"; do
  python3 - $command <<'P'
import os, resource, subprocess, sys, time
began = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
took = time.monotonic() - began
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
size = os.path.getsize(next(a for a in sys.argv if a.startswith("/tmp/")))
print(f"{os.path.basename(sys.argv[1]):10} {took:6.2f} s  {size / took / 1e6:7.0f} MB/s  {peak} MiB")
P
done
