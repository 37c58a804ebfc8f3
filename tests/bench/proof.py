"""Times the proof of checkpoints against programs that read the same bytes.

usage: proof.py STEP_DIR SUPERVISE [--rounds 5] [--torch PYTHON] [--many MANY_FILES]

STEP_DIR is made by shards.sh. Everything is read once first, so the page cache is warm; each figure is the median of ROUNDS whole
commands, start of the program included. Peers: cat, Python's zipfile, unzip -t, torch.load (PYTHON needs torch; the import counts,
because who asks torch pays for it). MANY_FILES is the program that lays out and proves a step of 50,000 files.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ZIPFILE = "import sys, zipfile\nfor f in sys.argv[1:]: assert zipfile.ZipFile(f).testzip() is None"
TORCH = "import sys, torch\nfor f in sys.argv[1:]: torch.load(f, weights_only=False, mmap=False)"


def run(command):
    """Seconds and peak memory (MiB; never less than this program's own, which the fork carries along) of one command."""
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - before
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with {process.returncode}: {error.decode(errors='replace')[-500:]}")
    return took, usage.ru_maxrss / 1024


def evict(files):
    """Drops the files from the page cache."""
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def measure(name, command, files, rounds, cold=False):
    taken = []
    for _ in range(rounds):
        if cold:
            evict(files)
        taken.append(run(command))
    if cold:
        subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    seconds = statistics.median(t for t, _ in taken)
    memory = max(m for _, m in taken)
    size = sum(os.path.getsize(f) for f in files)
    print(json.dumps({"name": name, "seconds": round(seconds, 4), "gb_s": round(size / seconds / 1e9, 2), "peak_mib": round(memory, 1)}), file=sys.stderr)
    return {"name": name, "seconds": seconds, "rate": size / seconds / 1e9, "memory": memory}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("step", type=Path)
    parser.add_argument("supervise")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch")
    parser.add_argument("--many")
    args = parser.parse_args()
    files = sorted(str(f) for f in args.step.glob("actor/model_world_size_*.pt"))
    size = sum(os.path.getsize(f) for f in files)
    if size < 1_500_000_000:
        sys.exit(f"{args.step}: {size} bytes of shards, too few to measure with")
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))

    verify = [args.supervise, "verify", *files]
    rows = [
        measure("cat", ["cat", *files], files, args.rounds),
        measure("supervise verify --depth full", [*verify, "--depth", "full"], files, args.rounds),
        measure("supervise verify --depth full --finite", [*verify, "--depth", "full", "--finite"], files, args.rounds),
        measure("Python zipfile.testzip", [sys.executable, "-c", ZIPFILE, *files], files, args.rounds),
    ]
    if subprocess.run(["which", "unzip"], capture_output=True, check=False).returncode == 0:
        one = files[:1]
        rows.append(measure("unzip -t (one file)", ["unzip", "-tqq", *one], one, 1))
    if args.torch:
        rows.append(measure("torch.load, import included", [args.torch, "-c", TORCH, *files], files, 1))
    base = rows[0]["rate"]
    zipped = rows[3]["rate"]
    print(f"\nEvery byte of {len(files)} shards, {size / 1e9:.2f} GB, page cache warm\n")
    print("| | rate | × cat | × zipfile | peak memory |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['name']} | {row['rate']:.2f} GB/s | {row['rate'] / base:.2f} | {row['rate'] / zipped:.1f} | {row['memory']:.0f} MiB |")

    nothing = measure("start of the program alone", [args.supervise, "--version"], files, args.rounds)["seconds"]
    verify = [args.supervise, "verify", str(args.step), "--depth", "structure"]
    warm = measure("structure, warm", verify, files, args.rounds)
    cold = measure("structure, cold", verify, files, args.rounds, cold=True)
    print("\nStructure of the step that they are\n")
    print("| | whole command | less the start of the program, per file |\n|---|---|---|")
    for row in (warm, cold):
        each = max(0.0, row["seconds"] - nothing) / len(files)
        print(f"| {row['name']} | {row['seconds'] * 1e3:.1f} ms | {each * 1e3:.2f} ms |")

    if args.many:
        with tempfile.TemporaryDirectory(prefix="many_files.") as folder:
            command = [args.many, args.supervise, f"{folder}/step"]
            out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print("\nA step of many files\n\n| | |\n|---|---|")
        for key, value in out.items():
            print(f"| {key.replace('_', ' ')} | {value} |")


if __name__ == "__main__":
    main()
