"""Steps as each supported release of verl saves them, by the FSDPCheckpointManager in its own wheel: are they whole, and do they merge?

usage: python verl_releases.py PROGRAMS WHEELS            (WHEELS: made by install_verl_versions.sh)

Each release writes two steps of two ranks. Both have to be proven in full, the newest to be merged from the root and the older one by its
number, and every release's weights to be the same. Where a release writes no fsdp_config.json (0.4.0), a tracker that names the first step
leaves the second one unfinished.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def told(argv, code=0):
    """What a command of ours prints as JSON."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == code, (argv, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout) if done.stdout.startswith(("{", "[")) else done.stdout


def steps_of(supervise, root, code=0):
    """Step number to (verdict, codes of findings)."""
    view = told([supervise, "verify", root, "--depth", "full", "--json"], code)
    (path,) = view["paths"]
    return {step["step"]: (step["verdict"], {finding["code"] for finding in step["findings"]}) for step in path["steps"]}


def tensors(folder):
    """Tensors of a model, by name."""
    from safetensors.torch import load_file

    return load_file(str(Path(folder) / "model.safetensors"))


def one(supervise, wheels, version, strategy, work):
    """One release."""
    root = work / f"{version}-{strategy}"
    log = work / "log"
    env = {**os.environ, "LOG_DIR": str(log)}
    writer = [HERE / "gang.sh", "2", sys.executable, HERE / "verl_fsdp_old.py", root, work / "model", wheels / version, "--strategy", strategy]
    done = subprocess.run([str(word) for word in writer], env=env, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert done.returncode == 0, "\n".join(path.read_text()[-2000:] for path in sorted(log.iterdir()))
    marked = (root / "global_step_2/actor/fsdp_config.json").exists()
    assert marked == (version != "0.4.0"), version
    for step, (verdict, codes) in steps_of(supervise, root).items():
        assert verdict == "whole" and ("fsdp_config_not_written" in codes) != marked, (version, step, verdict, codes)
    told([supervise, "merge", root, "--target", work / f"{version}-{strategy}-2"])
    told([supervise, "merge", root, "--step", "1", "--target", work / f"{version}-{strategy}-1"])
    assert (work / f"{version}-{strategy}-2/config.json").exists(), version
    if not marked:
        tracker = root / "latest_checkpointed_iteration.txt"
        tracker.write_text("1")
        assert {step: verdict for step, (verdict, _) in steps_of(supervise, root, 20).items()} == {1: "whole", 2: "incomplete"}
        tracker.write_text("2")
        gone = root / "global_step_2/actor/optim_world_size_2_rank_1.pt"
        gone.unlink()
        assert steps_of(supervise, root, 20)[2][0] == "incomplete"
    return marked


def main():
    programs, wheels = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    supervise = programs / "supervise"
    work = Path(tempfile.mkdtemp(prefix="verl-releases-"))
    try:
        subprocess.run([sys.executable, HERE / "make_tiny_model.py", work / "model"], check=True, stdout=subprocess.DEVNULL)
        versions = sorted(name for name in os.listdir(wheels) if name[0].isdigit() and not name.endswith(".part"))
        same = {}
        for version in versions:
            for strategy in ("fsdp2", "fsdp"):
                marked = one(supervise, wheels, version, strategy, work)
                same.setdefault(strategy, []).append(tensors(work / f"{version}-{strategy}-2"))
                print(f"verl {version}, {strategy}: whole and merged, {'with' if marked else 'without'} fsdp_config.json", flush=True)
        # The same model, trained in the same way: every release's step holds the same weights.
        for strategy, models in same.items():
            for other in models[1:]:
                assert models[0].keys() == other.keys(), strategy
                assert all(bool((models[0][name] == other[name]).all()) for name in other), strategy
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
