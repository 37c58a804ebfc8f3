"""Cuts the seeds of the corpus from the files that real trainers wrote.

python seeds.py (from anywhere). Seeds are small: libFuzzer finds the rest, and what it found interesting stands beside them
in corpus/ as found_*, which this script leaves alone.
"""

import json
import pathlib
import re
import struct
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"
FIXTURES = ROOT / "tests" / "fixtures"
FORMATS = ROOT / "supervisor" / "checkpoint" / "tests"


def put(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def data_pkl(path):
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith("/data.pkl")))


def torch_files():
    files = sorted((FORMATS / "torch-2.11").glob("*.pt")) + sorted((FORMATS / "torch-2.6").glob("*.pt"))
    for path in files:
        if path.stat().st_size < 2600:
            put("torch_zip", path.stem, path.read_bytes())
        if zipfile.is_zipfile(path) and path.stem not in ("failed", "no_checksums"):
            put("torch_pickle", path.stem, data_pkl(path))
            put("pickle", path.stem, data_pkl(path))
    put("torch_zip", "verl_data", (FIXTURES / "verl_ppo_fsdp1_w2/global_step_1/data.pt").read_bytes())
    for path in sorted(FIXTURES.rglob("optimizer/dist_ckpt/common.pt"))[:2]:
        put("torch_pickle", "common_" + path.parts[len(FIXTURES.parts)], data_pkl(path))


def evasions():
    text = (FORMATS / "formats/evasions.rs").read_text() + (FORMATS / "formats/malice.rs").read_text()
    pickles = [match.encode().decode("unicode_escape").encode("latin-1") for match in re.findall(r'b"((?:[^"\\]|\\.)*)"', text)]
    for number, data in enumerate([p for p in pickles if len(p) > 8][::4][:28]):
        put("pickle", f"evasion_{number:02}", data)


def safetensors():
    def file(header, data):
        header = json.dumps(header).encode()
        header += b" " * (-len(header) % 8)
        return struct.pack("<Q", len(header)) + header + data

    two = {
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]},
        "__metadata__": {"format": "pt"},
    }
    odd = {"x": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}, "none": {"dtype": "U8", "shape": [0, 3], "data_offsets": [8, 8]}}
    index = {"metadata": {"total_size": 24}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    put("safetensors", "two", file(two, bytes(range(24))))
    put("safetensors", "odd", file(odd, bytes(8)))
    put("safetensors", "empty", file({}, b""))
    put("safetensors", "index", json.dumps(index).encode())


def json_files():
    actor = FIXTURES / "verl_ppo_fsdp1_w2/global_step_1/actor"
    put("json", "fsdp_config", (actor / "fsdp_config.json").read_bytes())
    for name in "config.json", "generation_config.json", "chat_template.jinja":
        put("json", name.split(".")[0], (actor / "huggingface" / name).read_bytes()[:3000])
    for name in "ckpt_contents.json", "metadata.json":
        for path in sorted(FIXTURES.rglob(name))[:2]:
            put("json", path.stem + "_" + path.parts[len(FIXTURES.parts)], path.read_bytes()[:5000])


def distributed():
    for path in sorted(FIXTURES.rglob(".metadata"), key=lambda p: p.stat().st_size)[:9:2]:
        name, told = path.parts[len(FIXTURES.parts)], path.read_bytes()
        if len(told) < 12000:
            put("dcp_metadata", name, told)
        data = path.parent / "__0_0.distcp"
        if data.exists() and len(told) < 9000:
            put("distcp", name, struct.pack("<H", len(told)) + told + data.read_bytes()[:6000])
    put("distcp", "nothing", b"\0\0")
    put("distcp", "no_description", b"\x02\0}.abc")
    put("dcp_metadata", "dict", b"\x80\x02}.")


def deepspeed():
    """States as DeepSpeed saves them, of parameters that fit the storages which the target puts beside them: 16 numbers each."""
    import io
    from collections import OrderedDict

    import torch

    def values(state):
        out = io.BytesIO()
        torch.save(state, out)
        with zipfile.ZipFile(out) as archive:
            return archive.read(next(n for n in archive.namelist() if n.endswith("/data.pkl")))

    shapes = OrderedDict(a=torch.Size([3, 4]), b=torch.Size([2, 2]))
    flat, other = torch.zeros(16), {"state": {0: {"exp_avg": torch.zeros(16)}}}
    for name, stage, count, key, model in [
        ("two", 2, [1], "single_partition_of_fp32_groups", {"param_shapes": [shapes], "shared_params": {"c": "a"}, "module": {}}),
        ("three", 3, 1, "fp32_flat_groups", {"param_shapes": [shapes], "shared_params": {}, "module": {}}),
        ("frozen", 1, 1, "single_partition_of_fp32_groups", {
            "param_shapes": [OrderedDict(b=torch.Size([2, 8]))], "shared_params": {}, "buffer_names": ["d"], "module": {"d": torch.zeros(16)},
            "frozen_param_shapes": {"a": torch.Size([4, 4])}, "frozen_param_fragments": {"a": torch.nn.Parameter(torch.zeros(4, 4))}}),
        ("none", 0, 1, "", {"param_shapes": None, "shared_params": None, "module": {"a": torch.zeros(4, 4), "b": torch.zeros(16)}}),
    ]:  # fmt: skip
        first = values(model)
        optimizer = {"zero_stage": stage, "partition_count": count, "base_optimizer_state": other, key: [flat], "param_alignment_paddings": [[0] * len(g) for g in model["param_shapes"] or ()]}
        put("deepspeed", name, struct.pack("<H", len(first)) + first + values({"optimizer_state_dict": optimizer}))


def texts():
    for path in sorted((ROOT / "config/tests/corpus").glob("*.yaml")) + sorted((ROOT / "examples/configs").glob("*.yaml")):
        put("yaml", path.stem, path.read_bytes()[:4000])
    put("yaml", "anchors", b"a: &x {b: 1, c: [1, 2]}\nd: *x\n<<: *x\ne: !!int '3'\nf: ${a.b}\ng: ${oc.env:HOME,none}\nh: ???\n")
    put("compose", "plain", b"defaults:\n  - _self_\n  - db: mysql\n  - override db: other\na: ${db.name}\n=== db/mysql\nname: m\n=== db/other\n# @package _global_\nname: o\n")
    put("compose", "nested", b"defaults:\n  - base\n  - optional db@x.y: [one, two]\n  - own/thing\n  - _self_\nb: 2\n=== base\ndefaults: [db: one]\na: 1\n=== db/one\nn: 1\n=== db/two\nn: 2\n")
    put("compose", "chosen", b"defaults:\n  - db: ${kind}\n  - ~\nkind: one\nhydra: {searchpath: [x]}\n=== db/one\nn: ${kind}\n")
    overrides = ["a.b=1", "+x=[1,'two',{c: 3.5e2}]", "++k@p.q='it\\'s'", "~gone", "db=mysql", "a='${b.c}'", "t=choice(a,b)", "e=",
                 "f={a:1,b:[null,true]}", 'g="dq \\" x"', "n=-0x1F", "h=1_000", "s=a b c", "w=~x", "p=/a/b:c"]
    for number, text in enumerate(overrides):
        put("hydra", f"override_{number:02}", text.encode())


if __name__ == "__main__":
    for part in torch_files, evasions, safetensors, json_files, distributed, deepspeed, texts:
        part()
