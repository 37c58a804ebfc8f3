"""Cases of verl_hazards.py: facts that break whoever trusts files and words."""

import ast
import inspect
import json
import os
import re
import shutil
from types import SimpleNamespace

from verl_hazards_stage import (
    FIXTURES,
    Model,
    Unwritable,
    evaluate,
    expressions,
    files,
    load,
    loops,
    megatron,
    point,
    pointed,
    ppo,
    raises,
    said,
    same,
    save,
    sft,
    steps,
    trainer,
)


def names_are_singular(work):
    """[fact.01, layout.pointer] The directory is looked for without an s, and the pointer may end with white space."""
    from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

    (work / "global_steps_7").mkdir()
    point(work, "7")
    assert find_latest_ckpt_path(str(work)) is None
    steps(work, 7)
    point(work, " 7\n")
    assert find_latest_ckpt_path(str(work)) == str(work / "global_step_7")


def one_file_decides(work):
    """[fact.02, pattern.scratch, pattern.pointer] Without a pointer, or with one astray, it starts at 0 beside good steps."""
    for which in ("v0", "v1"):
        root = work / which
        steps(root, 5)
        for text in (None, "9"):
            if text:
                point(root, text)
            step, words = load(trainer(which, root))
            assert step == 0 and "Training from scratch" in words, (which, text, step, words)
        for text in ("", "five", "5/actor"):
            point(root, text)
            with raises(ValueError, "invalid literal for int() with base 10"):
                load(trainer(which, root))
        point(root, "5")
        assert load(trainer(which, root))[0] == 5


def pointer_is_truncated_first(work):
    """[fact.03, crash.pointer] A stop between opening and writing leaves PPO's pointer empty, and SFT's as it was."""
    for which in ("v0", "v1"):
        root = work / which
        save(trainer(which, root, step=1))
        assert pointed(root) == "1"
        with raises(KeyboardInterrupt):
            save(trainer(which, root, step=Unwritable(2)))
        assert pointed(root) == "" and (root / "global_step_2/data.pt").exists()
    root = work / "sft"
    sft(root).save_checkpoint(1)
    with raises(KeyboardInterrupt):
        sft(root).save_checkpoint(Unwritable(2))
    assert pointed(root) == "1"


def config_is_written_before_other_ranks_are_done(work):
    """[fact.04, layout.fsdp, crash.shards] At the barrier after rank 0's files, `fsdp_config.json` is there and rank 1's are not."""
    import torch

    one, seen, barrier = Model(), [], torch.distributed.barrier
    one.manager.world_size = 2
    torch.distributed.barrier = lambda *_, **__: seen.append(files(work))
    try:
        one.save(work / "actor")
    finally:
        torch.distributed.barrier = barrier
    assert seen[0] == [], seen
    at_barrier = [name.removeprefix("actor/") for name in seen[1]]
    assert "fsdp_config.json" in at_barrier and "huggingface/config.json" in at_barrier, seen
    assert json.loads((work / "actor/fsdp_config.json").read_text()) == {"FSDP_version": 2, "world_size": 2}
    shards = [name for name in at_barrier if name.endswith(".pt")]
    assert shards == [f"{part}_world_size_2_rank_0.pt" for part in ("extra_state", "model", "optim")], shards


def marks_survive_a_second_save(work):
    """[fact.05] A save into a directory that is there leaves its old marks beside shards that are half rewritten."""
    import torch

    one, written = Model(), torch.save
    one.save(work)
    before = {name: (work / name).read_bytes() for name in files(work)}
    one.train()

    def stop_at_optimizer(value, path, *args):
        if "optim_" in str(path):
            raise KeyboardInterrupt
        written(value, path, *args)

    torch.save = stop_at_optimizer
    try:
        with raises(KeyboardInterrupt):
            one.save(work)
    finally:
        torch.save = written
    changed = [name for name, content in before.items() if (work / name).read_bytes() != content]
    assert changed == ["model_world_size_1_rank_0.pt"] and files(work) == sorted(before), changed


