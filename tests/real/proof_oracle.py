"""Loads checkpoints as their trainers do and answers with a digest of what was in them.

usage: python proof_oracle.py        (one request per line on standard input, one answer per line on standard output)

A request is {"kind": NAME, "path": PATH}, an answer {"digest": HEX} or {"error": WORDS}. The files may be damaged, so a
request may also end this process; `Oracle`, for the other side, starts the next one and calls that an error too.
"""

import hashlib
import io
import json
import pickle
import queue
import resource
import subprocess
import sys
import threading
from pathlib import Path

MEMORY = 24 << 30
LIMIT_SECONDS = 60


def tensor_bytes(tensor):
    import torch

    plain = tensor.detach().cpu().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def feed(digest, value):
    """Adds a value and all that is in it: types, shapes and bytes."""
    import numpy
    import torch

    if hasattr(value, "_local_tensor"):
        digest.update(repr(value._spec).encode())
        feed(digest, value._local_tensor)
    elif hasattr(value, "local_shards"):
        for shard in value._local_shards:
            digest.update(repr(shard.metadata).encode())
            feed(digest, shard.tensor)
    elif isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}{value.requires_grad}".encode())
        digest.update(tensor_bytes(value))
    elif isinstance(value, numpy.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(repr(key).encode())
            feed(digest, item)
    elif isinstance(value, (list, tuple)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for item in value:
            feed(digest, item)
    else:
        digest.update(repr(value).encode())


def torch_file(path):
    import torch

    return torch.load(path, map_location="cpu", weights_only=False)


def torch_script(path):
    import torch

    return torch.jit.load(path, map_location="cpu").state_dict()


def safetensors_file(path):
    from safetensors.torch import load_file

    return load_file(path)


def dcp_folder(folder):
    """Everything that the metadata names, without a process group."""
    return dcp_load(folder, "torch.distributed.checkpoint.filesystem", "FileSystemReader")


def dcp_hf_folder(folder):
    return dcp_load(folder, "torch.distributed.checkpoint.hf_storage", "HuggingFaceStorageReader")


def dcp_load(folder, module, reader):
    import importlib

    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {}
    source = getattr(importlib.import_module(module), reader)(str(folder))
    _load_state_dict(state, storage_reader=source, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return dict(sorted(state.items()))


def dcp_rank_folder(folder):
    """Each rank's metadata by itself; what one rank wrote is all that it can have back."""
    import torch

    found = {}
    for path in sorted(folder.glob("__*.metadata")):
        metadata = pickle.loads(path.read_bytes())
        for index, info in metadata.storage_data.items():
            with open(folder / info.relative_path, "rb") as file:
                file.seek(info.offset)
                piece = file.read(info.length)
            found[f"{path.name} {index}"] = torch.load(io.BytesIO(piece), weights_only=False)
    return found


def hf_folder(folder):
    """The weights that the index names, or the only file; and the configuration."""
    found = {"config": json.loads((folder / "config.json").read_text())}
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return found | safetensors_file(folder / "model.safetensors")
    names = json.loads(index.read_text())["weight_map"]
    files = {file: safetensors_file(folder / file) for file in sorted(set(names.values()))}
    return found | {name: files[file][name] for name, file in sorted(names.items())}


def weights_folder(folder):
    """As `hf_folder`, of what torch writes: no configuration."""
    names = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    files = {file: safetensors_file(folder / file) for file in sorted(set(names.values()))}
    return {name: files[file][name] for name, file in sorted(names.items())}


def data_state(step):
    """verl warns where it is missing, and begins the data anew."""
    return {path.name: torch_file(path) for path in sorted(step.glob("data*.pt"))}


def verl_step(step):
    """What a resumed rank reads in each role, for all ranks."""
    roles = [path for path in (step / "actor", step / "critic") if path.is_dir()] or [step]
    found = {}
    for role in roles:
        ranks = json.loads((role / "fsdp_config.json").read_text())["world_size"]
        for rank in range(ranks):
            for kind in ("model", "optim", "extra_state"):
                name = f"{kind}_world_size_{ranks}_rank_{rank}.pt"
                found[f"{role.name}/{name}"] = torch_file(role / name)
    return found | {"data": data_state(step)}


def megatron_step(step):
    """What megatron-core and verl read: three distributed checkpoints, or two and a Hugging Face model."""
    from megatron.core.dist_checkpointing.validation import verify_checkpoint_and_load_strategy

    role = step / "actor"
    found = {"config": json.loads((role / "transformer_config.json").read_text()), "data": data_state(step)}
    parts = ["model", "optimizer", "extra"]
    if (role / "model/huggingface/config.json").exists():
        found["model"] = hf_folder(role / "model/huggingface")
        parts = parts[1:]
    for part in parts:
        folder = role / part / "dist_ckpt"
        strategy, common = verify_checkpoint_and_load_strategy(str(folder))
        found[part] = {
            "common": common.load_common(str(folder)),
            "sharded": dcp_folder(folder),
            "strategy": repr((type(strategy), strategy.version if hasattr(strategy, "version") else None)),
        }
    return found


def areal_trial(folder):
    """What a resumed trial reads, and its exports."""
    info = folder / "recover_info"
    names = ("step", "saver", "evaluator", "stats_logger", "checkpoint")
    found = {name: json.loads((info / f"{name}_info.json").read_text()) for name in names}
    found["dataloader"] = pickle.loads((info / "dataloader_info.pkl").read_bytes())
    found["recover"] = dcp_folder(folder / "default" / "recover_checkpoint")
    return found | {path.name: hf_folder(path) for path in sorted((folder / "default").glob("epoch*"))}


LOADERS = {
    loader.__name__: loader
    for loader in (
        torch_file, torch_script, safetensors_file, dcp_folder, dcp_hf_folder, dcp_rank_folder, hf_folder, weights_folder,
        verl_step, megatron_step, areal_trial,
    )
}  # fmt: skip


def answer(request):
    digest = hashlib.sha256()
    try:
        feed(digest, LOADERS[request["kind"]](Path(request["path"])))
    # Whatever a damaged file raises is an answer, an exit that it asks for too.
    except BaseException as error:
        # torch wraps what went wrong on each rank.
        for inner, _ in getattr(error, "failures", {}).values():
            error = inner
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {"digest": digest.hexdigest()}


def load_shards_without_group():
    """FSDP1's sharded tensors ask for the process group of their rank; here all ranks' files are read in one process."""
    from torch.distributed._shard.sharded_tensor import ShardedTensor

    def set_state(self, state):
        self._local_shards, self._metadata, _, self._sharding_spec, self._init_rrefs = state

    ShardedTensor.__setstate__ = set_state


def serve():
    import logging
    import os
    import warnings

    import torch

    # What is loaded may print; answers go where nothing else does.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    load_shards_without_group()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


class Oracle:
    """One such process, started again where a file has ended it."""

    def __init__(self):
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def read(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def load(self, kind, path):
        """The digest, or None and the reason."""
        if self.process is None:
            self.start()
        self.process.stdin.write(json.dumps({"kind": kind, "path": str(path)}) + "\n")
        self.process.stdin.flush()
        try:
            line = self.lines.get(timeout=LIMIT_SECONDS)
        except queue.Empty:
            line = None
        if not line:
            reason = "loading takes for ever" if line is None else "the process died"
            self.stop()
            return None, reason
        said = json.loads(line)
        return said.get("digest"), said.get("error", "")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


if __name__ == "__main__":
    serve()
