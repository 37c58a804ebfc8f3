"""areal_sft.py with the faults that FAULTS names (areal_faults.py), and each step when the save before it was copied.

SLOW_START: so many seconds a worker of a controller's has to start, whatever areal says; a busy machine needs them.
"""

import functools
import os

import areal_faults
import areal_sft


def give_time(seconds):
    from areal.infra.scheduler.local import LocalScheduler
    from areal.infra.scheduler.ray import RayScheduler
    from areal.infra.scheduler.slurm import SlurmScheduler

    for scheduler in (LocalScheduler, RayScheduler, SlurmScheduler):
        scheduler.__init__ = functools.partialmethod(scheduler.__init__, startup_timeout=seconds)


def main(argv=None):
    if seconds := os.environ.get("SLOW_START"):
        give_time(float(seconds))
    areal_faults.arm_from_env()
    areal_sft.main(argv)


if __name__ == "__main__":
    main()
