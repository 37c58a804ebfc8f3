"""verl's own PPO trainer (main_ppo, its own local Ray, two FSDP2 workers, a critic) under `supervise`.

usage: ppo_recovery.py PROGRAMS [--work DIR]

Run it with the interpreter of the environment that install.sh makes. In step 2 a worker half-writes a shard and dies: the run
must come back at step 1 with the counts of both optimizers going on, and end with three steps that are whole. The weights are
not compared with an uninterrupted run's: which engine samples which answer depends on the order of requests, so that no two
PPO runs are equal. A second run keeps one actor and all critics: two actors stay, and if the newer one is damaged, a resume has the
other. Ends with `N passed, M failed`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import recovery
import standby

HERE = Path(__file__).resolve().parent
STEPS = 3
LIMIT = 1800  # seconds for one run: only a hang takes so long, on a machine however slow
ENV = dict(os.environ, PYTHONPATH=f"{HERE}", VERL_USE_EXTERNAL_MODULES="verl_ppo_cpu", VERL_PLATFORM="cpu", VERL_ENGINE_DEVICE="cuda",
           WITHOUT_MEGATRON="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")

YAML = """\
defaults:
  - ppo_trainer
  - _self_
hydra:
  searchpath: [pkg://verl.trainer.config]
algorithm: {{adv_estimator: gae}}
data:
  train_files: {model}/prompts.parquet
  val_files: {model}/prompts.parquet
  train_batch_size: 4
  max_prompt_length: 64
  max_response_length: 16
  dataloader_num_workers: 0
  seed: 1
actor_rollout_ref:
  model: &model
    path: {model}
    use_remove_padding: false
    enable_gradient_checkpointing: false
    override_config: {{attn_implementation: sdpa}}
  actor:
    strategy: fsdp2
    ppo_mini_batch_size: 4
    ppo_micro_batch_size_per_gpu: 2
    optim: {{lr: 1.0e-3}}
    use_torch_compile: false
    fsdp_config: {{use_torch_compile: false}}
  rollout:
    name: cpu
    n: 2
    tensor_model_parallel_size: 1
    log_prob_micro_batch_size_per_gpu: 4
    agent: {{num_workers: 1}}
critic:
  strategy: fsdp2
  model: *model
  ppo_micro_batch_size_per_gpu: 2
  fsdp: {{use_torch_compile: false}}
reward:
  num_workers: 1
  custom_reward_function: {{path: {here}/verl_ppo_cpu.py}}
transfer_queue: {{backend: {{SimpleStorage: {{num_data_storage_units: 2}}}}}}
ray_kwargs:
  ray_init: {{num_cpus: 8, num_gpus: 2, include_dashboard: false, object_store_memory: 200000000}}
trainer:
  device: cpu
  logger: [console]
  val_before_train: false
  test_freq: -1
  total_epochs: 10
  total_training_steps: {steps}
  save_freq: 1
  default_local_dir: {root}
  nnodes: 1
  n_gpus_per_node: 2
supervisor:
  backoff: {{initial: 200ms}}
  rehearse: false
"""


def call(argv, env, code=0):
    begun = time.monotonic()
    done = subprocess.run([str(a) for a in argv], env=env, timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(map(str, argv))[:200]} ended with {done.returncode}, not {code}:\n{done.stdout[-6000:]}")
    print(f"  {Path(argv[0]).name} {argv[1]}: {time.monotonic() - begun:.0f} s", flush=True)
    return done.stdout


def killed_in_a_save_and_brought_back(programs, work, model):
    folder = work / "killed"
    root = folder / "checkpoints"
    folder.mkdir(parents=True)
    # The driver's interpreter stands by, and the one from which those that Ray starts are forked.
    (folder / "ppo.yaml").write_text(YAML.format(model=model, root=root, here=HERE, steps=STEPS) + "  standby: auto\n")
    faults = [{"kind": "torn", "step": 2, "rank": 1, "file": "optim"}]
    env = dict(ENV, FAULTS=json.dumps(faults), FAULT_LEDGER=str(folder / "ledger"))
    # Files on PYTHONPATH are the trainer's own, and never imported ahead.
    del env["PYTHONPATH"]
    python = standby.installed_plugin(work / "venv") / "bin/python"
    with Forks() as forks:
        said = call([programs / "supervise", "run", folder / "ppo.yaml", "--", python, "-m", "verl.trainer.main_ppo",
                     f"hydra.run.dir={folder}/hydra"], env)
    assert len(list((folder / "ledger").iterdir())) == 1, f"the fault was not seen:\n{said}"
    assert "resume from global_step_1" in said, said
    assert "moved aside: global_step_2" in said, said
    status = json.loads(subprocess.run([programs / "supervise", "status", root, "--json"], capture_output=True, text=True, check=True).stdout)
    assert '"attempts": 2' in json.dumps(status), status
    how = ahead(root)[1:]
    # After one step it may not have begun to wait; but nothing may speak against it for good.
    print(f"  the relaunch and the interpreters that were to wait: {how}; forked: {sorted(forks.seen)}", flush=True)
    assert len(how) == 1 and (how == ["went"] or not how[0]["cold"].get("lasting")), how
    assert how != ["went"] or any("WorkerDict" in name for name in forks.seen), "Ray's workers were started as ever"
    said = "".join(p.read_text(errors="replace") for p in sorted((root / ".supervise/attempts/0002").rglob("*")) if p.is_file())
    assert "setting global step to 1" in said, "the trainer did not say that it resumed at step 1"
    for step in range(1, STEPS + 1):
        call([programs / "supervise", "verify", root / f"global_step_{step}", "--depth", "full"], ENV)
        for role in ("actor", "critic"):
            assert optimizer_step(root, step, role) == step * optimizer_step(root, 1, role), f"{role} of step {step} did not go on"


def one_actor_is_kept_and_all_critics(programs, work, model):
    folder = work / "kept"
    root = folder / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "ppo.yaml").write_text(YAML.format(model=model, root=root, here=HERE, steps=4))
    command = [programs / "supervise", "run", folder / "ppo.yaml", "--set", "trainer.max_actor_ckpt_to_keep=1", "--",
               sys.executable, "-m", "verl.trainer.main_ppo", f"hydra.run.dir={folder}/hydra"]
    said = call(command, ENV)
    assert "max_actor_ckpt_to_keep is raised from 1 to 3" in said, said
    holds = {role: sorted(int(p.parent.name.rpartition("_")[2]) for p in root.glob(f"global_step_*/{role}")) for role in ("actor", "critic")}
    assert holds == {"actor": [3, 4], "critic": [1, 2, 3, 4]}, holds
    shard = root / "global_step_4/actor/model_world_size_2_rank_1.pt"
    shard.write_bytes(shard.read_bytes()[:-1000])
    command[1:2] = ["plan"]
    command[3:3] = ["--set", "trainer.total_training_steps=5"]
    said = call(command, ENV)
    assert "resume from global_step_3" in said, said


class Forks(threading.Thread):
    """Kinds of Ray's workers that are forks of an interpreter which was started to be forked, seen while it runs."""

    def __init__(self):
        super().__init__()
        self.seen, self.over = set(), threading.Event()

    def run(self):
        while not self.over.wait(0.3):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    line = (process / "cmdline").read_bytes()
                    if line.startswith(b"ray::"):
                        parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                        # The raylet's own command line names that file as well, further on.
                        if b"default_worker.py" in b"".join(Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")[1:2]):
                            self.seen.add(line.split(b"\0")[0].split(b".")[0].decode().strip())
                except OSError:
                    pass

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def ahead(root):
    """Of each launch how it came to its interpreter, from the journal."""
    lines = (line for file in sorted((root / ".supervise/journal").glob("*.jsonl")) for line in file.read_text().splitlines())
    return [launch.get("ahead") for launch in map(standby.launched, lines) if launch]


def optimizer_step(root, step, role):
    """How often the optimizer has stepped, as its state says; the same for every parameter."""
    import torch

    state = torch.load(root / f"global_step_{step}" / role / "optim_world_size_2_rank_0.pt", weights_only=False)["state"]
    counts = {int(value["step"]) for value in state.values()}
    assert len(counts) == 1, counts
    return counts.pop()


def main(*cases):
    """Makes a tiny model in a folder, calls each of CASES with the programs, the folder and the model, and says how it went."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only", choices=[case.__name__ for case in cases])
    args = parser.parse_args()
    # Ray's sockets stand below the temporary folder, and their paths may only have 107 bytes.
    work = args.work or Path(tempfile.mkdtemp(prefix="sv-ppo-"))
    work = work.resolve()
    model = work / "model"
    passed = 0
    try:
        call([sys.executable, HERE / "make_tiny_model.py", model], ENV)
        for case in cases:
            if args.only in (None, case.__name__):
                case(args.programs.resolve(), work, model)
                passed += 1
    except Exception:
        print(f"FAILED\n{traceback.format_exc()}\n{passed} passed, 1 failed")
        return 1
    if not args.work:
        shutil.rmtree(work)
    print(f"{passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main(killed_in_a_save_and_brought_back, *([one_actor_is_kept_and_all_critics] if recovery.FULL else [])))
