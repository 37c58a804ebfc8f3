"""Writes excerpts in the shapes that trainers, engines, launchers, schedulers and kernels print.

    python3 tests/corpus/make/written.py OUT

Each is a failure (or none) in a setting: steps before it, warnings among them, what the other ranks and the launcher say after it.
"""

import os
import random
import sys

from cases import CASES, HEALTHY

FRAMES = {
    "train": [("/opt/train/main.py", 88, "main", "trainer.fit()"), ("/opt/train/trainer.py", 412, "fit", "out = self.step(batch)")],
    "load": [("/opt/train/main.py", 71, "main", "trainer.load_checkpoint()"), ("/opt/train/checkpoint.py", 60, "load_checkpoint", "state = torch.load(path)")],
    "save": [("/opt/train/trainer.py", 430, "fit", "self.save_checkpoint(step)"), ("/opt/train/checkpoint.py", 120, "save_checkpoint", "torch.save(state, path)")],
    "start": [("/opt/train/main.py", 31, "main", "trainer = build(config)"), ("/opt/train/build.py", 17, "build", "return cls(**kwargs)")],
    "engine": [("/opt/vllm/v1/engine/core.py", 710, "run_engine_core", "engine_core.run_busy_loop()"), ("/opt/vllm/v1/worker/gpu_model_runner.py", 1530, "execute_model", "out = self.model(**inputs)")],
}


def traceback(kind, exception):
    lines = ["Traceback (most recent call last):"]
    for path, line, name, text in FRAMES[kind]:
        lines += [f'  File "{path}", line {line}, in {name}', f"    {text}"]
    return lines + exception.split("\n")


def expand(body):
    """`@train X` is a traceback of the training that ends with X; other lines stand as they are."""
    out = []
    for line in body.strip("\n").split("\n"):
        if line.startswith("@"):
            kind, exception = line[1:].split(" ", 1)
            out += traceback(kind, exception.replace("\\n", "\n"))
        else:
            out.append(line)
    return out


def clock(n):
    return f"{9 + n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}"


class Setting:
    def __init__(self, name, seed):
        self.name = name
        self.rng = random.Random(seed)
        self.at = 0

    def tick(self):
        self.at += self.rng.randint(1, 40)
        return clock(self.at)

    def intro(self):
        return {
            "plain": ["loading config /opt/train/config.yaml", "world size 1, device cuda:0", "model parameters: 494,032,768"],
            "torchrun": ["W1102 09:00:00.113000 4001 torch/distributed/run.py:803] Setting OMP_NUM_THREADS environment variable for each process to be 1",
                         "[rank0]: model built in 3.1 s", "[rank1]: model built in 3.2 s",
                         "NCCL version 2.27.5+cuda12.9", "gpu-003:4011:4011 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.3<0>"],
            "ray": ["2026-11-02 09:00:01,114 INFO worker.py:1951 -- Started a local Ray instance.",
                    "(TaskRunner pid=5001) {'actor_rollout_ref': {'actor': {'strategy': 'fsdp2'}}, 'trainer': {'resume_mode': 'auto'}}",
                    "(TaskRunner pid=5001) WARNING: flash_attn is not installed (No module named 'flash_attn')",
                    "(WorkerDict pid=5107) Loading checkpoint shards: 100%|##########| 4/4 [00:02<00:00,  1.71it/s]"],
            "hf": ["[INFO|trainer.py:2519] 2026-11-02 09:00:04,001 >> ***** Running training *****",
                   "[INFO|trainer.py:2520] 2026-11-02 09:00:04,001 >>   Num examples = 12,800",
                   "/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs have requires_grad=True."],
            "megatron": ["> initialized tensor model parallel with size 2", "> building train, validation, and test datasets ...",
                         "time to initialize megatron (seconds): 12.311"],
            "engine": ["INFO 11-02 09:00:03 [api_server.py:1712] vLLM API server version 0.11.0",
                       "(EngineCore_DP0 pid=7101) INFO 11-02 09:00:20 [gpu_worker.py:298] Available KV cache memory: 41.20 GiB"],
            "slurm": ["srun: job 48213 queued and waiting for resources", "srun: job 48213 has been allocated resources",
                      "0: world size 16", "8: world size 16"],
        }[self.name]

    def step(self, n):
        loss = 1.2 / (n + 1) + 0.3
        t = self.tick()
        return {
            "plain": [f"2026-11-02 {t} INFO step {n} loss {loss:.4f} lr 9.8e-07 tokens/s 18211"],
            "torchrun": [f"[rank0]: step: {n} loss: {loss:.4f} grad_norm: 0.81 mem: 61.2GB"],
            "ray": [f"(TaskRunner pid=5001) step:{n} - actor/pg_loss:{loss:.4f} - actor/grad_norm:0.311 - critic/rewards/mean:0.41 - timing_s/step:31.2 - timing_s/update_weights:2.1"],
            "hf": [f"{{'loss': {loss:.4f}, 'grad_norm': 1.2, 'learning_rate': 9.8e-06, 'epoch': {n / 100:.2f}}}"],
            "megatron": [f" [2026-11-02 {t}] iteration {n:8}/    5000 | consumed samples: {n * 512:12} | elapsed time per iteration (ms): 5121.2 | lm loss: {loss:.6E} | grad norm: 0.812 |"],
            "engine": [f"INFO 11-02 {t} [loggers.py:127] Engine 000: Avg prompt throughput: {1000 + n}.2 tokens/s, Running: 31 reqs, Waiting: 0 reqs, GPU KV cache usage: 41.2%"],
            "slurm": [f"0: step {n} | loss {loss:.4f} | 412 TFLOP/s"],
        }[self.name]

    def noise(self):
        pool = ["(raylet) [2026-11-02 09:10:11,001 I 4901 4901] worker_pool.cc: idle workers: 3",
                "INFO: cache hit rate 0.93, evicted 12 blocks",
                "validation: accuracy 0.412 on 512 prompts",
                "saved checkpoint to /ckpt/run/global_step_20 in 11.2 s",
                "gc: collected 1203 objects"]
        return [self.rng.choice(pool)]

    def ending(self, code, killed):
        end = {
            "torchrun": [f"W1102 {self.tick()}.551000 4001 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4012 closing signal SIGTERM",
                         f"E1102 {self.tick()}.781000 4001 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: 1 (pid: 4013) of binary: /opt/venv/bin/python",
                         "Traceback (most recent call last):",
                         '  File "/opt/venv/bin/torchrun", line 8, in <module>', "    sys.exit(main())",
                         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
                         "============================================================", "main.py FAILED",
                         "------------------------------------------------------------", "Root Cause (first observed failure):", "[0]:",
                         "  time      : 2026-11-02_09:31:12", "  host      : gpu-003", "  rank      : 1 (local_rank: 1)",
                         f"  exitcode  : {code} (pid: 4013)", "  error_file: <N/A>",
                         f"  traceback : {killed}", "============================================================"],
            "ray": ["(WorkerDict pid=5108) [rank1]:[W1102 09:31:11.221 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit"],
            "slurm": ["srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
                      "slurmstepd: error: *** STEP 48213.0 ON gpu-003 CANCELLED AT 2026-11-02T09:31:13 ***",
                      "srun: error: gpu-004: tasks 8-15: Terminated"],
        }
        return end.get(self.name, [])


