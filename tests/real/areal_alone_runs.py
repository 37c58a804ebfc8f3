"""Cases of areal_alone.py: areal killed in a run, and launched again."""

import json

import areal_stage as stage
from areal_alone import ALARM, STEPS


def killed_in_mid_step(b, case):
    """[crash.step, resume.first_epoch] A run killed in mid-step goes on from the last save as if nothing had been."""
    _, done = b.hurt(case, {"kind": "kill", "step": 4, "rank": 1}, "right", "killed in mid-step")
    assert done.steps == [4, 5, 6]


def shard_cut_short(b, case):
    """[crash.shard_torn, load.dies_each_time, signal.recovering] The only checkpoint is destroyed: no launch loads it again."""
    fault = {"kind": "shard_half", "step": 4, "rank": 1}
    root, done = b.hurt(case, fault, "crash: CheckpointException", "killed while a rank wrote its shard")
    assert "Recovering from StepInfo(" in done.text and not done.steps
    b.again(case, root, what="launched a second time", expected="crash: CheckpointException")


def shard_of_two_saves(b, case):
    """[crash.mixture] Shards of two saves under the metadata of the older: loaded without a word."""
    fault = {"kind": "shard_unwritten", "step": 4, "rank": 1}
    _, done = b.hurt(case, fault, "other weights", "killed after one rank had written its shard")
    assert ALARM not in done.text and done.losses[4] != b.straight()[0].losses[4]


def shards_without_their_metadata(b, case):
    """[crash.all_shards, disk.old_metadata_stays] Weights of step 4, counters of step 3: step 4 is trained twice."""
    fault = {"kind": "shard_written", "step": 4, "rank": 0}
    _, done = b.hurt(case, fault, "other weights", "killed after all ranks had written their shards")
    assert done.steps[0] == 4


def metadata_unlinked(b, case):
    """[crash.unlinked] Between unlink and rename there is no `.metadata`: whole as it is, it cannot be loaded."""
    root, _ = b.hurt(case, {"kind": "metadata_unlinked", "step": 4}, "crash: CheckpointException",
                     "killed between unlink and rename of .metadata")  # fmt: skip
    names = sorted(p.name for p in stage.dcp(root).iterdir())
    assert names == [".metadata.tmp", "__0_0.distcp", "__1_0.distcp"], names
    (stage.dcp(root) / ".metadata.tmp").rename(stage.dcp(root) / ".metadata")
    b.again(case, root, what="and .metadata.tmp renamed by hand", expected="other weights")


def weights_ahead_of_counters(b, case):
    """[crash.ahead, signal.saved] Weights of step 4, counters of step 3, after the log said that the checkpoint was saved."""
    root, done = b.hurt(case, {"kind": "shards_done", "step": 4}, "other weights", "killed between the checkpoint and recover_info")
    assert done.steps[0] == 4 and ALARM not in done.text


def counters_cut_short(b, case):
    """[crash.info_torn, resume.scratch_in_silence] A counter's file cut short: it starts anew, and overwrites the good weights."""
    for kind, file in (("info_half", "step_info.json"), ("info_empty", "step_info.json"),
                       ("info_half", "checkpoint_info.json"), ("info_half", "dataloader_info.pkl")):  # fmt: skip
        name = f"{case}-{kind}-{file}"
        fault = {"kind": kind, "step": 4, "file": file}
        root, done = b.hurt(name, fault, "fresh start", f"killed while it wrote {file} ({kind})")
        assert ALARM in done.text and done.code == 0
        assert json.loads((stage.info(root) / "step_info.json").read_text())["global_step"] == STEPS - 1


def counters_of_two_saves(b, case):
    """[crash.info_mixed] step_info of step 4, place in the data of step 3: the batch of step 4 is trained twice."""
    _, done = b.hurt(case, {"kind": "info_before", "step": 4, "file": "dataloader_info.pkl"}, "other weights",
                     "killed between two files of recover_info")  # fmt: skip
    assert done.steps[0] == 5 and ALARM not in done.text


def disk_full(b, case):
    """[crash.disk_full, load.base_exception] A full disk ends the save, and has taken the only checkpoint."""
    root = b.root(case)
    before = b.launch(root, STEPS, faults=[{"kind": "no_space", "step": 4, "rank": 1}])
    assert before.code == 1 and "CheckpointException" in before.text, before.text[-2000:]
    b.again(case, root, what="the disk was full in a save", expected="crash: CheckpointException", before=before)


