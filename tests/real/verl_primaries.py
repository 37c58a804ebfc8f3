"""Every primary YAML of every supported release of verl: does `supervise plan` take it, in place and copied to another folder under
another name, and does what it would launch compose to what it read, with that release's own configurations?

usage: python verl_primaries.py SUPERVISE WHEELS            (WHEELS: made by install_verl_versions.sh)

Files of verl's other trainers (fully asynchronous, one-step-off) are refused without a command, and taken with the command that the hint
names. What is not known (torchtitan, veomni) is refused by its key. The examples for verl on FSDP are planned first, and what they would launch
is composed and checked by the installed verl.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

warnings.simplefilter("ignore")
HERE = Path(__file__).resolve().parent
ENTRIES = {"ppo": "verl.trainer.main_ppo", "sft_trainer": "verl.trainer.fsdp_sft_trainer", "sft_trainer_engine": "verl.trainer.sft_trainer"}
OTHERS = {"fully_async": "verl.experimental.fully_async_policy.fully_async_main", "one_step_off": "verl.experimental.one_step_off_policy.main_ppo"}
UNKNOWN = ("torchtitan", "veomni")
SETS = {"trainer.save_freq": 5, "trainer.default_local_dir": "/r"}


def primaries(release):
    """Files that a training of this release starts from."""
    folder = release / "verl"
    ppo = [*folder.glob("trainer/config/*ppo*trainer.yaml"), *folder.glob("trainer/config/sft_trainer*.yaml")]
    return sorted([*ppo, *folder.glob("experimental/fully_async_policy/config/*.yaml"), *folder.glob("experimental/one_step_off_policy/config/*.yaml")])


def planned(supervise, release, file, command, code):
    """The plan of a file."""
    sets = [word for key, value in SETS.items() for word in ("--set", f"{key}={value}")]
    argv = [str(supervise), "plan", str(file), *sets, "--json", *(["--", *command] if command else [])]
    env = {**os.environ, "PYTHONPATH": str(release), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == code, (release.name, str(file), done.returncode, done.stderr[-800:])
    return json.loads(done.stdout or done.stderr)


def composed(release, argv):
    """What the launch would compose, by real Hydra with this release's configurations."""
    words = argv[argv.index("-m") + 2 :]
    options = dict(word.split("=", 1) for word in words if word.startswith("--config-"))
    changes = [word for word in words if not word.startswith("--")]
    # Hydra's own Python cannot unload a package: the release's folder stands for `pkg://verl.trainer.config`.
    place = f"file://{release}/verl/trainer/config"
    changes = [word.replace("pkg://verl.trainer.config", place) for word in changes]
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=options["--config-path"], version_base=None):
        return compose(config_name=options["--config-name"], overrides=changes)


def check(release, view, module):
    """The plan launches this module, and its words compose."""
    argv = view["argv"]
    assert argv[argv.index("-m") + 1] == module, (release.name, argv)
    config = composed(release, argv)
    for key, value in SETS.items():
        assert OmegaConf.select(config, key) == value, (release.name, key, OmegaConf.select(config, key))
    assert OmegaConf.select(config, "trainer.resume_mode", default="disable") == "disable", release.name
    assert OmegaConf.select(config, "trainer.project_name"), (release.name, "verl's own values are not beneath")


def one(supervise, release, file, work):
    """One file of one release, in place and as a copy alone."""
    other = next((module for name, module in OTHERS.items() if file.name.startswith(name)), None)
    copy = work / f"{release.name}-{file.stem}" / "my.yaml"
    copy.parent.mkdir()
    shutil.copy(file, copy)
    for path in (file, copy):
        if any(name in file.name for name in UNKNOWN):
            error = planned(supervise, release, path, [], 78)["error"]
            assert any("is not known" in line for line in [error["message"], *error["lines"]]), error
            continue
        if other:
            error = planned(supervise, release, path, [], 78)["error"]
            hint = f"-- python3 -m {other}"
            assert any(line.endswith(hint) for line in error["hints"]), error
            # Not every wheel holds the code of the trainers whose configurations it holds.
            there = (release / f"{other.replace('.', '/')}.py").exists()
            view = planned(supervise, release, path, hint.split()[1:], 0 if there else 78)
            if there:
                check(release, view, other)
            else:
                assert f"has no module {other}" in view["error"]["message"], view
            continue
        module = ENTRIES["ppo" if "ppo" in file.stem else file.stem]
        cannot = release.name in ("0.4.0", "0.4.1") and file.stem == "sft_trainer"
        view = planned(supervise, release, path, [], 78 if cannot else 0)
        if cannot:
            assert "cannot resume" in view["error"]["message"], view
        else:
            check(release, view, module)


def example(supervise, file, model):
    """A configuration of ours as verl itself takes it: the installed release composes what would be launched, and its own check accepts it."""
    from verl.utils.config import validate_config

    places = {"trainer.default_local_dir": "/r", "actor_rollout_ref.model.path": model, "critic.model.path": model}
    argv = [str(supervise), "plan", str(file), "--json", *(word for key, value in places.items() for word in ("--set", f"{key}={value}"))]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, (file.name, done.stderr[-800:])
    argv = json.loads(done.stdout)["argv"]
    assert argv[: argv.index("-m") + 2][1:] == ["-m", "verl.trainer.main_ppo"], argv
    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(config_name="ppo_trainer", overrides=argv[argv.index("-m") + 2 :])
    said = OmegaConf.load(file)
    for key in ("trainer.save_freq", "algorithm.adv_estimator", "actor_rollout_ref.actor.strategy", "actor_rollout_ref.rollout.name"):
        assert OmegaConf.select(config, key) == OmegaConf.select(said, key), key
    validate_config(config, use_reference_policy=config.actor_rollout_ref.actor.use_kl_loss, use_critic=config.algorithm.adv_estimator == "gae")


def main():
    supervise, wheels = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    versions = sorted(name for name in os.listdir(wheels) if name[0].isdigit() and not name.endswith(".part"))
    work = Path(tempfile.mkdtemp(prefix="verl-primaries-"))
    failed = 0
    try:
        subprocess.run([sys.executable, HERE / "make_tiny_model.py", work / "model"], check=True, stdout=subprocess.DEVNULL)
        for file in sorted((HERE / "../../examples/configs").glob("verl_fsdp_*.yaml")):
            example(supervise, file, work / "model")
            print(f"{file.name}: composed and accepted by the installed verl", flush=True)
        for version in versions:
            release = wheels / version
            files = primaries(release)
            for file in files:
                try:
                    one(supervise, release, file, work)
                except Exception as error:  # each is told, and the next is looked at
                    failed += 1
                    print(f"REFUSED {version} {file.relative_to(release)}: {type(error).__name__}: {error}")
            print(f"verl {version}: {len(files)} files, in place and copied", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
