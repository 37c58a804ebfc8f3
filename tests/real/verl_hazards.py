"""What verl itself does where it can hurt: the other half of docs/verl-hazards.md.

usage: verl_hazards.py [CASE...]        (run with the python of install.sh's environment; about a minute)

Each case runs verl's own code in this one process, a process group of one CPU rank, on files of its own. The first line of
a case names the hazards that it shows, by their ids on that page. Ends with 1 where verl does something else by now: then the
page is wrong, and perhaps `supervise` too.
"""

import ast
import contextlib
import importlib.metadata
import importlib.util
import inspect
import io
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import textwrap
import time
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
os.environ |= {
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}


# -- what the cases stand on ------------------------------------------------------------------------------------------


def config(**more):
    """A PPO configuration with what saving and loading ask for."""
    from omegaconf import OmegaConf

    trainer = {
        "default_local_dir": None,
        "default_hdfs_dir": None,
        "resume_mode": "auto",
        "resume_from_path": None,
        "max_actor_ckpt_to_keep": None,
        "max_critic_ckpt_to_keep": None,
        "del_local_ckpt_after_load": False,
    } | more.pop("trainer", {})
    checkpoint = {"async_save": False} | more.pop("checkpoint", {})
    return OmegaConf.create({"trainer": trainer, "actor_rollout_ref": {"actor": {"checkpoint": checkpoint}}} | more)


class Workers:
    """Stands in for a worker group: remembers what it was asked."""

    def __init__(self):
        self.saved, self.loaded = [], []

    def save_checkpoint(self, path, remote, step, max_ckpt_to_keep=None):
        Path(path).mkdir(parents=True, exist_ok=True)
        self.saved.append((path, max_ckpt_to_keep))

    def load_checkpoint(self, local_path, **_):
        self.loaded.append(local_path)


def trainer(which, root, step=0, batches=4, **more):
    """A PPO trainer as far as it saves and loads: `v0` or `v1`."""
    settings = {"default_local_dir": str(root)} | more.pop("trainer", {})
    return SimpleNamespace(
        config=config(trainer=settings, **more),
        global_steps=step,
        use_critic=False,
        trainer_mode="sync",
        actor_rollout_wg=Workers(),
        train_dataloader=loader(batches),
        checkpoint_callback=SimpleNamespace(on_save=lambda **_: None),
        code=ppo(which),
    )


def ppo(which):
    if which == "v0":
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer

        return RayPPOTrainer
    stand_in("transfer_queue")
    from verl.trainer.ppo.v1 import trainer_base

    named = [c for _, c in inspect.getmembers(trainer_base, inspect.isclass) if "_save_checkpoint" in vars(c)]
    assert len(named) == 1, named
    return named[0]


def stand_in(name):
    """A module of which nothing is called here, where it is not installed."""
    if name not in sys.modules and not importlib.util.find_spec(name):
        sys.modules[name] = mock.MagicMock()


def save(one):
    one.code._save_checkpoint(one)


def load(one):
    """Resumes; the step it goes on from, and what was printed or logged."""
    with said() as words:
        one.code._load_checkpoint(one)
    return one.global_steps, words.text()


def loader(batches):
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(torch.arange(batches), batch_size=1, num_workers=0)


def through(dataloader):
    """Takes every batch, and does not ask for another one."""
    batches = iter(dataloader)
    for _ in range(len(dataloader)):
        next(batches)


class Words(logging.Handler):
    def __init__(self):
        super().__init__()
        self.file = io.StringIO()

    def emit(self, record):
        self.file.write(record.getMessage() + "\n")

    def text(self):
        return self.file.getvalue()


@contextlib.contextmanager
def said():
    """All that is printed or logged by verl meanwhile."""
    words = Words()
    found = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if "verl" in name]
    levels = [(logger, logger.level) for logger in found]
    for logger in found:
        logger.addHandler(words)
        logger.setLevel(logging.INFO)
    logging.disable(logging.NOTSET)
    try:
        with contextlib.redirect_stdout(words.file):
            yield words
    finally:
        logging.disable(logging.CRITICAL)
        for logger, level in levels:
            logger.removeHandler(words)
            logger.setLevel(level)


