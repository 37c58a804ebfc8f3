"""What areal itself does when its one checkpoint is hurt: the other half of docs/hazards/areal.md.

usage: areal_alone.py [CASE...] [--rows FILE]        (run with the python of install_areal.sh's environment; about two minutes)

Areal's own SFT trainer on two CPU ranks, without `supervise`. Each case kills it at one point, or damages what a run in one go
left on disk, and launches it again as a user would. The first line of a case names the hazards that it shows, by their ids on
that page. Each launch is measured, not believed: its exit code, the steps it trained, its losses, and every tensor of the last
checkpoint against those of the run in one go. FILE gets one JSON line for each case.

    right          every tensor is that of the run in one go
    other weights  exit code 0 and no word of warning, but other tensors
    fresh start    exit code 0, trained again from step 1
    crash          an exception, at this launch and at each one after it

Ends with 1 where areal does something else than is written here: then the page is wrong, and perhaps `supervise` too.
"""

import argparse
import importlib.metadata
import inspect
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import areal_stage as stage

STEPS = 6
ALARM = "This should not be a resumed experiment!"


class Bench(stage.Stage):
    """The tiny model, one undisturbed run of each kind, and the table."""

    def __init__(self, work):
        super().__init__(work)
        self.rows, self.straights = [], {}
        self.straight()

    def straight(self, **knobs):
        """A run in one go, with a copy of the trial after each of its saves."""
        name = "straight" + "".join(f"-{k}-{v}" for k, v in knobs.items())
        if name not in self.straights:
            keep = self.work / f"{name}.kept"
            done = self.launch(self.work / name, STEPS, keep=keep, **knobs)
            assert done.code == 0 and done.steps == list(range(1, STEPS + 1)), done.text[-4000:]
            self.straights[name] = done, keep
        return self.straights[name]

    def root(self, case, step=None, **knobs):
        """A folder for the case, with the trial as it was after this step of the run in one go."""
        root = self.work / case
        if step:
            stage.trial(root).parent.mkdir(parents=True)
            shutil.copytree(self.straight(**knobs)[1] / str(step), stage.trial(root))
        return root

    def again(self, case, root, *, what, expected, steps=STEPS, straight=None, before=None, **knobs):
        """Launches once more, and holds what happens against what is expected. `before`: the launch that was hurt."""
        done = self.launch(root, steps, **knobs)
        good, kept = self.straight(**(straight or {}))
        happened = verdict(done, root, good, kept / str(steps), knobs.get("user", stage.USER))
        row = {"case": case, "what": what, "happens": happened, "code": done.code, "steps": done.steps}
        if before is not None:
            row["code_before"], row["steps_before"] = before.code, before.steps
        self.note(row | {"error": done.error})
        assert happened == expected, f"{happened}, not {expected}:\n{done.text[-3000:]}"
        return done

    def note(self, row):
        self.rows.append(row)
        print(json.dumps(row), flush=True)

    def piece(self, case):
        """A case that is about a single piece of areal, in a child of its own."""
        folder = self.work / case.__name__
        folder.mkdir()
        log = self.work / f"{case.__name__}.log"
        code = stage.gang({stage.fork(lambda: case(folder), {}, log)})
        assert code == 0, f"{code}: {log.read_text(errors='replace')[-3000:]}"

    def hurt(self, case, fault, expected, what):
        """Killed at step 4 of a run, and launched again."""
        root = self.root(case)
        before = self.launch(root, STEPS, faults=[fault])
        assert before.code == -9 and before.steps == [1, 2, 3], (before.code, before.text[-3000:])
        return root, self.again(case, root, what=what, expected=expected, before=before)


def verdict(done, root, good, kept, user):
    if done.code == "hang":
        return "hang"
    if done.code != 0:
        return f"crash: {done.error}"
    if not done.steps:
        return "nothing to do"
    if done.steps[0] == 1:
        return "fresh start"
    is_right = stage.tensors(stage.dcp(root, user)) == stage.tensors(kept / "default/recover_checkpoint")
    if is_right:
        assert all(done.losses[s] == good.losses[s] for s in done.steps), (done.losses, good.losses)
    return "right" if is_right else "other weights"


def cases():
    """All functions whose first line names hazards."""
    import areal_alone_controller
    import areal_alone_disk
    import areal_alone_facts
    import areal_alone_runs

    modules = (areal_alone_runs, areal_alone_disk, areal_alone_facts, areal_alone_controller)
    named = [v for module in modules for v in vars(module).values()]
    found = [f for f in named if inspect.isfunction(f) and (f.__doc__ or "").startswith("[")]
    return list(dict.fromkeys(found))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="*")
    parser.add_argument("--rows", type=Path)
    args = parser.parse_args()
    todo = [f for f in cases() if not args.only or f.__name__ in args.only]
    began, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="areal-alone-") as work:
        bench = Bench(Path(work).resolve())
        for case in todo:
            try:
                if case.__module__ == "areal_alone_facts":
                    bench.piece(case)
                else:
                    case(bench, case.__name__)
            except Exception:
                failed.append(case.__name__)
                print(f"VIOLATION {case.__name__}: {case.__doc__}\n{traceback.format_exc()}", flush=True)
    if args.rows:
        args.rows.write_text("".join(json.dumps(row) + "\n" for row in bench.rows))
    version, spent = importlib.metadata.version("areal"), time.monotonic() - began
    print(f"{len(todo)} cases against areal {version}, {bench.count} launches, {len(failed)} otherwise than written, {spent:.0f} s")
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    code = main()
    sys.stdout.flush()
    # Threads of libraries that were imported for the ranks must not hold it up.
    os._exit(code)