def retention_deletes_too_much_and_too_little(work):
    """[fact.06, failure.keep_one, failure.old_steps_pile_up, layout.husk, crash.retention] What is kept, and what is forgotten."""
    from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager, find_latest_ckpt_path

    def saves(manager, step, keep):
        manager.ensure_checkpoint_capacity(keep)
        steps(work, step)
        with said():
            manager.register_checkpoint(str(work / f"global_step_{step}/actor"), keep)

    manager = BaseCheckpointManager(model=None, optimizer=None)
    saves(manager, 1, 1)
    (work / "global_step_1/data.pt").write_text("")
    point(work, "1")
    saves(manager, 2, 1)
    # The pointer still names the first step, which is a husk by now.
    assert find_latest_ckpt_path(str(work)) == str(work / "global_step_1")
    assert os.listdir(work / "global_step_1") == ["data.pt"]
    # A new process knows nothing of them.
    manager = BaseCheckpointManager(model=None, optimizer=None)
    for step in (3, 4, 5):
        saves(manager, step, 2)
    there = [step for step in range(1, 6) if (work / f"global_step_{step}/actor").exists()]
    assert there == [2, 4, 5], there


def asynchronous_saves_are_not_completed(work):
    """[fact.07, failure.async_save_fsdp, failure.async_save_megatron] No pointer is written, and no worker finalizes anything."""
    for which in ("v0", "v1"):
        one = trainer(which, work / which, step=3, checkpoint={"async_save": True})
        save(one)
        assert one.actor_rollout_wg.saved and pointed(work / which) is None
        step, words = load(trainer(which, work / which))
        assert step == 0 and "Training from scratch" in words
    from verl.workers import engine_workers

    named = [c for _, c in inspect.getmembers(engine_workers, inspect.isclass)]
    assert len(named) > 2 and not [c for c in named if hasattr(c, "async_calls_finalize_fn_exec")]


def minus_one_saves_nothing(work):
    """[fact.08, switch.save_freq, switch.sft_save_freq] When the loops of the trainers save, by their own conditions."""
    from verl.trainer.sft_trainer import SFTTrainer

    for which, function in (("v0", ppo("v0").fit), ("v1", ppo("v1").fit)):
        tests = expressions(function, calls="_save_checkpoint")
        (condition,) = [test for test in tests if "save_freq" in ast.unparse(test)]

        def due(freq, step, last, condition=condition):
            one = SimpleNamespace(
                global_steps=step, config=SimpleNamespace(trainer=SimpleNamespace(save_freq=freq, esi_redundant_time=0))
            )
            return bool(evaluate(condition, self=one, is_last_step=last, esi_close_to_expiration=False))

        assert not due(-1, 10, True) and not due(0, 10, True), which
        assert due(5, 10, False) and due(5, 11, True) and not due(5, 11, False), which
    fit = SFTTrainer.fit
    (is_save_step,) = expressions(fit, name="is_save_step")
    (condition,) = [test for test in expressions(fit, calls="save_checkpoint") if "save_freq" in ast.unparse(test)]

    def due(freq, step, last):
        one = SimpleNamespace(save_freq=freq)
        at = evaluate(is_save_step, self=one, global_step=step)
        return bool(evaluate(condition, self=one, is_save_step=at, is_last_step=last))

    assert due(-1, 10, True) and not due(-1, 10, False) and due(5, 10, False)
    with raises(ZeroDivisionError):
        due(0, 1, False)


def exported_weights_are_not_loaded(work):
    """[fact.09, resume.load_contents] With only `hf_model`, or an empty list, FSDP loads nothing and does not complain."""
    for contents in (["hf_model"], []):
        folder = work / str(len(contents))
        folder.mkdir()
        one = Model(contents=contents, load=contents)
        before = one.weights()
        one.load(folder)
        assert same(before, one.weights())
    # Null means all three.
    from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

    manager = BaseCheckpointManager(model=None, optimizer=None, checkpoint_config={"load_contents": None})
    assert manager.checkpoint_load_contents == ["model", "optimizer", "extra"]