def render(name, setting, body, steps, ending, code):
    s = Setting(setting, name)
    out = list(s.intro())
    first = s.rng.randint(1, 400)
    for n in range(first, first + steps):
        out += s.step(n)
        if s.rng.random() < 0.15:
            out += s.noise()
    prefix = {"ray": "(WorkerDict pid=5108) ", "torchrun": "[rank1]: ", "slurm": "3: "}.get(setting, "")
    raw = body.startswith("!")
    out += [line if raw else prefix + line for line in expand(body.lstrip("!"))]
    if ending:
        inner = {139: -11, 137: -9, 134: -6, 135: -7, 132: -4, 136: -8}.get(code, 1)
        said = {-9: "Signal 9 (SIGKILL) received by PID 4013", -11: "Signal 11 (SIGSEGV) received by PID 4013",
                -6: "Signal 6 (SIGABRT) received by PID 4013", -7: "Signal 7 (SIGBUS) received by PID 4013"}.get(inner, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
        out += s.ending(inner, said)
    return "\n".join(out) + "\n"


def write(out, klass, name, text):
    folder = os.path.join(out, klass)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".log"), "w") as f:
        f.write(text)


def main():
    out = sys.argv[1]
    for n, (klass, action, code, settings, body) in enumerate(CASES):
        for setting in settings.split():
            steps = 0 if "@start" in body or "@load" in body or setting.endswith("0") else random.Random(n).randint(4, 18)
            base = setting.rstrip("0")
            name = f"{klass.replace('.', '_')}_{n:03}_{base}"
            text = render(name, base, body, steps, code not in (0,), code)
            launched = base in ("torchrun", "slurm") and code not in (0, 2)
            write(out, klass, name, text)
            print(f"{klass}/{name}.log\t{1 if launched and code != 143 else code}\t{klass}\t{action}\twritten")
    for n, (settings, body, after, code) in enumerate(HEALTHY):
        for setting in settings.split():
            name = f"healthy_{n:03}_{setting}"
            s = Setting(setting, name)
            lines = list(s.intro())
            first = s.rng.randint(1, 300)
            for k in range(first, first + 8):
                lines += s.step(k)
            lines += expand(body)
            for k in range(first + 8, first + 8 + after):
                lines += s.step(k)
            write(out, "none", name, "\n".join(lines) + "\n")
            print(f"none/{name}.log\t{'' if code is None else code}\tnone\tnone\twritten")


if __name__ == "__main__":
    main()