@contextlib.contextmanager
def raises(kind, words=""):
    """What is done in it raises this."""
    try:
        yield
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error!r}"
        return
    raise AssertionError(f"{kind} was not raised")


def steps(root, *numbers):
    for number in numbers:
        (root / f"global_step_{number}" / "actor").mkdir(parents=True)


def point(root, text):
    (root / "latest_checkpointed_iteration.txt").write_text(text)


def pointed(root):
    path = root / "latest_checkpointed_iteration.txt"
    return path.read_text() if path.exists() else None


def expressions(function, name=None, calls=None):
    """Conditions and values in verl's source: those assigned to a name, or those of the `if`s around a call, innermost last."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if name and isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            yield node.value
        if calls and isinstance(node, ast.If) and f"{calls}(" in ast.unparse(node.body):
            yield node.test


def loops(function):
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]


def evaluate(expression, **names):
    return eval(compile(ast.Expression(expression), "verl", "eval"), {}, names)


class Model:
    """One FSDP2 model on one rank, with verl's manager of its checkpoints."""

    def __init__(self, contents=("model", "optimizer", "extra"), load=None):
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from transformers import Qwen2Config, Qwen2ForCausalLM

        from verl.trainer.config import CheckpointConfig
        from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

        torch.manual_seed(len(contents))
        shape = Qwen2Config(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            vocab_size=16, architectures=["Qwen2ForCausalLM"],
        )  # fmt: skip
        mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
        self.model = fully_shard(Qwen2ForCausalLM(shape), mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.train()
        self.manager = FSDPCheckpointManager(
            model=self.model,
            optimizer=self.optimizer,
            lr_scheduler=torch.optim.lr_scheduler.ConstantLR(self.optimizer),
            processing_class=SimpleNamespace(save_pretrained=lambda path: None),
            checkpoint_config=CheckpointConfig(
                save_contents=list(contents), load_contents=list(contents if load is None else load)
            ),
        )

    def train(self):
        import torch

        batch = torch.randint(0, 16, (2, 4))
        self.model(input_ids=batch, labels=batch).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self):
        return [p.full_tensor().detach().clone() for p in self.model.parameters()]

    def save(self, folder, step=1, keep=None):
        self.manager.save_checkpoint(str(folder), global_step=step, max_ckpt_to_keep=keep)

    def load(self, folder):
        self.manager.load_checkpoint(str(folder))


def same(ones, others):
    return all(one.equal(other) for one, other in zip(ones, others, strict=True))


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def megatron(contents=("model", "optimizer", "extra"), bridge=True, dist=False, load=None, **more):
    """verl's manager of Megatron's checkpoints, with nothing to save."""
    from verl.trainer.config import CheckpointConfig
    from verl.utils.checkpoint.megatron_checkpoint_manager import MegatronCheckpointManager

    arguments = {
        "config": SimpleNamespace(model=SimpleNamespace(path="x"), megatron=SimpleNamespace()),
        "checkpoint_config": CheckpointConfig(
            save_contents=list(contents), load_contents=list(contents if load is None else load)
        ),
        "role": "actor",
        "arch": "GPTModel",
        "use_dist_checkpointing": dist,
        "bridge": SimpleNamespace() if bridge else None,
        "use_distributed_optimizer": False,
        "share_embeddings_and_output_weights": False,
        "optimizer_scheduler": SimpleNamespace(),
        "processing_class": SimpleNamespace(),
    } | more
    names = inspect.signature(MegatronCheckpointManager.__init__).parameters
    for name, parameter in names.items():
        if parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            arguments.setdefault(name, None)
    arguments.pop("self", None)
    return MegatronCheckpointManager(**arguments)


