"""Compares what the supervisor knows of verl's releases with the configurations inside their wheels, composed by real Hydra.

    python verl_versions.py PATH-TO-verl_view WHEELS            (WHEELS: made by install_verl_versions.sh)

Three parts. Every default in the table holds in exactly the releases that it names. Every override of a relaunch is accepted by the release
that it is for, and arrives. Users' YAMLs and command lines count for the supervisor as they count for verl 0.9.1, key by key.
Exits with 1 on any difference.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from omegaconf_differential import tagged
from verl_versions_cases import CASES

warnings.simplefilter("ignore")
TREES = {
    "ppo": ("ppo_trainer", [], "verl.trainer.main_ppo"),
    "ppo_megatron": ("ppo_megatron_trainer", [], "verl.trainer.main_ppo --config-name=ppo_megatron_trainer"),
    "sft": ("sft_trainer_engine", [], "verl.trainer.sft_trainer"),
    "sft_megatron": ("sft_trainer_engine", ["engine=megatron", "optim=megatron"], "verl.trainer.sft_trainer engine=megatron optim=megatron"),
    "sft_old": ("sft_trainer", [], "verl.trainer.fsdp_sft_trainer"),
}
# Module: the folder of its configurations in the package, and the one that it starts from.
MODULES = {
    "verl.trainer.main_ppo": ("trainer", "ppo_trainer"),
    "verl.trainer.sft_trainer": ("trainer", "sft_trainer_engine"),
    "verl.trainer.sft_trainer_ray": ("trainer", "sft_trainer_engine"),
    "verl.trainer.fsdp_sft_trainer": ("trainer", "sft_trainer"),
    "verl.experimental.one_step_off_policy.main_ppo": ("experimental/one_step_off_policy", "one_step_off_ppo_trainer"),
    "verl.experimental.fully_async_policy.fully_async_main": ("experimental/fully_async_policy", "fully_async_ppo_trainer"),
}
ABSENT = "missing"

PARSED = {}
PARSE = yaml.load


def parse_once(stream, Loader):
    """The same few files are composed a hundred times, and reading YAML is most of that."""
    text = stream if isinstance(stream, str) else stream.read()
    known = (text, Loader.__name__)
    if known not in PARSED:
        PARSED[known] = PARSE(text, Loader=Loader)
    return copy.deepcopy(PARSED[known])


yaml.load = parse_once


def ask(binary, requests):
    """All answers of the binary, in order."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([binary], input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(answers) != len(requests):
        raise SystemExit(f"{binary} answered {len(answers)} of {len(requests)} requests: {done.stderr}")
    return answers


def composed(directory, name, changes):
    """What Hydra makes of it."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=directory, version_base=None):
        return compose(config_name=name, overrides=changes)


def raw(config, key):
    """A key's value as written."""
    node = config
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return ABSENT
        node = node[part]
    return tagged(node)


def resolved(config, key):
    """A key's value, evaluated."""
    value = OmegaConf.select(config, key, default=ABSENT)
    return ABSENT if value is ABSENT else tagged(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value)


def trees_of(wheels, version):
    """The trees that a release brings."""
    directory = os.path.join(wheels, version, "verl", "trainer", "config")
    return {tree: directory for tree, (name, _, _) in TREES.items() if os.path.exists(os.path.join(directory, f"{name}.yaml"))}


