"""Ranks of gloo that ask at a step boundary, on torch's own TCPStore: rank 0 slow, or killed; a store with a short limit; 64 clients.

usage: save_door.py [PROGRAMS]      (with the interpreter of the environment that install.sh makes; nothing of PROGRAMS is used)

What each rank does is printed by it, and judged here. Ends with `N passed, M failed`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))

import torch.distributed as dist  # noqa: E402
from supervise._door import SaveDoor  # noqa: E402

LIMIT = 300


def rank(name, n, world, port, folder):
    """One process: two boundaries of which the second is asked for, and what it does there."""
    limit = timedelta(seconds=4 if name == "lost" else 120)
    store = dist.TCPStore("127.0.0.1", port, world, n == 0 and name == "killed", limit, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=n, world_size=world, timeout=limit)
    door = SaveDoor(os.path.join(folder, "save-request"))
    first = door.asked(1)
    if name == "short":
        # The store gives up long before a collective would.
        dist.distributed_c10d._get_default_store().set_timeout(timedelta(seconds=1))
        door.SLICE = 1.0
    dist.barrier()
    if n == 0:
        request(folder, 5)
        if name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "lost":
            print("answer None", flush=True)
            time.sleep(8)
            os._exit(0)
        time.sleep(3)
    try:
        print("answer", int(door.asked(2)), "after", int(first), flush=True)
    except Exception as error:
        print("failed", type(error).__name__, " ".join(str(error).split())[:90], flush=True)
        os._exit(1)
    dist.barrier()
    os._exit(0)


def request(folder, number):
    draft = os.path.join(folder, "draft")
    with open(draft, "w") as file:
        file.write(f"{number}\n")
    os.rename(draft, os.path.join(folder, "save-request"))


def ranks(name, world=3):
    """What the ranks print. The store is in this process, or in rank 0 if that is killed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "save-request").touch()
        own = dist.TCPStore("127.0.0.1", 0, world, True, wait_for_workers=False)
        port = own.port
        if name == "killed":
            del own
        argv = [sys.executable, __file__, "--rank", name]
        started = [subprocess.Popen([*argv, str(n), str(world), str(port), folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                   for n in range(world)]
        said = [process.communicate(timeout=LIMIT)[0].strip() for process in started]
        answers = Path(folder, "save-answers")
        return said, answers.read_text() if answers.exists() else ""


def a_slow_rank_0_is_waited_for_beyond_the_limit_of_the_store():
    said, answers = ranks("short")
    assert said == ["answer 1 after 0"] * 3, said
    assert '"id": 5, "step": 2' in answers, answers


def where_rank_0_is_killed_the_others_fail_and_none_saves():
    said, answers = ranks("killed")
    assert said[0] == "" and all(one.startswith("failed ") for one in said[1:]), said
    assert answers == "", answers


def where_rank_0_never_comes_the_others_fail_when_a_collective_would():
    said, answers = ranks("lost")
    assert all("rank 0 did not reach this step boundary within 4 s" in one for one in said[1:]), said
    assert answers == "", answers


def sixty_four_clients_get_one_answer():
    world, steps, asked = 64, 30, (1, 5, 6, 29)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "save-request").touch()
        server = dist.TCPStore("127.0.0.1", 0, world, True, wait_for_workers=False)
        together, got = threading.Barrier(world), [None] * world

        def client(n):
            store = server if n == 0 else dist.TCPStore("127.0.0.1", server.port, world, False)
            store = dist.PrefixStore("group", store)
            door = SaveDoor(os.path.join(folder, "save-request"), lambda: (store, n, world, 120.0))
            saved = []
            for step in range(1, steps + 1):
                together.wait(LIMIT)
                if n == 0 and step in asked:
                    request(folder, step)
                if door.asked(step):
                    saved.append(step)
            got[n] = saved

        threads = [threading.Thread(target=client, args=(n,)) for n in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert len({tuple(saved or ()) for saved in got}) == 1 and len(got[0]) == len(asked), got
        assert got[0][1:] == list(asked)[1:], got[0]


CASES = [a_slow_rank_0_is_waited_for_beyond_the_limit_of_the_store, where_rank_0_is_killed_the_others_fail_and_none_saves,
         where_rank_0_never_comes_the_others_fail_when_a_collective_would, sixty_four_clients_get_one_answer]


def main():
    failed = 0
    for case in CASES:
        try:
            case()
            print(f"ok    {case.__name__}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {case.__name__}", flush=True)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6])
    main()