def exception(b, case):
    """[signal.completes] An exception ends it with 1, after "Training completes!" was printed."""
    root = b.root(case)
    before = b.launch(root, STEPS, faults=[{"kind": "raise", "step": 4}])
    assert before.code == 1 and "Training failed with exception:" in before.text and "Training completes!" in before.text
    b.again(case, root, what="an exception in mid-step", expected="right", before=before)


def finished(b, case):
    """[resume.finished] Launched again after its last step, it does nothing and ends with 0."""
    root = b.root(case, STEPS)
    b.again(case, root, what="launched again after the last step", expected="nothing to do")


def schedule(b, case):
    """[resume.schedule, resume.rng] The learning rate begins again at its first step."""
    knobs = {"schedule": "cosine"}
    good, _ = b.straight(**knobs)
    root = b.root(case, 3, **knobs)
    done = b.again(case, root, what="cosine schedule, resumed at step 4", expected="other weights", straight=knobs, **knobs)
    assert [done.rates[s] for s in (4, 5, 6)] == [good.rates[s] for s in (1, 2, 3)] != [good.rates[s] for s in (4, 5, 6)]


def second_epoch(b, case):
    """[resume.second_epoch] Beyond the first epoch, it goes on with the first epoch's order of the data."""
    # Two steps make an epoch.
    knobs = {"batch": 32}
    good, _ = b.straight(**knobs)
    for step, what, expected in (
        (2, "at the end of the first epoch", "right"),
        (3, "in the second epoch", "other weights"),
        (4, "at the end of the second epoch", "other weights"),
    ):
        name = f"{case}-{step}"
        done = b.again(name, b.root(name, step, **knobs), what=f"resumed {what}", expected=expected, straight=knobs, **knobs)
        assert (done.losses[step + 1] == good.losses[step + 1]) == (expected == "right")


def frequency(b, case):
    """[resume.frequency] The frequency of saves that was stored wins over the one that is configured now."""
    root = b.root(case, 2)
    b.again(case, root, what="freq_steps 1 stored, 3 configured", expected="right", freq=3)
    stored = json.loads((stage.info(root) / "checkpoint_info.json").read_text())["step"]["frequency_steps"]
    assert stored == 1
    root = b.root(f"{case}-more")
    before = b.launch(root, 4, freq=4)
    assert before.code == 0
    done = b.launch(root, STEPS, freq=1)
    at = json.loads((stage.info(root) / "step_info.json").read_text())["global_step"] + 1
    assert done.code == 0 and done.steps == [5, 6] and at == 4, (done.steps, at)


def world_size(b, case):
    """[resume.world_size, disk.data_list, disk.leftover_shards] One rank instead of two: a fresh start."""
    root = b.root(case, 3)
    done = b.again(case, root, what="one rank instead of two", expected="fresh start", world=1)
    assert ALARM in done.text and "does not match the world size" in done.text
    assert (stage.dcp(root) / "__1_0.distcp").exists()


def parallel_sizes(b, case):
    """[resume.parallel] As many ranks, spread otherwise: exit code 0, and it goes on at another place in the data."""
    root = b.root(case, 3)
    done = b.again(case, root, what="fsdp:d1t2 instead of fsdp:d2", expected="other weights", backend="fsdp:d1t2")
    assert ALARM not in done.text and done.steps == [4, 5, 6], done.text[-2000:]


def another_backend(b, case):
    """[resume.backend] A backend does not load what another one saved."""
    root = b.root(case, 3)
    b.again(case, root, what="archon:d2 instead of fsdp:d2", expected="crash: CheckpointException", backend="archon:d2")


def user(b, case):
    """[resume.user] With another name of the user it looks elsewhere, finds nothing and starts anew."""
    root = b.root(case, 3)
    done = b.again(case, root, what="USER changed", expected="fresh start", user="another")
    assert ALARM in done.text and stage.trial(root, "another").exists()
    assert stage.tensors(stage.dcp(root)) == stage.tensors(b.straight()[1] / "3/default/recover_checkpoint")
