"""verl's own SFT trainer and checkpoint manager under `supervise`: killed, torn, damaged, and brought back.

usage: recovery.py PROGRAMS [--work DIR] [--only NAME]

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of the
environment that install.sh makes. Each case compares the tensors of both ranks with an uninterrupted run's
(model, optimizer, schedule), bit for bit. Ends with `N passed, M failed`.
"""

import argparse
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FULL = bool(os.environ.get("FULL"))  # all cases, as before a release
STEPS = 8
LIMIT = 1800  # seconds for one run: only a hang takes so long, on a machine however slow
ENV = dict(os.environ, PYTHONPATH=f"{HERE}", VERL_USE_EXTERNAL_MODULES="verl_cpu_platform", VERL_PLATFORM="cpu",
           VERL_ENGINE_DEVICE="cuda", WITHOUT_MEGATRON="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
           RAY_worker_niceness="0")  # else Ray's workers run after everything else on the machine

YAML = """\
data:
  train_files: {model}/train.parquet
  train_batch_size: 16
  micro_batch_size_per_gpu: 4
  use_dynamic_bsz: false
  max_length: 128
  truncation: right
  num_workers: 0
  ignore_input_ids_mismatch: true
model:
  path: {model}
  use_remove_padding: false
  enable_gradient_checkpointing: false
  override_config: {{attn_implementation: sdpa}}
engine: {{strategy: fsdp2, use_torch_compile: false, dtype: float32}}
trainer:
  device: cpu
  logger: [console]
  total_epochs: 1
  save_freq: 1
  test_freq: -1
  default_local_dir: {root}
  project_name: real
  experiment_name: sft
  nnodes: 1
  n_gpus_per_node: 2
supervisor:
  backoff: {{initial: 200ms}}
  # rehearsal.py shows what it finds; here it would only take its time.
  rehearse: false
"""


