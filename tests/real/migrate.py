"""`supervise migrate` against verl and megatron-core: steps that verl 0.7 wrote, converted, and read by what 0.9.1 reads them with.

usage: migrate.py PROGRAMS        (PROGRAMS: the folder with the built binaries; with the python of install.sh's environment)

For both ways of saving and each way of linking: verl 0.9.1's own detector refuses the step before and accepts it after, every
tensor and every object that megatron-core's dist_checkpointing reads is equal, and `supervise verify` says whole. Last: verl's own
script breaks an FSDP step, and supervise leaves it alone.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def supervise(programs, *args, code=0):
    done = subprocess.run([programs / "supervise", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def accepts(role):
    """Whether the loader of verl 0.9.1 takes the layout."""
    from verl.utils.checkpoint.megatron_checkpoint_manager import MegatronCheckpointManager

    try:
        MegatronCheckpointManager._raise_for_old_layout(str(role))
    except RuntimeError as refusal:
        assert "deprecated Megatron checkpoint layout" in str(refusal)
        return False
    return True


def everything(folder):
    """Tensors and other values of an archive, as megatron-core reads them."""
    from megatron.core import dist_checkpointing

    tensors = dist_checkpointing.load_plain_tensors(str(folder))
    common = dist_checkpointing.load_common_state_dict(str(folder))
    return tensors, sorted(map(str, common))


def equal(a, b):
    import torch

    assert a[1] == b[1] and a[0].keys() == b[0].keys() and a[0], "other keys"
    for name, value in a[0].items():
        other = b[0][name]
        same = torch.equal(value, other) if isinstance(value, torch.Tensor) else str(value) == str(other)
        assert same, f"{name} differs"
    return len(a[0])


def converted(programs, work, name, link):
    root = work / f"{name}_{link}"
    shutil.copytree(FIXTURES / name, root)
    role = root / "global_step_1" / "actor"
    assert not accepts(role), "the detector takes the old layout"
    before = everything(role / "dist_ckpt")
    assert "rename huggingface to model/huggingface" in supervise(programs, "migrate", "--checkpoint", role, "--dry-run")
    supervise(programs, "migrate", "--checkpoint-root", root, "--all-steps", "--link", link)
    assert accepts(role), "the detector refuses the new layout"
    parts = [part for part in ("model", "optimizer", "extra") if (role / part / "dist_ckpt").is_dir()]
    values = [equal(before, everything(role / part / "dist_ckpt")) for part in parts]
    assert "whole" in supervise(programs, "verify", root, "--depth", "full")
    assert "nothing to do" in supervise(programs, "migrate", "--checkpoint", role)
    print(f"{name}, {link}: {parts} read alike, {values[0]} values each")


def files(folder):
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".supervise" not in path.parts]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


def fsdp(programs, work):
    root = work / "fsdp"
    shutil.copytree(FIXTURES / "verl_ppo_fsdp2_w2", root)
    before = files(root)
    supervise(programs, "migrate", "--checkpoint", root / "global_step_1" / "actor", code=64)
    supervise(programs, "migrate", "--checkpoint-root", root, "--all-steps", code=64)
    assert files(root) == before, "an FSDP step was touched"
    script = [sys.executable, "-m", "scripts.migrate_megatron_checkpoint_layout", "--checkpoint-root", root, "--all-steps"]
    subprocess.run([str(word) for word in script], check=True, capture_output=True)
    assert files(root) != before and not (root / "global_step_1" / "actor" / "huggingface").exists()
    print("FSDP: verl's script moves its huggingface away, supervise leaves it alone")


def main():
    import os

    import torch.distributed as dist

    programs = Path(sys.argv[1]).resolve()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("PORT", "29655"), RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as work:
        for name in ("verl_megatron_v1_tp2", "verl_megatron_v1_hf"):
            for link in ("hard", "copy"):
                converted(programs, Path(work), name, link)
        fsdp(programs, Path(work))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