def a_note_is_a_list(work):
    """[fact.10, layout.megatron] The manifest of a save with `hf_model`, as JSON."""
    manager = megatron(contents=["model", "hf_model", "optimizer", "extra"])
    manifest = json.loads(json.dumps(manager._build_checkpoint_manifest(str(work), 3, True)))
    notes = {name: entry["note"] for name, entry in manifest["contents"].items() if "note" in entry}
    assert [type(notes[name]) for name in ("hf_model", "hf_config")] == [list, str], notes
    assert len(notes["hf_model"]) == 1 and manifest["schema_version"] == 2 and manifest["global_step"] == 3


def directories_come_first(work):
    """[fact.11] Asking for a path creates it, empty."""
    from verl.utils import megatron_utils

    for name in ("model_dist", "optimizer_dist", "extra_dist", "hf_model"):
        getattr(megatron_utils, f"get_{name}_checkpoint_path")(str(work))
    made = sorted(str(path.relative_to(work)) for path in work.rglob("*"))
    assert "model/dist_ckpt" in made and "extra/dist_ckpt" in made and "model/huggingface" in made and not files(work)


def migration_takes_fsdp_for_megatron(work):
    """[fact.12] Over FSDP's steps it moves `huggingface/` away, and verl's merger finds its configuration no more."""
    from scripts.migrate_megatron_checkpoint_layout import iter_checkpoint_dirs, migrate_one

    shutil.copytree(FIXTURES / "verl_ppo_fsdp2_w2/global_step_1", work / "global_step_1")
    role = work / "global_step_1/actor"
    assert iter_checkpoint_dirs(work) == [role]
    assert migrate_one(role, dry_run=False, mode="hardlink") == "migrated"
    assert (role / "model/huggingface/config.json").exists() and not (role / "huggingface").exists()
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    with raises(Exception):
        where = {"local_dir": str(role), "hf_model_config_path": str(role / "huggingface")}
        FSDPModelMerger(ModelMergerConfig(operation="merge", backend="fsdp", **where))


def migration_writes_no_manifest(work):
    """[layout.migrated, layout.megatron_old] What it leaves: no manifest, the old archive; half done, it is taken for done."""
    from scripts.migrate_megatron_checkpoint_layout import migrate_one

    def legacy(name):
        role = work / name
        shutil.copytree(FIXTURES / "verl_megatron_v2_tp2/global_step_1/actor/model/dist_ckpt", role / "dist_ckpt")
        (role / "huggingface").mkdir()
        (role / "huggingface/config.json").write_text("{}")
        return role

    role = legacy("whole")
    assert migrate_one(role, dry_run=False, mode="hardlink") == "migrated"
    assert (role / "dist_ckpt").exists() and not (role / "ckpt_contents.json").exists()
    assert (role / "optimizer/dist_ckpt/.metadata").stat().st_ino == (role / "dist_ckpt/.metadata").stat().st_ino
    role = legacy("half")
    (role / "optimizer").mkdir()
    assert migrate_one(role, dry_run=False, mode="hardlink") == "skipped (already v2)"


def old_layouts_are_refused(work):
    """[pattern.old_layout, layout.megatron_old, layout.megatron_ancient] What is detected, and what slips through."""
    detect = megatron()._raise_for_old_layout
    for name in ("dist_ckpt", "huggingface"):
        (work / name / name).mkdir(parents=True)
        (work / name / name / "x").write_text("")
        with raises(RuntimeError, f"Detected deprecated Megatron checkpoint layout (legacy {name}/ directly under"):
            detect(str(work / name))
        # An attempt that only asked for a path hides it.
        (work / name / "extra").mkdir()
        detect(str(work / name))
    # 0.4 has a `model/` of its own.
    (work / "0.4/model").mkdir(parents=True)
    (work / "0.4/dist_ckpt").mkdir()
    (work / "0.4/dist_ckpt/x").write_text("")
    detect(str(work / "0.4"))


