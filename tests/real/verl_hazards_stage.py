"""What the cases of verl_hazards.py stand on: trainers as far as they save and load, models of one rank, places in the source."""

import ast
import contextlib
import importlib.util
import inspect
import io
import logging
import os
import sys
import textwrap
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
        logger.propagate = False
        logger.addHandler(words)
        logger.setLevel(logging.INFO)
    logging.disable(logging.NOTSET)
    try:
        with contextlib.redirect_stdout(words.file):
            yield words
    finally:
        logging.disable(logging.CRITICAL)
        for logger, level in levels:
            logger.propagate = True
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
