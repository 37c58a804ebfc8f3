"""One byte of a state file without a checksum is changed, and `supervise verify` is asked about the file alone.

usage: state_damage.py PROGRAMS OUT [--each 1000] [--seed 1]     (OUT as make_checkpoints.py left it)

A change counts as missed where the file is called whole and loads with another content than it had; where it loads with the
same content, nothing was damaged. Tells the rates; ends with 1 where a file as it was written is not whole.
"""

import argparse
import json
import pickle
import random
import sys
import tempfile
from pathlib import Path

from verify_view import looked_at

ROLE = "verl_fsdp2/global_step_2/actor"
TRIAL = "areal/checkpoints/trainer/real/t0"
FILES = {
    "dataloader_info.pkl": f"{TRIAL}/recover_info/dataloader_info.pkl",
    "step_info.json": f"{TRIAL}/recover_info/step_info.json",
    "checkpoint_info.json": f"{TRIAL}/recover_info/checkpoint_info.json",
    "fsdp_config.json": f"{ROLE}/fsdp_config.json",
    "config.json": f"{ROLE}/huggingface/config.json",
    "generation_config.json": f"{ROLE}/huggingface/generation_config.json",
    "tokenizer_config.json": f"{ROLE}/huggingface/tokenizer_config.json",
    "tokenizer.json": f"{ROLE}/huggingface/tokenizer.json",
    "transformer_config.json": "verl_megatron/tp2/global_step_2/actor/transformer_config.json",
    "ckpt_contents.json": "verl_megatron/tp2/global_step_2/actor/ckpt_contents.json",
    ".metadata": f"{TRIAL}/default/recover_checkpoint/.metadata",
}


class Plain(pickle.Unpickler):
    """Plain data only; anything else is a name with its arguments."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def load(name, data):
    """What a file says, as text; None where it does not load."""
    try:
        if name.endswith(".pkl"):
            import io

            return repr(Plain(io.BytesIO(data)).load())
        if name == ".metadata":
            return repr(pickle.loads(data))
        return repr(json.loads(data.decode()))
    except Exception:
        return None


def rate(program, name, data, args):
    rng, changed = random.Random(f"{args.seed}:{name}"), []
    while len(changed) < args.each:
        at, value = rng.randrange(len(data)), rng.randrange(256)
        value = data[at] ^ 1 << value % 8 if rng.random() < 0.5 else value
        if value != data[at]:
            changed.append(data[:at] + bytes([value]) + data[at + 1 :])
    with tempfile.TemporaryDirectory(prefix="damage-") as work:
        paths = []
        for n, content in enumerate([data, *changed]):
            paths.append(Path(work) / str(n) / name)
            paths[-1].parent.mkdir()
            paths[-1].write_bytes(content)
        seen = [view["verdict"] for view in looked_at(program, paths)]
    was = load(name, data)
    loads = [load(name, content) for content in changed]
    caught = sum(verdict != "whole" for verdict in seen[1:])
    same = sum(verdict == "whole" and now == was for verdict, now in zip(seen[1:], loads))
    needless = sum(verdict != "whole" and now == was for verdict, now in zip(seen[1:], loads))
    missed = [c for c, verdict, now in zip(changed, seen[1:], loads) if verdict == "whole" and now != was]
    broken = sum(load(name, content) is None for content in missed)
    print(
        f"{name:<24} {len(changed)} changes: {caught / len(changed):6.1%} caught, {same / len(changed):5.1%} change nothing, "
        f"{len(missed) / len(changed):5.1%} missed ({broken} of these do not load), {needless} caught that change nothing"
    )
    if args.verbose:
        for content in missed[: args.verbose]:
            at = next(i for i, (a, b) in enumerate(zip(content, data)) if a != b)
            print(f"    at {at}: {data[max(0, at - 20) : at + 12]!r} -> {content[max(0, at - 20) : at + 12]!r}")
    return seen[0] == "whole"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=1000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--verbose", type=int, default=0)
    args = parser.parse_args()
    program, wrong = args.programs.resolve() / "supervise", []
    for name, path in FILES.items():
        if not rate(program, name, (args.out / path).read_bytes(), args):
            wrong.append(f"{name} as it was written is not whole")
    for words in wrong:
        print(f"VIOLATION {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