def defaults(binary, wheels, versions):
    """The table against the wheels: a key is there with this value, or it is not there."""
    answers = ask(binary, [{"tree": tree, "version": version} for version in [*versions, None] for tree in TREES])
    keys = {}
    for at, answer in enumerate(answers):
        keys[([*versions, None][at // len(TREES)], list(TREES)[at % len(TREES)])] = answer["keys"]
    compared, differ = 0, 0
    for version in versions:
        for tree, directory in trees_of(wheels, version).items():
            name, changes, _ = TREES[tree]
            theirs = OmegaConf.to_container(composed(directory, name, changes), resolve=False)
            every = {key for (_, other), known in keys.items() if other == tree for key in known}
            for key in sorted(every):
                ours, shared = keys[version, tree].get(key, ABSENT), keys[None, tree].get(key, ABSENT)
                wanted = raw(theirs, key)
                compared += 1
                if ours != wanted or shared not in (ABSENT, wanted):
                    differ += 1
                    print(f"DIFFERS {version} {tree} {key}\n  verl:       {wanted}\n  supervisor: {ours} (of an unknown release: {shared})")
    return compared, differ


def parted(argv, user_dir, package):
    """A command as (folder, name, overrides), as the module would read it."""
    at = argv.index("-m")
    folder, name = MODULES[argv[at + 1]]
    directory, changes = os.path.join(package, folder, "config"), []
    for word in argv[at + 2 :]:
        if word.startswith("--config-path="):
            directory = user_dir
        elif word.startswith("--config-name="):
            name = word.partition("=")[2]
        else:
            changes.append(word)
    if folder != "trainer":
        changes.append("hydra.searchpath=[pkg://verl.trainer.config]")  # its own is relative to the source tree
    return directory, name, changes


def arrived(argv, wanted, user_dir, package):
    """What does not arrive of a relaunch's overrides."""
    config = composed(*parted(argv, user_dir, package))
    out = [key for key, value in wanted.items() if resolved(config, key) != tagged(value)]
    return [f"{key} is {resolved(config, key)}" for key in out]


def expected(overrides):
    """What the overrides of a relaunch say must hold at the end."""
    wanted = {"trainer.resume_mode": "resume_path"}
    for text in overrides:
        key = text.lstrip("+").partition("=")[0]
        if key.endswith("load_contents"):
            wanted[key] = ["model", "optimizer", "extra"]
        elif key.endswith("async_save"):
            wanted[key] = False
    return wanted


def relaunches(binary, wheels, versions):
    """Every override of a relaunch is one that the release knows; those for an unknown release are known to all."""
    cases = []
    for version in versions:
        for tree in trees_of(wheels, version):
            if (version, tree) in (("0.4.0", "sft_old"), ("0.4.1", "sft_old")):
                continue  # cannot resume
            words = ["python3", "-m", *TREES[tree][2].split(), "trainer.save_freq=5", "trainer.default_local_dir=/r"]
            if tree == "ppo":
                words += ["trainer.max_actor_ckpt_to_keep=2", "trainer.max_critic_ckpt_to_keep=2"]
            if tree.startswith("sft"):
                words += ["trainer.max_ckpt_to_keep=2"]
            blind = ["++actor_rollout_ref.actor.megatron.use_mbridge=True", "++critic.megatron.use_mbridge=True"] if tree == "ppo_megatron" else []
            blind += ["++engine.use_mbridge=True"] if tree == "sft_megatron" else []
            blind += ["trainer.resume_mode=auto"] if tree == "sft_old" else []
            cases.append((version, tree, version, words))
            if version in (versions[0], "0.5.0", versions[-1]):
                cases.append((version, tree, None, words + blind))
    requests = [{"files": {}, "tree": tree, "version": told, "command": words} for _, tree, told, words in cases]
    differ = 0
    for (version, tree, told, _), answer in zip(cases, ask(binary, requests)):
        try:
            wrong = [answer["error"]] if "error" in answer else []
            if not wrong:
                relaunch = answer["relaunch"]
                wanted = {**expected(relaunch["overrides"]), "trainer.resume_from_path": "/r/global_step_5", "trainer.default_local_dir": "/r"}
                wrong = arrived(relaunch["argv"], wanted, None, os.path.join(wheels, version, "verl"))
        except Exception as error:  # every refusal of Hydra's counts alike
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            differ += 1
            print(f"REFUSED {version} {tree}, told {told}: {'; '.join(wrong)}")
    return len(cases), differ


def users(binary, wheels):
    """Users' own configurations: what counts for the supervisor counts for verl."""
    version = "0.9.1"
    package = os.path.join(wheels, version, "verl")
    # Search paths name the package.
    sys.path.insert(0, os.path.join(wheels, version))
    compared, differ = 0, 0
    requests = []
    for title, tree, files, command in CASES:
        request = {"files": files, "tree": tree, "version": version, "command": ["python3", "-m", *command]}
        requests.append({**request, "config": "my"} if files else request)
    for (title, _, files, _), answer in zip(CASES, ask(binary, requests)):
        try:
            if "error" in answer:
                raise ValueError(answer["error"])
            with tempfile.TemporaryDirectory() as folder:
                for name, text in files.items():
                    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                        file.write(text)
                relaunch = answer["relaunch"]
                first = list(relaunch["argv"])
                del first[len(first) - len(relaunch["overrides"]) :]
                config = composed(*parted(first, folder, package))
                wrong = []
                for key, ours in answer["keys"].items():
                    compared += 1
                    if resolved(config, key) != ours:
                        wrong.append(f"{key}: verl {resolved(config, key)}, supervisor {ours}")
                if files:  # commands alone are relaunched above
                    wrong += arrived(relaunch["argv"], expected(relaunch["overrides"]), folder, package)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            differ += 1
            print(f"DIFFERS {title}\n  " + "\n  ".join(wrong))
    return f"{len(CASES)} configurations, {compared} keys", differ


def main():
    binary, wheels = sys.argv[1], os.path.abspath(sys.argv[2])
    versions = sorted(name for name in os.listdir(wheels) if name[0].isdigit() and not name.endswith(".part"))
    failed = 0
    for title, part in (
        ("defaults", lambda: defaults(binary, wheels, versions)),
        ("relaunches", lambda: relaunches(binary, wheels, versions)),
        ("verl 0.9.1", lambda: users(binary, wheels)),
    ):
        start = time.monotonic()
        compared, differ = part()
        failed += differ
        print(f"{title}: {compared} compared, {differ} differ, {time.monotonic() - start:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