def weights_through_the_bridge_are_no_shards(work):
    """[fact.13, failure.megatron_resume, pattern.megatron_incomplete] Where merger and loader look, megatron-core finds nothing."""
    from megatron.core.dist_checkpointing.core import CheckpointingException
    from megatron.core.dist_checkpointing.validation import verify_checkpoint_and_load_strategy

    from verl.model_merger import megatron_model_merger
    from verl.utils.megatron_utils import get_model_dist_checkpoint_path

    assert "get_model_dist_checkpoint_path(" in inspect.getsource(megatron_model_merger)
    role = work / "actor"
    shutil.copytree(FIXTURES / "verl_megatron_v2_hf/global_step_2/actor", role)
    with raises(CheckpointingException, "is not a distributed checkpoint"):
        verify_checkpoint_and_load_strategy(get_model_dist_checkpoint_path(str(role)))
    assert (role / "model/huggingface/config.json").exists()


def the_schedule_starts_anew(work):
    """[fact.14, failure.schedule_restarts] Megatron's manager passes over the schedule unless the switch is on."""
    from verl.utils.checkpoint.megatron_checkpoint_manager import MegatronCheckpointManager

    tests = expressions(MegatronCheckpointManager.load_checkpoint, calls="lr_scheduler.load_state_dict")
    names = ("use_checkpoint_opt_param_scheduler", "lr_scheduler")
    # The test that names the switch, or the one around it that does.
    (test,) = [test for test in tests if names[0] in ast.unparse(test)]
    one = SimpleNamespace(lr_scheduler=1, should_load_optimizer=True)
    results = []
    for switch in (False, True):
        one.use_checkpoint_opt_param_scheduler = switch
        results.append(bool(evaluate(test, self=one)))
    assert results == [False, True], ast.unparse(test)
    # Off unless it is set.
    assert inspect.signature(MegatronCheckpointManager.__init__).parameters[names[0]].default is False


def a_finished_run_goes_on(work):
    """[fact.15] The loops of SFT and v0 do not ask whether the last step is behind them; v1's does."""
    from verl.trainer.sft_trainer import SFTTrainer

    for function in (SFTTrainer.fit, ppo("v0").fit):
        heads = [ast.unparse(node.iter) for node in loops(function) if isinstance(node, ast.For)]
        assert any("train_dataloader" in head for head in heads) and not any("total_training_steps" in h for h in heads)
        assert not [node for node in loops(function) if isinstance(node, ast.While)]
        # It is looked at in the loop's body only once the step was trained.
        (last,) = {ast.unparse(value) for value in expressions(function, name="is_last_step")}
        assert re.fullmatch(r"(self\.)?global_steps? >= self\.total_training_steps", last), last
    heads = [node.test for node in loops(ppo("v1").fit) if isinstance(node, ast.While)]
    (head,) = [head for head in heads if "total_training_steps" in ast.unparse(head)]
    one = SimpleNamespace(total_training_steps=5, config=SimpleNamespace(trainer=SimpleNamespace(total_epochs=9)))
    for step, goes_on in ((5, True), (6, False)):
        one.global_steps = step
        assert evaluate(head, self=one, current_epoch=1) is goes_on


def the_file_logger_truncates(work):
    """[fact.16, switch.logger] A second start of the same run erases what the first one logged."""
    from verl.utils.tracking import FileLogger

    os.environ["VERL_FILE_LOGGER_PATH"] = str(work / "metrics.jsonl")
    try:
        for step in (1, 2):
            with said():
                logger = FileLogger("p", "e")
            logger.log({"loss": 0.5, "bad": float("nan")}, step)
            logger.finish()
    finally:
        del os.environ["VERL_FILE_LOGGER_PATH"]
    lines = [json.loads(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 2, "data": {"loss": 0.5, "bad": None}}], lines
