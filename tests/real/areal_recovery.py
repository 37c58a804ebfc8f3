"""areal's own SFT trainer under `supervise`: killed at each point of a save, its files damaged, and brought back.

usage: areal_recovery.py PROGRAMS [--work DIR] [--only CASE]

PROGRAMS is the folder with the built `supervise`. Run it with the python of install_areal.sh's environment; it takes about twelve
minutes. What areal makes of the same without `supervise` is in areal_alone.py; its launchers and controllers are in
areal_launchers.py. Within the first epoch and with a constant schedule, every tensor and every loss must be those of a run in
one go; beyond, it must have been said before that they will not be. Ends with `N passed, M failed`.
"""

import os
import shutil
import sys

import areal_bench
import areal_ppo
import areal_stage as stage
from areal_bench import HERE
from recovery import FULL

STEPS = 16
# What cannot be told where nothing is known of the save: an optimizer may have skipped updates.
GAPS = ("a shard of an earlier step",)


def killed_in_saves(b):
    """One run, killed again and again: FULL=1 in mid-step and at each point of a save, else where a weight or a counter is torn, or of another step."""
    case = b.case("killed", STEPS)
    faults = [
        {"kind": "shard_half", "step": 5, "rank": 1},
        {"kind": "shards_done", "step": 9},
        {"kind": "info_half", "step": 11, "file": "step_info.json"},
    ]
    if FULL:
        faults += [
            {"kind": "kill", "step": 3, "rank": 1},
            {"kind": "metadata_unlinked", "step": 7},
            {"kind": "info_before", "step": 13, "file": "dataloader_info.pkl"},
        ]
    case.run(faults=faults)
    case.right()


def damaged_before(b):
    """What lies there before the first launch is not launched from when it is hurt, and is when it is whole."""
    good, kept = b.straight(batch=4, schedule="constant")
    damage = {
        "whole": lambda live: None,
        "a counter cut": lambda live: os.truncate(live / "recover_info/step_info.json", 3),
        "a counter empty": lambda live: os.truncate(live / "recover_info/saver_info.json", 0),
        "no counters": lambda live: shutil.rmtree(live / "recover_info"),
        "the place in the data cut": lambda live: os.truncate(live / "recover_info/dataloader_info.pkl", 60),
        "a shard cut": lambda live: os.truncate(live / "default/recover_checkpoint/__1_0.distcp", 20_000),
        "a shard missing": lambda live: (live / "default/recover_checkpoint/__0_0.distcp").unlink(),
        "a flipped byte": lambda live: flip(live / "default/recover_checkpoint/__0_0.distcp"),
        "a shard of an earlier step": lambda live: other(kept, live, "default/recover_checkpoint/__1_0.distcp"),
        "counters of an earlier step": lambda live: other(kept, live, "recover_info"),
        "the checkpoint of a later step": lambda live: other(kept, live, "default/recover_checkpoint", step=7),
    }
    for number, (what, hurt) in enumerate(damage.items()):
        case = b.case(f"damaged-{number}", STEPS)
        live = stage.trial(case.root)
        live.parent.mkdir(parents=True)
        shutil.copytree(kept / "6", live)
        hurt(live)
        text = case.plan(code=None)
        launches = "would resume from live" in text
        print(f"  {what}: {'launches' if launches else 'does not launch'}", flush=True)
        assert launches == (what == "whole" or what in GAPS) and "\nwould start from scratch" not in text, f"{what}: {text[:3000]}"
    case = b.case("ranks", STEPS)
    live = stage.trial(case.root)
    live.parent.mkdir(parents=True)
    shutil.copytree(kept / "6", live)
    case.yaml.write_text(case.yaml.read_text().replace("fsdp:d2", "fsdp:d4").replace("n_gpus_per_node: 2", "n_gpus_per_node: 4"))
    text = case.plan(code=None)
    assert "\nwould refuse to start" in text and "2 processes wrote" in text, text[:3000]


