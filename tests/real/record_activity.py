"""Records what the ranks of a real verl SFT run use, healthy and hung, for the tests of stalls.

usage: record_activity.py OUT.json [--seconds N]

Run it with the interpreter of the environment that install.sh makes. Each trace is a run of two CPU ranks over gloo, looked at every
two seconds: CPU time, time that the first thread waited for a core, voluntary switches, minor faults, bytes read and written, state;
and the bytes on the network of the namespace. The healthy trace trains; in the others a rank hangs or spins at a step (fault_hooks.py),
and what is kept begins then.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EVERY = 2.0
TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
LATE = 120  # a step that comes long after the imports
TRACES = {
    "healthy": [],
    "one_sleeps": [{"kind": "hang", "step": LATE, "rank": 1}],
    "one_spins": [{"kind": "spin", "step": LATE, "rank": 1}],
    "one_spins_5": [{"kind": "spin", "step": LATE, "rank": 1, "share": 0.05}],
    "all_spin": [{"kind": "spin", "step": LATE, "rank": 0}, {"kind": "spin", "step": LATE, "rank": 1}],
}


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def field(text, name):
    return next((int(line[len(name):]) for line in text.splitlines() if line.startswith(name)), 0)


def network():
    counters = [line.split(":")[1].split() for line in read("/proc/self/net/dev").splitlines() if ":" in line]
    return sum(int(c[0]) + int(c[8]) for c in counters)


def count(pid):
    stat = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    io, status = read(f"/proc/{pid}/io"), read(f"/proc/{pid}/status")
    return {
        "state": stat[0],
        "cpu_ms": (int(stat[11]) + int(stat[12])) * TICK_MS,
        "wait_ms": int((read(f"/proc/{pid}/schedstat").split() or [0, 0])[1]) // 1_000_000,
        "switches": field(status, "voluntary_ctxt_switches:"),
        "faults": int(stat[7]),
        "bytes": field(io, "rchar:") + field(io, "wchar:"),
    }


def sample(pids, before):
    """Counters now, and what was used since the last look."""
    now = {"at": time.monotonic(), "network": network(), "ranks": [count(p) for p in pids]}
    if before is None:
        return now, None
    used = [{k: v if k == "state" else v - b[k] for k, v in n.items()} for n, b in zip(now["ranks"], before["ranks"])]
    window = {"over_ms": round(1000 * (now["at"] - before["at"])), "network": now["network"] - before["network"], "ranks": used}
    return now, window


def trace(name, faults, model, work, seconds):
    ledger = work / f"{name}.ledger"
    ledger.mkdir()
    env = dict(os.environ, FAULTS=json.dumps(faults), FAULT_LEDGER=str(ledger), PORT="29677", PYTHONUNBUFFERED="1")
    log = open(work / f"{name}.log", "w+b")
    run = subprocess.Popen(
        [HERE / "sft.sh", Path(sys.executable).parent.parent, model, work / name, "trainer.total_epochs=100000", "trainer.save_freq=1000000"],
        env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        begun = lambda: len(list(ledger.iterdir())) == len(faults) if faults else b"step:20 " in Path(log.name).read_bytes()
        limit = time.monotonic() + 900
        while not begun():
            if run.poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"{name}: it did not get there:\n{Path(log.name).read_text()[-3000:]}")
            time.sleep(0.5)
        pids = [int(p) for p in read(f"/proc/{run.pid}/task/{run.pid}/children").split()]
        windows, before = [], None
        for _ in range(int(seconds / EVERY) + 1):
            before, window = sample(pids, before)
            windows += [window] if window else []
            time.sleep(EVERY)
    finally:
        run.terminate()
        run.wait()
    print(f"{name}: {len(windows)} windows", flush=True)
    return windows


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out", type=Path)
    p.add_argument("--seconds", type=float, default=60)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        model = work / "model"
        subprocess.run([sys.executable, HERE / "make_tiny_model.py", model], check=True, stdout=subprocess.DEVNULL)
        traces = {n: trace(n, f, model, work, args.seconds * (2 if n == "healthy" else 1)) for n, f in TRACES.items()}
    version = subprocess.run([sys.executable, "-c", "import verl, torch; print(verl.__version__, torch.__version__)"],
                             capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(HERE))).stdout.split()
    source = f"tests/real/record_activity.py: verl {version[-2:][0] if version else '?'} SFT, torch {version[-1] if version else '?'}, 2 CPU ranks over gloo"
    rows = [f'"{name}": [\n' + ",\n".join(json.dumps(w) for w in windows) + "\n]" for name, windows in traces.items()]
    args.out.write_text('{\n"source": ' + json.dumps(source) + ",\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
