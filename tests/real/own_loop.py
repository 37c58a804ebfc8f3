"""A hand-written training loop (loop_train.py) under `supervise run`: killed five times, once in a save, and hung once.

usage: own_loop.py PROGRAMS

The weights at the end are those of a run in one go, the hang is found and named, and a step that was saved and damaged later is passed over.
Hugging Face's `Trainer` with the callback of the package, killed once, which TensorBoard shows. Ends with `N passed, M failed`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python"))

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

import supervise  # noqa: E402

STEPS = 68
FAULTS = {"7": "kill", "23": "kill", "30": "tear", "38": "kill", "52": "kill", "63": "hang"}
RESUMED = [0, 0, 20, 20, 30, 50, 60]
SETS = {"trainer": "loop", "backoff.initial": "0s", "stall.minimum": "4s", "stall.factor": 1.0, "stall.hard": "45s"}
LIMIT = 600
ENV = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(HERE.parent.parent / "python"))
HF = """
import json, os, signal, sys, torch, supervise
from torch.utils.tensorboard import SummaryWriter
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, TrainerCallback
class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if state.global_step == 5 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 32
model = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2))
args = TrainingArguments("out", max_steps=8, save_steps=2, use_cpu=True, report_to=[], logging_steps=100, disable_tqdm=True)
trainer = Trainer(model, args, train_dataset=data, callbacks=[supervise.huggingface.TrainerCallback([SummaryWriter('tb')]), Kill()])
path = supervise.resume_from()
trainer.train(resume_from_checkpoint=path and str(path))
"""


def call(argv, env=ENV, cwd=None):
    done = subprocess.run([str(a) for a in argv], env=env, cwd=cwd, timeout=LIMIT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-6000:]}"
    return done.stdout


def run(programs, root, command, **env):
    sets = [word for key, value in {**SETS, "root": root}.items() for word in ("--set", f"supervisor.{key}={value}")]
    return call([programs / "supervise", "run", *sets, "--", *command], dict(ENV, SUPERVISE=str(programs / "supervise"), **env), root.parent)


def output(root):
    return "".join(log.read_text(errors="replace") for log in sorted(root.glob(".supervise/attempts/*/worker-*.log")))


def loop(programs, work):
    alone, root, ledger = work / "alone", work / "ckpt", work / "ledger"
    for place in (alone, root, ledger):
        place.mkdir()
    wanted = re.findall(r"weights (\w+)", call([sys.executable, HERE / "loop_train.py", alone, STEPS]))
    assert not list(alone.glob("saved.*")), "nobody supervises it"
    said = run(programs, root, [sys.executable, HERE / "loop_train.py", root, STEPS], LOOP_FAULTS=json.dumps(FAULTS), LOOP_LEDGER=str(ledger))
    got = re.findall(r"weights (\w+)", output(root))
    assert got == wanted and len(got) == 1, (got, wanted)
    one = supervise.run(str(root))
    history = one.history()
    assert [a.from_step for a in history] == RESUMED, history
    assert [a.failure for a in history][-2] == "hang.step", history
    status = one.status()
    assert (status.outcome.word, status.step, status.planned, status.mark) == ("finished", STEPS, STEPS, 60), status
    steps = one.checkpoints()
    assert [c.step for c in steps] == [60, 50, 40, 30, 20, 10] and all(c.is_proven for c in steps), steps
    assert "<polyline" in one._repr_html_()
    print(*[line for line in said.splitlines() if "stuck" in line or "hard limit" in line], sep="\n")


def damaged(programs, work):
    root = work / "ckpt"
    root.mkdir()
    command = [sys.executable, HERE / "loop_train.py", root, 30]
    run(programs, root, command)
    held = bytearray((root / "step_30.pt").read_bytes())
    held[len(held) // 2 : len(held) // 2 + 512] = bytes(b ^ 1 for b in held[len(held) // 2 : len(held) // 2 + 512])
    (root / "step_30.pt").write_bytes(held)
    run(programs, root, command)
    history = supervise.run(str(root)).history()
    assert [a.from_step for a in history] == [0, 20], history
    weights = re.findall(r"weights (\w+)", output(root))
    assert len(weights) == 2 and len(set(weights)) == 1, weights


def hugging_face(programs, work):
    (work / "train.py").write_text(HF)
    run(programs, work / "out", [sys.executable, "train.py"])
    one = supervise.run(str(work / "out"))
    assert [a.from_step for a in one.history()] == [0, 4], one.history()
    assert (one.status().step, one.status().planned, one.status().mark) == (8, 8, 8), one.status()
    events = EventAccumulator(str(work / "tb"))
    events.Reload()
    got = {key: [(e.step, e.value) for e in events.Scalars(key)] for key in events.Tags()["scalars"]}
    # Steps are reported at most ten times a second: that of the kill may not have been.
    [(at, twice)] = got.pop("supervise/steps_trained_twice")
    assert at == 4 and twice in (0, 1), (at, twice)
    assert got == {"supervise/restarts": [(4, 1)], "supervise/resumed_from": [(4, 4)]}, got
    [text] = events.Tensors("supervise/restart/text_summary")
    assert b"SIGKILL" in text.tensor_proto.string_val[0] and b"; resumed from step 4" in text.tensor_proto.string_val[0], text
    assert re.search(r"supervise: step=8/8", output(work / "out"))


def failure(case, programs):
    with tempfile.TemporaryDirectory() as work:
        try:
            case(programs, Path(work).resolve())
        except AssertionError as e:
            print(f"FAILED {case.__name__}: {e}", flush=True)
            return True
        print(f"ok {case.__name__}", flush=True)
        return False


def main():
    programs = Path(sys.argv[1]).resolve()
    os.environ["SUPERVISE"] = str(programs / "supervise")
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    cases = (loop, damaged, hugging_face)
    with ThreadPoolExecutor(len(cases)) as pool:
        failed = sum(pool.map(lambda case: failure(case, programs), cases))
    print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
