"""What verl itself does where it can hurt: the other half of docs/hazards/verl.md.

usage: verl_hazards.py [CASE...]        (run with the python of install.sh's environment; about a minute)

Each case runs verl's own code in this one process, a process group of one CPU rank, on files of its own. The first line of
a case names the hazards that it shows, by their ids on that page. Ends with 1 where verl does something else by now: then the
page is wrong, and perhaps `supervise` too.
"""

import contextlib
import importlib.metadata
import inspect
import io
import logging
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import verl_hazards_facts
import verl_hazards_resumes


def cases():
    """All functions whose first line names hazards."""
    named = [*vars(verl_hazards_facts).values(), *vars(verl_hazards_resumes).values()]
    found = [f for f in named if inspect.isfunction(f) and (f.__doc__ or "").startswith("[")]
    return [f for f in found if not sys.argv[1:] or f.__name__ in sys.argv[1:]]


def main():
    import torch

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="verl-hazards-") as work:
        # verl leaves its lock files there.
        tempfile.tempdir = work
        torch.distributed.init_process_group("gloo", init_method=f"file://{work}/group", rank=0, world_size=1)
        failed, began, todo = [], time.monotonic(), cases()
        for case in todo:
            folder = Path(work) / case.__name__
            folder.mkdir()
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    case(folder)
            except BaseException:
                failed.append(case.__name__)
                print(f"VIOLATION {case.__name__}: {case.__doc__}\n{traceback.format_exc()}", flush=True)
        torch.distributed.destroy_process_group()
    version = importlib.metadata.version("verl")
    spent = time.monotonic() - began
    print(f"{len(todo)} cases against verl {version}, {len(failed)} otherwise than written, {spent:.0f} s")
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())