def sft(root, step=1, batches=4, **more):
    """verl's handler of the SFT trainer's checkpoints, with an engine that writes nothing."""
    from verl.utils.checkpoint.checkpoint_handler import CheckpointHandler

    engine = SimpleNamespace(
        save_checkpoint=lambda local_path, **_: Path(local_path).mkdir(parents=True, exist_ok=True),
        load_checkpoint=lambda path: None,
        is_mp_src_rank_with_outputs=lambda: True,
        get_data_parallel_rank=lambda: 0,
    )
    return CheckpointHandler(engine, loader(batches), default_local_dir=str(root), **more)


class Unwritable(int):
    """A step that cannot be written as text, as if the machine stopped there."""

    def __str__(self):
        raise KeyboardInterrupt

    def __format__(self, spec):
        return format(int(self), spec)


# -- facts ------------------------------------------------------------------------------------------------------------


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
        (condition,) = [test for test in expressions(function, calls="_save_checkpoint") if "save_freq" in ast.unparse(test)]

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
        FSDPModelMerger(
            ModelMergerConfig(operation="merge", backend="fsdp", local_dir=str(role), hf_model_config_path=str(role / "huggingface"))
        )


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


# -- resumes ----------------------------------------------------------------------------------------------------------


def paths_are_parsed_differently(work):
    """[resume.path_parsing, resume.path, pattern.pointer] PPO takes the last number of a path, SFT the first."""
    from verl.utils.checkpoint.checkpoint_handler import extract_step

    path = work / "global_step_50/run/global_step_2"
    for which in ("v0", "v1"):
        settings = {"resume_mode": "resume_path"}

        def of(text, which=which, settings=settings):
            return load(trainer(which, work, trainer={**settings, "resume_from_path": text}))[0]

        # That it exists is not asked here.
        assert of(str(path)) == 2
        for text in (f"{path}/", f"{path}/actor"):
            with raises(ValueError, "invalid literal for int()"):
                of(text)
        with raises(AssertionError):
            of(None)
        with raises(AssertionError):
            of(str(work))
    assert extract_step(str(path)) == 50
    with raises(AssertionError):
        sft(work, resume_mode="resume_path", resume_from_path=str(path)).load_checkpoint()


def modes_of_a_resume(work):
    """[resume.auto, resume.disable, resume.other_word] Each mode in each trainer."""
    steps(work, 1, 2)
    point(work, "2")
    first = str(work / "global_step_1")
    for which in ("v0", "v1"):
        assert load(trainer(which, work, trainer={"resume_from_path": first}))[0] == 2
        assert load(trainer(which, work, trainer={"resume_mode": "disable"}))[0] == 0
    with raises(UnboundLocalError), contextlib.redirect_stderr(io.StringIO()):
        load(trainer("v1", work, trainer={"resume_mode": "latest"}))
    assert load(trainer("v0", work, trainer={"resume_mode": "latest"}))[0] == 2
    assert sft(work, resume_from_path=first).load_checkpoint() == 1
    assert sft(work).load_checkpoint() == 2
    assert sft(work, resume_mode="disable").load_checkpoint() == 0
    with raises(ValueError, "Invalid resume_mode"):
        sft(work, resume_mode="latest").load_checkpoint()


def another_number_of_ranks(work):
    """[resume.world_size, failure.other_node_count, pattern.shard_missing] FSDP looks for its own number of ranks in the names."""
    one = Model()
    one.save(work)
    one.manager.world_size = 4
    with raises(FileNotFoundError, "model_world_size_4_rank_0.pt"):
        one.load(work)


def damaged_files_fail_every_launch(work):
    """[resume.incomplete, crash.power, crash.disk_full] A missing shard, a cut one, one that an exception closed in the middle."""
    import torch

    one = Model()
    one.save(work)
    shard = work / "optim_world_size_1_rank_0.pt"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with raises(Exception):
        one.load(work)
    shard.unlink()
    with raises(FileNotFoundError):
        one.load(work)

    # A valid archive in which tensors are missing: torch closes it when a write fails.
    class Full(io.FileIO):
        def write(self, data):
            if self.tell() > len(whole) // 2 and b"PK\x01\x02" not in bytes(data)[:64] and len(data) > 512:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with contextlib.suppress(Exception), Full(shard, "w") as full:
        torch.save({"a": torch.zeros(4096), "b": torch.ones(1 << 16)}, full)
    with raises(Exception):
        torch.load(shard, weights_only=False)


