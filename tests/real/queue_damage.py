"""A step with a queue that the real TransferQueue saved, whole and damaged in each of its files.

usage: python queue_damage.py PROGRAMS

Whole as it was saved; gone, empty, cut in half or replaced by what runs a program: each is found.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIXTURE = HERE.parent / "fixtures" / "verl_ppo_fsdp2_w2"


def verdict(supervise, step):
    """Exit code of `verify`."""
    done = subprocess.run([supervise, "verify", step, "--depth", "full"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 20, 21, 22), done.stdout + done.stderr
    return done.returncode


def damages(queue):
    """Every way to damage one of its files: what is done, as a word and a function of the copy."""
    for path in sorted(path.relative_to(queue) for path in queue.rglob("*") if path.is_file()):
        yield f"{path} is gone", lambda copy, path=path: (copy / path).unlink()
        yield f"{path} is empty", lambda copy, path=path: (copy / path).write_bytes(b"")
        size = (queue / path).stat().st_size
        yield f"{path} is cut in half", lambda copy, path=path, size=size: (copy / path).write_bytes((copy / path).read_bytes()[: size // 2])
        if path.suffix == ".pkl":
            yield f"{path} runs a program", lambda copy, path=path: (copy / path).write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    yield "no units", lambda copy: shutil.rmtree(copy / "simple_storage")


def main():
    supervise = Path(sys.argv[1]).resolve() / "supervise"
    work = Path(tempfile.mkdtemp(prefix="transfer-queue-"))
    try:
        for kind in ("memory", "ssd"):
            root = work / kind
            shutil.copytree(FIXTURE, root)
            queue = root / "global_step_2" / "transfer_queue"
            disk = [str(work / "disk")] if kind == "ssd" else []
            subprocess.run([sys.executable, HERE / "transfer_queue_writer.py", queue, "2", *disk], check=True, timeout=600)
            assert verdict(supervise, queue.parent) == 0, kind
            found = 0
            for what, damage in damages(queue):
                copy = work / "copy"
                shutil.copytree(queue.parent, copy / "global_step_2")
                damage(copy / "global_step_2" / "transfer_queue")
                code = verdict(supervise, copy / "global_step_2")
                assert code == 22 if "runs" in what else code in (20, 21), f"{kind}: {what}: {code}"
                shutil.rmtree(copy)
                found += 1
            print(f"{kind}: whole, and {found} of {found} damages found", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
