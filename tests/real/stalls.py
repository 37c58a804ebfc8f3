"""Hangs in verl's own SFT trainer, two ranks over gloo, under `supervise`: found, ended, resumed.

usage: stalls.py PROGRAMS [--work DIR] [--more]

One run in which a rank falls asleep inside a step, and with FULL=1 in the next attempt another one computes for ever inside a step. The first
is found by stillness; the second by what its ranks did while they were well (as root in a network namespace of its own; where somebody
else talks on the same one, by the hard limit). Each time the line at which either rank stood is named. The weights at the end are those of a run without faults, bit for bit. Ends with `1 passed`.

--more (`make full-hangs`): a rank that spins at 5 % of a core, and one that prints a heartbeat each second, instead.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from own_network import own_network
from recovery import Bench, FULL, HERE, attempts, nothing_left, places_named

# Steps, eight an epoch; what happens, and the function that the rank then stands in. Whoever spins was healthy for a minute.
# No resume from the end of an epoch: verl's SFT trainer then ends at once, without the rest.
ONE = (8, [{"kind": "hang", "step": 6, "rank": 1}], ("strike",))
TWO = (24, [{"kind": "hang", "step": 6, "rank": 1}, {"kind": "spin", "step": 23, "rank": 0}], ("strike", "spin"))
TWO_MORE = (48, [{"kind": "spin", "step": 22, "rank": 1, "share": 0.05}, {"kind": "chat", "step": 46, "rank": 0}], ("spin", "chat"))
STALL = "  stall: {minimum: 10s, factor: 1.0, hard: 10m}\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("programs", type=Path)
    p.add_argument("--work", type=Path)
    p.add_argument("--more", action="store_true")
    args = p.parse_args()
    own_network()
    steps, faults, places = TWO_MORE if args.more else TWO if FULL else ONE
    ranks = (1, 0)[:len(faults)]
    more = [f"trainer.total_epochs={steps // 8}", "trainer.save_freq=4"]
    with tempfile.TemporaryDirectory() as work:
        b = Bench(args.programs.resolve(), (args.work or Path(work)).resolve())
        straight = b.straight
        if args.more:
            straight = b.work / "straight_long"
            b.call([HERE / "sft.sh", Path(sys.executable).parent.parent, b.model, straight, *more])
        folder, root = b.case("stalls")
        yaml = folder / "sft.yaml"
        yaml.write_text(yaml.read_text() + STALL)
        command = [sys.executable, "-m", "verl.trainer.sft_trainer", *more]
        done = b.run(folder, faults=faults, command=command, env={"FAULT_PACE": "3"})
        print(*(line[:300] for line in done.stdout.splitlines() if "stuck" in line), sep="\n")
        assert attempts(b.status(root)) > len(faults), done.stdout
        told = [line for line in done.stdout.splitlines() if "killing the workers" in line and "stuck: " in line]
        assert len(told) >= len(faults), done.stdout
        assert not args.more or re.search(r"worker 1 \(pid \d+\) spins: [1-9] % of a core", told[0]), told
        stories = json.loads(b.supervise("explain", root, "--json").stdout)["attempts"]
        hung = [s["account"] for s in stories if (s.get("diagnosis") or {}).get("class") == "hang.step"]
        stands = [[p["text"] for p in a["evidence"]] for a in hung]
        print(*stands, sep="\n")
        for texts, rank, place in zip(stands, ranks, places, strict=True):
            places_named(texts, rank, place)
        waits = [text for texts in stands for text in texts if re.match(r"worker \d \(pid \d+\) waits in ", text)]
        assert waits or not FULL, stands
        b.call([sys.executable, HERE / "compare_pt.py", straight / f"global_step_{steps}", root / f"global_step_{steps}"])
        nothing_left(folder)
    print("1 passed")


if __name__ == "__main__":
    main()