def the_data_starts_again(work):
    """[resume.data_order] Without its state the data begins anew, with a warning and nothing else."""
    steps(work, 3)
    for which in ("v0", "v1"):
        settings = {"resume_mode": "resume_path", "resume_from_path": str(work / "global_step_3")}
        one = trainer(which, work, trainer=settings)
        step, words = load(one)
        assert step == 3 and "No dataloader state found at" in words, words
        assert len(list(one.train_dataloader)) == 4


def an_epochs_end_trains_nothing(work):
    """[resume.epoch_boundary, failure.sft_epoch_boundary, failure.ppo_epoch_boundary] What is left of the next epoch after a resume at the end of one."""
    at_end = sft(work)
    # It saves inside the loop, before the loop finds that nothing is left.
    through(at_end.train_dataloader)
    at_end.save_checkpoint(4)
    resumed = sft(work)
    assert resumed.load_checkpoint() == 4
    assert list(resumed.train_dataloader) == []
    # v0 leaves the state aside there, and trains.
    one = trainer("v0", work / "ppo", step=4)
    through(one.train_dataloader)
    save(one)
    again = trainer("v0", work / "ppo")
    assert load(again)[0] == 4
    assert len(list(again.train_dataloader)) == 4


# -- switches ---------------------------------------------------------------------------------------------------------


def remote_directories(work):
    """[switch.default_hdfs_dir, pattern.hdfs] v0 raises at any resume but `disable`, v1 passes over it."""
    steps(work, 2)
    point(work, "2")
    remote = {"default_hdfs_dir": "hdfs://host/x"}
    with raises(NotImplementedError, "load from hdfs is not implemented yet"):
        load(trainer("v0", work, trainer=remote))
    assert load(trainer("v0", work, trainer={**remote, "resume_mode": "disable"}))[0] == 0
    assert load(trainer("v1", work, trainer=remote))[0] == 2


def one_to_keep_by_another_name(work):
    """[switch.remove_previous_ckpt] The deprecated switch means one to keep, whatever else is set."""
    for which in ("v0", "v1"):
        one = trainer(which, work / which, step=1, trainer={"max_actor_ckpt_to_keep": 5, "remove_previous_ckpt_in_save": True})
        with said():
            save(one)
        assert [keep for _, keep in one.actor_rollout_wg.saved] == [1]


def when_a_critic_is_trained(work):
    """[switch.critic] `critic.enable`, else whether advantages are estimated by GAE."""
    from omegaconf import OmegaConf

    from verl.trainer.ppo.utils import need_critic

    for estimator, enable, wanted in (("gae", None, True), ("grpo", None, False), ("grpo", True, True), ("gae", False, False)):
        both = {"algorithm": {"adv_estimator": estimator}, "critic": {"enable": enable}}
        with contextlib.redirect_stdout(io.StringIO()):
            assert need_critic(OmegaConf.create(both)) is wanted, (estimator, enable)


def what_is_saved(work):
    """[switch.save_contents, layout.ppo] Only what is listed becomes a file; configuration and tokenizer always do."""
    one = Model(contents=["model"])
    one.save(work)
    shards = [name for name in files(work) if name.endswith(".pt")]
    assert shards == ["model_world_size_1_rank_0.pt"] and (work / "huggingface/config.json").exists()


