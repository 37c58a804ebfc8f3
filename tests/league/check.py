"""What a pipeline affords: each cheap kind and a hang once under `supervise`, and two games that the bash loop must lose.

Those two prove that the injector bites: a flipped byte ends in other weights, a lost tracker in a training from the start.
"""

from __future__ import annotations

import os
from typing import Any

from arena import Arena, Options
from contenders import Programs, Who
from schedule import HANGS, Kind

SEED = 1
LIMIT = 240.0


def run(programs: Programs) -> int:
    cheap = [kind for kind in Kind if kind not in HANGS and (kind is not Kind.DISK_FULL or can_mount())]
    failures = []
    # The hang waits half a minute beside the others.
    for result in play(programs, Who.SUPERVISE, [Kind.HANG_STOP, *cheap]):
        failures += harms(result)
    flipped, untracked = play(programs, Who.BASH_LOOP, [Kind.FLIP_BYTE, Kind.NO_TRACKER])
    if flipped["end"] != "wrong" or flipped["from_damaged"] != 1:
        failures.append(f"the loop should resume from the flipped byte and end with other weights: {flipped}")
    if untracked["from_zero"] == 0:
        failures.append(f"the loop should start from zero without the tracker: {untracked}")
    for failure in failures:
        print(f"league: failed: {failure}")
    return 1 if failures else 0


def harms(result: dict[str, Any]) -> list[str]:
    """What no game of `supervise` may show. A NaN may end with a stop."""
    allowed = ("right", "operator") if result["kind"] == "nan" else ("right",)
    found = [] if result["end"] in allowed else [f"ended {result['end']}"]
    found += [name for name in ("from_zero", "from_damaged", "two_writers", "orphans") if result[name]]
    replay = f"make league SEED={SEED} NUMBER={result['number']} ONLY={result['kind']} WHO={result['who']} KEEP=1"
    return [f"{result['kind']}: {', '.join(found)}; replay: {replay}: {result}"] if found else []


def can_mount() -> bool:
    if os.geteuid() == 0:
        return True
    if os.environ.get("CI") == "true":
        raise SystemExit("league: the full disk needs root, to mount a small one")
    print("league: no game with a full disk: only root mounts a small one")
    return False


def play(programs: Programs, who: Who, kinds: list[Kind]) -> list[dict[str, Any]]:
    """One game of each kind, all under the same seed."""
    options = Options(
        programs=programs,
        seed=SEED,
        numbers=list(range(len(kinds))),
        who=[who],
        kinds=dict(enumerate(kinds)),
        jobs=4,
        limit=LIMIT,
        keep=False,
        results=None,
    )
    arena = Arena(options)
    try:
        return arena.play()
    finally:
        arena.close()