def announced(b):
    """Where a resume cannot be exact, it is said before the first launch and before the resume."""
    case = b.case("announced", STEPS, batch=16, schedule="cosine")
    text = case.plan()
    assert "[schedule_replayed]" in text and "[data_order]" in text, text
    _, kept = b.straight(batch=16, schedule="cosine")
    live = stage.trial(case.root)
    live.parent.mkdir(parents=True)
    shutil.copytree(kept / "15", live)
    text = case.plan()
    assert "would resume from live" in text and "data order" in text, text
    text = case.run()
    assert "do not save the learning-rate schedule" in text and "NOT restored: data order" in text, text[-4000:]
    assert stage.step_of(case.root) == STEPS
    again = case.plan()
    assert "finished" in again or "nothing to do" in again or "would resume" in again, again


def spread_otherwise(b):
    """The same number of ranks, spread otherwise: refused, and with consent it goes on and says what is lost."""
    case = b.case("spread", 4, batch=8)
    case.run()
    case.steps(6)
    case.yaml.write_text(case.yaml.read_text().replace("fsdp:d2", "fsdp:d1t2"))
    text = case.run(code=4)
    assert "default was saved as fsdp:d2 and this run has fsdp:d1t2" in text and "degraded_resume=model_only" in text, text[-4000:]
    assert stage.step_of(case.root) == 4
    case.yaml.write_text(case.yaml.read_text().replace("fsdp:d1t2", "archon:d2"))
    text = case.run(code=3)
    assert "default was saved by fsdp (fsdp:d2)" in text, text[-4000:]
    case.yaml.write_text(case.yaml.read_text().replace("archon:d2", "fsdp:d1t2"))
    text = case.run("--set", "supervisor.degraded_resume=model_only")
    assert "NOT restored: data order, parallel sizes" in text and stage.step_of(case.root) == 6, text[-4000:]
    case.steps(8)
    case.yaml.write_text(case.yaml.read_text().replace("fsdp:d2", "fsdp:d1t2"))
    text = case.run()
    assert "parallel sizes" not in text and stage.step_of(case.root) == 8, text[-4000:]


class PpoCase(areal_bench.Case):
    def steps(self, steps):
        model = self.bench.stage.model
        text = areal_ppo.YAML.format(root=self.root, model=model, steps=steps, tokens=8, stale=0, freq=1)
        gpus = text.replace("n_gpus_per_node: 3", "n_gpus_per_node: 5")
        self.yaml.write_text(gpus + areal_ppo.CRITIC.replace("MODEL", str(model)) + areal_ppo.SUPERVISOR)

    def env(self, faults, user=stage.USER):
        return areal_ppo.environment(self.root.parent, self.ledger, faults) | {"LOGNAME": user}


def ppo_with_a_critic(b):
    """areal's PPO with a critic, an actor killed in mid-step: the actor goes on, the critic begins anew, and both are said."""
    root = b.work / "critic"
    (root / "names").mkdir(parents=True)
    case = PpoCase(b, root, {})
    case.steps(5)
    text = case.run(faults=[{"kind": "kill", "step": 3, "rank": 1}], command=("python3", HERE / "areal_ppo.py", "scheduler.type=local"))
    assert "saves the critic and does not load it" in text, text[-6000:]
    told = [line for line in text.splitlines() if line.startswith("not restored at the last resume")]
    assert told and "critic" in told[0], text[-4000:]
    assert stage.step_of(root) == 5, text[-4000:]
    for engine in ("default", "critic"):
        updates = [v for name, v in counts(stage.trial(root) / engine / "recover_checkpoint")]
        print(f"  {engine}: {max(updates)} updates", flush=True)
        assert max(updates) == (5 if engine == "default" else 3), (engine, updates)


def counts(folder):
    """How many updates each parameter's optimizer has counted."""
    import torch
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {}
    _load_state_dict(state, FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return [(name, int(v)) for name, v in stage.flat(state) if name.endswith(".step") and isinstance(v, torch.Tensor)]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 | 3] ^= 0x02
    path.write_bytes(data)


def other(kept, live, name, step=4):
    """Another step's file or folder, with the times that it has."""
    source, target = kept / str(step) / name, live / name
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


CASES = [damaged_before, killed_in_saves]
if FULL:
    CASES += [announced, spread_otherwise, ppo_with_a_critic]

if __name__ == "__main__":
    sys.exit(areal_bench.main(CASES, STEPS))