def only_adapters_are_saved(work):
    """[switch.save_lora_only] The base model is in no file of such a step, and a load needs it from elsewhere."""
    import torch

    one = Model()
    one.manager.checkpoint_config = {"save_lora_only": True}
    one.model.peft_config = {}
    names = iter(range(99))
    plain = one.model.state_dict
    one.model.state_dict = lambda: {f"lora_{next(names)}" if n < 2 else k: v for n, (k, v) in enumerate(plain().items())}
    one.save(work)
    state = torch.load(work / "model_world_size_1_rank_0.pt", weights_only=False)
    assert sorted(state) == ["lora_0", "lora_1"] and len(plain()) > 2


def overrides_are_strict(work):
    """[switch.overrides, pattern.configuration, exit.override] An unknown key, a comma, a quoted list."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException

    def of(*overrides):
        return compose("sft_trainer_engine", overrides=list(overrides))

    with initialize_config_module("verl.trainer.config", version_base=None):
        with raises(HydraException, "Could not override 'trainer.sav_freq'"):
            of("trainer.sav_freq=1")
        with raises(HydraException):
            of("checkpoint.save_contents=model,optimizer")
        with raises(HydraException):
            of("checkpoint.async_save=False")
        assert of("++checkpoint.async_save=False").checkpoint.async_save is False
        text = of("checkpoint.load_contents=\"['model']\"").checkpoint.load_contents
        assert text == "['model']" and "model" in text
        assert of("trainer.save_freq=1", "trainer.save_freq=2").trainer.save_freq == 2


# -- Megatron's writers -----------------------------------------------------------------------------------------------


def writers_and_contents(work):
    """[combination.bridge_model, combination.bridge_hf, combination.bridge_both, combination.shards_model, combination.shards_hf, combination.neither, combination.both_model, combination.both_both, combination.both_hf, combination.no_weights] What each writes, by verl's own manifest."""
    hub, shards = "model/huggingface", "model/dist_ckpt"
    for bridge, dist, weights, wanted in (
        (True, False, ["model"], {"model": hub}),
        (True, False, ["hf_model"], {"model": hub, "hf_model": hub}),
        (True, False, ["model", "hf_model"], {"model": hub, "hf_model": hub}),
        (False, True, ["model"], {"model": shards}),
        (False, True, ["hf_model"], None),
        (False, False, ["model"], None),
        (True, True, ["model"], {"model": shards}),
        (True, True, ["model", "hf_model"], {"model": shards, "hf_model": hub}),
        (True, True, ["hf_model"], {"model": hub, "hf_model": hub}),
        (True, False, [], {}),
    ):
        contents = [*weights, "optimizer", "extra"]
        if wanted is None:
            with raises(ValueError):
                megatron(contents, bridge, dist)
            continue
        manifest = megatron(contents, bridge, dist)._build_checkpoint_manifest(str(work), 1, True)
        found = {name: entry["path"] for name, entry in manifest["contents"].items() if "model" in name}
        assert found == wanted, (bridge, dist, weights, found)
        assert manifest["contents"]["optimizer"]["path"] == "optimizer/dist_ckpt"


def adapters_of_megatron(work):
    """[combination.adapters] Shards of the adapters, an export of them, and a resume from the export alone refused."""
    manager = megatron(peft_cls=object())
    contents = manager._build_checkpoint_manifest(str(work), 1, True)["contents"]
    assert contents["model"]["peft_adapter_path"] == "model/huggingface/adapter"
    assert contents["peft_adapters"]["path"] == "model/dist_ckpt"
    (work / "model/huggingface/adapter").mkdir(exist_ok=True)
    (work / "model/huggingface/adapter/adapter_config.json").write_text("{}")
    with raises(RuntimeError, "Found exported HF PEFT adapter"):
        manager._raise_for_unsupported_peft_checkpoint_layout(str(work), str(work / "model/dist_ckpt"))


# -- running them -----------------------------------------------------------------------------------------------------


def cases():
    """All functions whose first line names hazards."""
    found = [f for f in globals().values() if inspect.isfunction(f) and (f.__doc__ or "").startswith("[")]
    return [f for f in found if not sys.argv[1:] or f.__name__ in sys.argv[1:]]


def main():
    import torch

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="verl-hazards-") as work:
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