class Bench:
    """One working folder: the tiny model, the uninterrupted run, the programs."""

    def __init__(self, programs, work):
        self.programs, self.work = programs, work
        self.model = work / "model"
        self.call([sys.executable, HERE / "make_tiny_model.py", self.model])

    @functools.cached_property
    def straight(self):
        """Three epochs in one go, what was printed beside them (`straight.log`): made once for all scripts that run.sh starts."""
        place = Path(os.environ.get("SHARED", self.work)) / "straight"
        with open(f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                draft = Path(f"{place}.draft")
                shutil.rmtree(draft, ignore_errors=True)
                done = self.call([HERE / "sft.sh", Path(sys.executable).parent.parent, self.model, draft, "trainer.total_epochs=3"])
                Path(f"{place}.log").write_text(done.stdout)
                draft.rename(place)
        return place

    def call(self, argv, code=0, env=None, cwd=None):
        done = subprocess.run([str(a) for a in argv], env=env or ENV, cwd=cwd or self.work, timeout=LIMIT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if code is not None and done.returncode != code:
            raise AssertionError(f"{' '.join(map(str, argv))[:200]} ended with {done.returncode}, not {code}:\n{done.stdout[-6000:]}")
        return done

    def case(self, name, steps=0):
        """A folder with a YAML, and the first `steps` steps of the uninterrupted run in its root."""
        folder = self.work / name
        root = folder / "checkpoints"
        root.mkdir(parents=True)
        for n in range(1, steps + 1):
            shutil.copytree(self.straight / f"global_step_{n}", root / f"global_step_{n}")
        if steps:
            (root / "latest_checkpointed_iteration.txt").write_text(str(steps))
        (folder / "sft.yaml").write_text(YAML.format(model=self.model, root=root))
        return folder, root

    def supervise(self, *argv, code=0, env=None):
        return self.call([self.programs / "supervise", *argv], code=code, env=env)

    def run(self, folder, *more, faults=None, command=None, code=0, env=None):
        env = dict(ENV, **(env or {}), FAULTS=json.dumps(faults or []), FAULT_LEDGER=str(folder / "ledger"))
        command = command or [sys.executable, "-m", "verl.trainer.sft_trainer"]
        argv = ["run", folder / "sft.yaml", *more, "--", *command, f"hydra.run.dir={folder}/hydra"]
        done = self.supervise(*argv, code=code, env=env)
        if faults and code == 0:
            fired = len(list((folder / "ledger").iterdir()))
            assert fired == len(faults), f"{fired} of {len(faults)} faults were seen:\n{done.stdout}"
        return done

    def status(self, root):
        return json.loads(self.supervise("status", root, "--json").stdout)

    def same_as_straight(self, root):
        self.call([sys.executable, HERE / "compare_pt.py", self.straight / f"global_step_{STEPS}", root / f"global_step_{STEPS}"])

    def verdict(self, path, *more):
        return self.supervise("verify", path, "-v", *more, code=None)


def attempts(status):
    """However the view is nested, it says how many attempts were made."""
    if isinstance(status, dict):
        if isinstance(status.get("attempts"), int):
            return status["attempts"]
        return max((attempts(v) for v in status.values()), default=0)
    if isinstance(status, list):
        return max((attempts(v) for v in status), default=0)
    return 0


def places_named(texts, rank, place):
    """The ranks of a hang, as `explain` names them: each says what is true of it, and with FULL=1 the guilty one is among them.

    On a starved machine a rank may not answer in the time that it has.
    """
    assert texts, "no rank is named"
    guilty = [text for text in texts if text.startswith(f"worker {rank} ")]
    assert all(f"stands in {place} (" in text and "fault_hooks.py:" in text for text in guilty), texts
    assert guilty or not FULL, texts
    others = [text for text in texts if text not in guilty]
    assert not any(f"stands in {place} (" in text for text in others), texts


def nothing_left(folder):
    """No process whose command line names this case's folder."""
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and int(pid) != os.getpid():
            left.append(f"{pid}: {line[:120]}")
    assert not left, f"left behind: {left}"


def killed_in_mid_step_and_in_mid_save(b):
    folder, root = b.case("killed")
    faults = [{"kind": "kill", "step": 3, "rank": 1}, {"kind": "torn", "step": 5, "rank": 0}]
    done = b.run(folder, faults=faults)
    assert attempts(b.status(root)) == 3, done.stdout
    assert "moved aside: global_step_5" in done.stdout, done.stdout
    for first in (3, 5):
        assert f"the first training record is step {first}: the trainer resumed from {first - 1}" in done.stdout, done.stdout
    # Step 5 was printed before its save was torn.
    assert "equivalence: equal: the step after 4, trained twice" in done.stdout, done.stdout
    b.same_as_straight(root)
    nothing_left(folder)


def killed_with_adapters_of_lora(b):
    """The base model and the adapters on it: the resumed run ends with the same bytes as one in one go."""
    lora = [word for change in ("model.lora_rank=4", "model.lora_alpha=8", "model.target_modules=all-linear", "trainer.total_training_steps=4")
            for word in ("--set", change)]
    whole, straight = b.case("lora-straight")
    b.run(whole, *lora)
    # Adapters begin at random, so the other run begins with two steps of the first.
    folder, root = b.case("lora")
    for n in (1, 2):
        shutil.copytree(straight / f"global_step_{n}", root / f"global_step_{n}")
    (root / "latest_checkpointed_iteration.txt").write_text("2")
    done = b.run(folder, *lora, faults=[{"kind": "kill", "step": 4, "rank": 1}])
    assert attempts(b.status(root)) == 2, done.stdout
    for first in (3, 4):
        assert f"the first training record is step {first}: the trainer resumed from {first - 1}" in done.stdout, done.stdout
    assert b.verdict(root / "global_step_4", "--depth", "full").returncode == 0
    b.call([sys.executable, HERE / "compare_pt.py", straight / "global_step_4", root / "global_step_4"])
    adapters = json.loads((root / "global_step_4/lora_train_meta.json").read_text())
    assert adapters["r"] == 4, adapters
    nothing_left(folder)


def flipped_byte_torn_shard_deleted_shard(b):
    """Three steps damaged, each in its own way, and a tracker that names none; what is finished then is not launched again."""
    folder, root = b.case("damaged", steps=7)
    flipped = root / "global_step_7/optim_world_size_2_rank_0.pt"
    before = flipped.stat()
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 0x10
    flipped.write_bytes(data)
    os.utime(flipped, ns=(before.st_atime_ns, before.st_mtime_ns))
    (root / "global_step_6/optim_world_size_2_rank_1.pt").unlink()
    torn = root / "global_step_5/model_world_size_2_rank_0.pt"
    os.truncate(torn, torn.stat().st_size // 2)
    for tracker in ("", "999"):
        (root / "latest_checkpointed_iteration.txt").write_text(tracker)
        plan = b.supervise("plan", folder / "sft.yaml", "--", sys.executable, "-m", "verl.trainer.sft_trainer")
        assert "resume from global_step_4" in plan.stdout, plan.stdout
    done = b.run(folder)
    assert "resume from global_step_4" in done.stdout, done.stdout
    assert "crc_mismatch" in done.stdout, done.stdout
    b.same_as_straight(root)
    # How many steps there are is not in the YAML (epochs times the data's length): the trainer has said it once.
    once = attempts(b.status(root))
    done = b.run(folder)
    assert attempts(b.status(root)) == once == 1, done.stdout
    assert "finished" in done.stdout, done.stdout


def stale_later_steps(b):
    folder, root = b.case("stale", steps=6)
    (root / "latest_checkpointed_iteration.txt").write_text("2")
    asked = b.run(folder, code=4)
    assert "--from" in asked.stdout, asked.stdout
    assert sorted(p.name for p in root.glob("global_step_*")) == [f"global_step_{n}" for n in range(1, 7)], "something was moved"
    done = b.run(folder, "--again", "--from", "2")
    assert "resume from global_step_2" in done.stdout, done.stdout
    aside = [p.name for p in (root / ".supervise/aside").rglob("global_step_6*")]
    assert aside, "step 6 did not go aside"
    b.same_as_straight(root)
    # A person sends the finished run back: verl goes on from there, though its newest step is another one.
    b.supervise("rollback", root, "--to", "6")
    done = b.run(folder)
    assert "the first training record is step 7: the trainer resumed from 6" in done.stdout, done.stdout
    b.same_as_straight(root)


def under_torchrun(b):
    folder, root = b.case("torchrun")
    torchrun = [Path(sys.executable).parent / "torchrun", "--nproc_per_node=2", "--master_addr=127.0.0.1", "--master_port=29713",
                "--max-restarts=3", "-m", "verl.trainer.sft_trainer"]
    done = b.run(folder, faults=[{"kind": "kill", "step": 3, "rank": 1}], command=torchrun)
    assert attempts(b.status(root)) == 2, done.stdout
    launch = json.loads((root / ".supervise/attempts/0001/launch.json").read_text())
    restarts = [a for a in launch["argv"] if "restarts" in a]
    assert restarts and all(a.endswith("=0") for a in restarts), launch["argv"]
    b.same_as_straight(root)
    nothing_left(folder)


def a_script_of_the_users(b):
    """The example script itself, with torchrun and overrides in it: killed in mid-step, and brought back by our words in its call."""
    folder, root = b.case("script")
    shutil.copy(b.model / "train.parquet", folder / "train.parquet")
    script = ROOT / "examples/scripts/run_sft.sh"
    more = [f"hydra.run.dir={folder}/hydra/${{now:%H%M%S}}", "trainer.device=cpu", "engine.use_torch_compile=false", "engine.dtype=float32",
            "model.use_remove_padding=false", "model.enable_gradient_checkpointing=false", "+model.override_config.attn_implementation=sdpa",
            "data.use_dynamic_bsz=false", "data.num_workers=0", "data.ignore_input_ids_mismatch=true", "trainer.test_freq=-1",
            "trainer.n_gpus_per_node=2"]
    env = dict(ENV, PATH=f"{Path(sys.executable).parent}:{ENV['PATH']}", MODEL=str(b.model), DATA=str(folder), ROOT=str(root), GPUS="2",
               BATCH="16", LENGTH="128", SAVE_FREQ="1", EPOCHS="1", FAULTS=json.dumps([{"kind": "kill", "step": 3, "rank": 1}]),
               FAULT_LEDGER=str(folder / "ledger"), XDG_STATE_HOME=str(folder / "state"))
    done = b.supervise("run", "--set", "supervisor.backoff.initial=200ms", "--", "bash", script, *more, env=env)
    assert "the script starts: torchrun" in done.stdout, done.stdout
    assert attempts(b.status(root)) == 2, done.stdout
    step = root / "global_step_2"
    launches = [json.loads((root / f".supervise/attempts/000{n}/launch.json").read_text()) for n in (1, 2)]
    wanted = {"trainer.resume_mode=resume_path", f"trainer.resume_from_path={step}", f"trainer.default_local_dir={root}"}
    assert wanted <= {o.replace("'", "") for o in launches[1]["overrides"]}, launches[1]["overrides"]
    # What verl says it was given, in its own words: what it prints, and what Hydra writes down.
    printed = (root / ".supervise/attempts/0002/worker-0.log").read_text()
    assert "resume_path" in printed and str(step) in printed, printed[-4000:]
    # Each rank may write its own copy, a second later.
    written = [set(p.read_text().replace("'", "").splitlines()) for p in sorted((folder / "hydra").rglob(".hydra/overrides.yaml"))]
    ours = [{"- " + o.replace("'", "") for o in launch["overrides"]} for launch in launches]
    for words in ours:
        assert any(words <= text for text in written), (words, written)
    for text in written:
        assert any(words <= text for words in ours), (text, ours)
    b.same_as_straight(root)
    nothing_left(folder)


def ppo_layout_by_verls_own_manager(b):
    root = b.work / "manager"
    b.call([HERE / "gang.sh", 2, sys.executable, HERE / "verl_fsdp_manager.py", root, b.model], env=dict(ENV, PORT="29741"))
    step = root / "global_step_2"
    for depth in ("structure", "full"):
        whole = b.verdict(step, "--depth", depth)
        assert whole.returncode == 0, whole.stdout
    actor = "actor/model_world_size_2_rank_1.pt"

    def damaged(name, change, code, *more):
        copy = b.work / "manager-damaged" / name / "global_step_2"
        shutil.copytree(step, copy)
        change(copy)
        got = b.verdict(copy, *more)
        assert got.returncode == code, f"{name}: {got.returncode}, not {code}:\n{got.stdout}"
        return got.stdout

    def cut(copy):
        os.truncate(copy / actor, (copy / actor).stat().st_size // 2)

    def flip(copy):
        data = bytearray((copy / actor).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / actor).write_bytes(data)

    def zero(copy):
        (copy / actor).write_bytes(bytes((copy / actor).stat().st_size))

    def swap(copy):
        one, other = copy / actor, copy / actor.replace("rank_1", "rank_0")
        one.rename(copy / "kept")
        other.rename(one)
        (copy / "kept").rename(other)

    assert "misplaced" in damaged("swapped", swap, 21)
    said = damaged("deleted", lambda c: (c / actor).unlink(), 20)
    assert "model_world_size_2_rank_1.pt" in said, said
    damaged("cut", cut, 20)
    damaged("flipped", flip, 21, "--depth", "full")
    damaged("zeroed", zero, 21)
    damaged("empty", lambda c: (c / actor).write_bytes(b""), 20)
    damaged("broken_json", lambda c: (c / "actor/fsdp_config.json").write_text("{]"), 21)
    damaged("cut_json", lambda c: (c / "actor/fsdp_config.json").write_text("{"), 20)
    restored = b.work / "manager-restored"
    shutil.copytree(root, restored, copy_function=shutil.copy)
    assert b.verdict(restored / "global_step_2", "--depth", "full").returncode == 0, "a plain copy must stay whole"


def torch_loads_what_the_demo_writes(b):
    import torch

    folder = b.work / "demo"
    folder.mkdir()
    text = (ROOT / "examples/configs/demo.yaml").read_text().replace("demo-run/checkpoints", f"{folder}/checkpoints")
    (folder / "demo.yaml").write_text(text)
    env = dict(ENV, PATH=f"{b.programs}:{ENV['PATH']}")
    b.supervise("run", folder / "demo.yaml", env=env)
    files = sorted((folder / "checkpoints/global_step_14").rglob("*.pt"))
    assert len(files) == 13, files
    for path in files:
        for weights_only in (True, False):
            torch.load(path, weights_only=weights_only)


CASES = [killed_in_mid_step_and_in_mid_save, ppo_layout_by_verls_own_manager, torch_loads_what_the_demo_writes]
if FULL:
    CASES += [killed_with_adapters_of_lora, flipped_byte_torn_shard_deleted_shard, stale_later_steps, a_script_of_the_users, under_torchrun]


def main(cases=CASES, bench_of=Bench):
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only")
    args = parser.parse_args()
    chosen = [c for c in cases if not args.only or args.only in c.__name__]
    if not chosen:
        parser.error(f"no case has {args.only!r} in its name")
    work = args.work or Path(tempfile.mkdtemp(prefix="supervise-real-"))
    work.mkdir(parents=True, exist_ok=True)
    bench = bench_of(args.programs.resolve(), work.resolve())
    passed, failed = 0, 0
    for case in chosen:
        began = time.monotonic()
        try:
            case(bench)
            passed += 1
            print(f"ok {case.__name__}: {time.monotonic() - began:.0f} s", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED {case.__name__}\n{traceback.format_exc()}", flush=True)
    if not failed and not args.work:
        shutil.rmtree(work)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
