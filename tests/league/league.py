"""The league of faults: plays a seeded schedule of faults under each contender, and reports how each of them ended.

usage: league.py play --programs DIR --results FILE [--seed 1] [--faults 100] [--who supervise,bash_loop] [--only KIND]
                      [--number N] [--keep] [--jobs 8] [--limit 90] [--python PYTHON]
       league.py report --page FILE --json FILE RESULTS...
       league.py check --programs DIR

`play` appends a line for each game to RESULTS and goes on where it stopped. `check` is what a pipeline affords.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import check
import report
from arena import Arena, Options
from contenders import Programs, Who, die
from schedule import Kind


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("play")
    play.add_argument("--programs", type=Path, required=True)
    play.add_argument("--python", type=Path)
    play.add_argument("--results", type=Path, required=True)
    play.add_argument("--seed", type=int, default=1)
    play.add_argument("--faults", type=int, default=100)
    play.add_argument("--number", type=int)
    play.add_argument("--who", default="supervise,bash_loop")
    play.add_argument("--only", choices=[kind.value for kind in Kind])
    play.add_argument("--jobs", type=int, default=8)
    play.add_argument("--limit", type=float, default=90.0)
    play.add_argument("--keep", action="store_true")
    reports = commands.add_parser("report")
    reports.add_argument("--page", type=Path, required=True)
    reports.add_argument("--json", type=Path, required=True)
    reports.add_argument("results", type=Path, nargs="+")
    checks = commands.add_parser("check")
    checks.add_argument("--programs", type=Path, required=True)
    args = parser.parse_args()
    if args.command == "report":
        return report.write(args.results, args.page, args.json)
    python = getattr(args, "python", None)
    # Not resolved: the link is what makes it the environment's.
    programs = Programs(args.programs.resolve(), python.absolute() if python else None)
    for path in (programs.supervise, programs.trainer):
        if not path.exists():
            die(f"{path} does not exist: run `cargo build -p supervise -p supervise-tests --bins`, or set PROGRAMS")
    if args.command == "check":
        return check.run(programs)
    numbers = [args.number] if args.number is not None else list(range(args.faults))
    options = Options(
        programs=programs,
        seed=args.seed,
        numbers=numbers,
        who=contenders(args.who, programs),
        kinds=dict.fromkeys(numbers, Kind(args.only)) if args.only else {},
        jobs=args.jobs,
        limit=args.limit,
        keep=args.keep,
        # One that is replayed is played, whatever is on record.
        results=None if args.number is not None else args.results,
    )
    # A pipeline ends what it gives up with SIGTERM: no game may outlive that.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arena = Arena(options)
    try:
        results = arena.play()
    finally:
        arena.close()
    report.show(results)
    return 0


def contenders(text: str, programs: Programs) -> list[Who]:
    try:
        who = [Who(name) for name in text.split(",")]
    except ValueError as error:
        die(f"WHO={text}: {error}; known are {', '.join(w.value for w in Who)}")
    if Who.TORCHRUN in who and not (programs.python and programs.python.exists()):
        die("torchrun needs a Python with torch: run `make install-real`")
    return who


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("league: interrupted: the same command resumes it")
