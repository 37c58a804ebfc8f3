"""Cases of areal_alone.py: what lies on disk is damaged between two launches."""

import json
import os
import shutil
from pathlib import Path

import areal_stage as stage
from areal_alone import ALARM, STEPS

HALF = 20_000


def truncated_shard(b, case):
    """[rule.shard] A shard that is too short is not loaded, nor is a set without one."""
    root = b.root(case, 3)
    os.truncate(stage.dcp(root) / "__1_0.distcp", HALF)
    b.again(case, root, what="shard cut short", expected="crash: CheckpointException")
    root = b.root(f"{case}-missing", 3)
    (stage.dcp(root) / "__1_0.distcp").unlink()
    b.again(case, root, what="shard missing", expected="crash: CheckpointException")


def flipped_byte(b, case):
    """[load.crc, rule.bytes] A flipped byte in a tensor is loaded: torch looks at no checksum."""
    root = b.root(case, 3)
    flip(stage.dcp(root) / "__0_0.distcp")
    done = b.again(case, root, what="a flipped byte in a tensor", expected="other weights")
    assert ALARM not in done.text


def other_shard(b, case):
    """[rule.times, rule.times_put_back] A shard of another step, with the file times of the right one: loaded."""
    root = b.root(case, 3)
    swap(b, 2, root, "default/recover_checkpoint/__1_0.distcp")
    b.again(case, root, what="one shard of another step, times put back", expected="other weights")


def other_weights(b, case):
    """[rule.identity] The whole checkpoint of another step beside these counters: loaded."""
    root = b.root(case, 3)
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        swap(b, 2, root, f"default/recover_checkpoint/{name}")
    b.again(case, root, what="the checkpoint of another step, times put back", expected="other weights")


def other_counters(b, case):
    """[rule.info_swapped] recover_info of another step beside these weights: believed."""
    root = b.root(case, 3)
    for path in sorted(stage.info(root).iterdir()):
        swap(b, 2, root, f"recover_info/{path.name}")
    done = b.again(case, root, what="recover_info of another step, times put back", expected="other weights")
    assert done.steps[0] == 3


def other_file_of_counters(b, case):
    """[rule.info_times] One file of recover_info of another step: believed."""
    root = b.root(case, 3)
    swap(b, 2, root, "recover_info/dataloader_info.pkl")
    done = b.again(case, root, what="the place in the data of another step, times put back", expected="other weights")
    assert done.steps[0] == 4


def no_counters(b, case):
    """[resume.no_counters, resume.overwrites] Without recover_info, areal begins anew and overwrites the checkpoint."""
    root = b.root(case, 3)
    shutil.rmtree(stage.info(root))
    done = b.again(case, root, what="recover_info is missing", expected="fresh start", steps=1)
    assert ALARM in done.text
    assert stage.tensors(stage.dcp(root)) == stage.tensors(b.straight()[1] / "1/default/recover_checkpoint")


def empty_counters(b, case):
    """[rule.info_files, load.not_found] One file of recover_info is empty, or gone: a fresh start."""
    for file in ("step_info.json", "saver_info.json", "dataloader_info.pkl"):
        root = b.root(f"{case}-{file}", 3)
        os.truncate(stage.info(root) / file, 0)
        b.again(case, root, what=f"{file} is empty", expected="fresh start", steps=2)
    root = b.root(f"{case}-missing", 3)
    (stage.info(root) / "evaluator_info.json").unlink()
    b.again(case, root, what="evaluator_info.json is missing", expected="fresh start", steps=2)


def absurd_counters(b, case):
    """[rule.step_info] Counters that contradict themselves are believed."""
    root = b.root(case, 3)
    path = stage.info(root) / "step_info.json"
    path.write_text(path.read_text().replace('"global_step": 2', '"global_step": 4'))
    done = b.again(case, root, what="global_step says 4 where epoch and epoch_step say 2", expected="other weights")
    assert done.steps[0] == 6


def no_step_in_the_checkpoint(b, case):
    """[disk.no_step, disk.stats_behind, resume.rng] A checkpoint knows weights and optimizer: no step, no schedule, no random state."""
    saves = set()
    for step in (2, 3):
        kept = b.straight()[1] / str(step)
        names = stage.tensors(kept / "default/recover_checkpoint")
        assert all(name.startswith((".dcp.model.", ".dcp.optim.")) for name in names), names
        saves.add(stage.metadata(kept / "default/recover_checkpoint").storage_meta.save_id)
        at = {n: json.loads((kept / f"recover_info/{n}_info.json").read_text()) for n in ("step", "stats_logger")}
        assert at["step"]["global_step"] == step - 1 and at["stats_logger"]["last_commit_step"] == step - 2
    assert len(saves) == 2


def hard_links(b, case):
    """[protect.hard_links, disk.one_inode] A copy by hard links changes with the next save: the inodes are written over."""
    root = b.root(case, 3)
    kept = root.parent / f"{case}.links"
    shutil.copytree(stage.dcp(root), kept, copy_function=os.link)
    # Without a step in between, so that the copy is of step 3 before.
    before = stage.tensors(kept)
    done = b.launch(root, 4)
    assert done.code == 0 and done.steps == [4], done.text[-2000:]
    after = {p.name: p.stat().st_ino for p in stage.dcp(root).iterdir()}
    same = {p.name: p.stat().st_ino == after[p.name] for p in kept.iterdir()}
    assert same == {"__0_0.distcp": True, "__1_0.distcp": True, ".metadata": False}, same
    assert stage.tensors(kept) == stage.tensors(stage.dcp(root)) != before


def whole_set_put_back(b, case):
    """[protect.put_back] All of an earlier save, put back together: right."""
    root = b.root(case, 5)
    shutil.rmtree(stage.trial(root))
    shutil.copytree(b.straight()[1] / "2", stage.trial(root))
    done = b.again(case, root, what="all of step 2 put back", expected="right")
    assert done.steps == list(range(3, STEPS + 1))


def swap(b, step, root, name):
    """Another step's file in the place of this one, with this one's times."""
    path = stage.trial(root) / name
    times = path.stat()
    shutil.copyfile(b.straight()[1] / str(step) / name, path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def flip(path):
    """One bit of the exponent of one weight: the middle of the longest run of tensor bytes."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2 | 3] ^= 0x02
    path.write_bytes(data)
