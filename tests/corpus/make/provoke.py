"""Provokes failures in real torch, ray, transformers and Hydra, and keeps what they print.

    .venv-real/bin/python tests/corpus/make/provoke.py OUT

writes one log per failure into OUT/CLASS, and a line `file<TAB>exit code<TAB>class<TAB>action<TAB>real` per log to standard output.
Paths of the machine are replaced. Nothing here needs a GPU.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap

STEPS = """
import sys, time, logging
def steps(a, b):
    for n in range(a, b):
        print(f"step {n}/100 loss {1.0 / (n + 1):.4f} lr 1.0e-05 grad_norm 0.{n:03d}", flush=True)
"""

# name, class, action, program, steps before it
CASES = [
    ("key_error", "code.type_key", "R1", "steps(0, 12)\nbatch = {'input_ids': 1}\nbatch['attention_mask']"),
    ("key_error_start", "code.type_key", "S", "batch = {'input_ids': 1}\nbatch['attention_mask']"),
    ("zero_division", "code.type_key", "R1", "steps(0, 7)\nprint(1 / (7 - 7))"),
    ("chain", "code.type_key", "R1", "steps(0, 9)\ntry:\n    {}['reward']\nexcept KeyError as e:\n    raise RuntimeError('step 9 has no reward') from e"),
    ("chain_handling", "code.type_key", "R1", "steps(0, 9)\ntry:\n    int(None)\nexcept TypeError:\n    open('/nowhere/report.txt')"),
    ("import", "code.syntax_import", "S", "import flash_attn_of_another_build"),
    ("name", "code.syntax_import", "S", "steps(0, 0)\nprint(undefined_name)"),
    ("missing_file", "file.missing", "R1", "open('/data/train/shard-0007.jsonl')"),
    ("json", "data.bad_sample", "R1", "import json\nsteps(0, 20)\njson.loads('{\"prompt\": \"2+2\", \"answer\": ')"),
    ("unicode", "data.bad_sample", "R1", "steps(0, 20)\nb'\\xff\\xfe'.decode('utf-8')"),
    ("usage", "cfg.args", "S", "import argparse\np = argparse.ArgumentParser('train.py')\np.add_argument('--lr')\np.parse_args(['--learning-rates', '1'])"),
    ("shape", "code.shape", "S", "import torch\ntorch.zeros(2, 3) @ torch.zeros(4, 5)"),
    ("view", "code.shape", "S", "import torch\ntorch.zeros(7).view(2, 3)"),
    ("state_dict", "ckpt.mismatch", "S", "import torch\na = torch.nn.Linear(4, 4)\nb = torch.nn.Linear(8, 8)\na.load_state_dict(b.state_dict())"),
    ("state_keys", "ckpt.mismatch", "S", "import torch\na = torch.nn.Linear(4, 4)\na.load_state_dict({'weights': torch.zeros(4, 4)})"),
    ("torn_pt", "ckpt.corrupt", "F", "import torch\ntorch.save({'w': torch.zeros(1000)}, 'm.pt')\nb = open('m.pt', 'rb').read()\nopen('m.pt', 'wb').write(b[:1500])\ntorch.load('m.pt')"),
    ("empty_pt", "ckpt.corrupt", "F", "import torch\nopen('m.pt', 'wb').close()\ntorch.load('m.pt')"),
    ("torn_safetensors", "ckpt.corrupt", "F", "import torch\nfrom safetensors.torch import save_file, load_file\nsave_file({'w': torch.zeros(1000)}, 'm.safetensors')\nb = open('m.safetensors', 'rb').read()\nopen('m.safetensors', 'wb').write(b[:900])\nload_file('m.safetensors')"),
    ("pickle", "ckpt.corrupt", "F", "import pickle\nopen('s.pkl', 'wb').write(pickle.dumps(list(range(1000)))[:400])\npickle.load(open('s.pkl', 'rb'))"),
    ("dcp_torn", "ckpt.corrupt", "F", "import torch\nimport torch.distributed.checkpoint as dcp\ndcp.save({'w': torch.zeros(1000)}, checkpoint_id='ck')\nimport glob, os\nos.remove(glob.glob('ck/*.distcp')[0])\ndcp.load({'w': torch.zeros(1000)}, checkpoint_id='ck')"),
    ("tracker", "ckpt.tracker_torn", "R", "open('latest.txt', 'w').close()\nint(open('latest.txt').read())"),
    ("nan_probability", "num.nan", "F", "import torch\nsteps(0, 30)\ntorch.multinomial(torch.tensor([float('nan'), 0.5]), 1)"),
    ("full_disk", "disk.full", "W", "steps(0, 15)\nf = open('/dev/full', 'wb', buffering=0)\nf.write(b'x' * 4096)"),
    ("fds", "host.fds", "R1", "import resource\nsteps(0, 3)\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\nk = [open('/dev/null') for _ in range(100)]"),
    ("segfault", "native.crash", "R1", "import faulthandler, ctypes\nfaulthandler.enable()\nsteps(0, 9)\nctypes.string_at(0)"),
    ("abort", "native.crash", "R1", "import faulthandler, os\nfaulthandler.enable()\nsteps(0, 9)\nos.abort()"),
    ("silent_kill", "kill.unknown", "Rb", "import os, signal\nsteps(0, 9)\nos.kill(os.getpid(), signal.SIGKILL)"),
    ("interrupt", "op.signal", "S", "import os, signal\nsteps(0, 9)\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)"),
    ("port", "comm.port_in_use", "R", "import socket, torch.distributed as dist\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\ndist.TCPStore('127.0.0.1', s.getsockname()[1], 1, True)"),
    ("store_timeout", "comm.store", "Rb", "import torch.distributed as dist, datetime\ndist.TCPStore('127.0.0.1', 1, 2, False, timeout=datetime.timedelta(seconds=2))"),
    ("loader_killed", "data.loader", "Rb", "import os, signal, torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 100\n    def __getitem__(self, i):\n        if i == 40: os.kill(os.getpid(), signal.SIGKILL)\n        return torch.zeros(1)\nif __name__ == '__main__':\n    for n, b in enumerate(torch.utils.data.DataLoader(D(), batch_size=8, num_workers=2)): steps(n, n + 1)"),
    ("loader_bus", "mem.shm", "R1", "import os, signal, torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 100\n    def __getitem__(self, i):\n        if i == 40: os.kill(os.getpid(), signal.SIGBUS)\n        return torch.zeros(1)\nif __name__ == '__main__':\n    for n, b in enumerate(torch.utils.data.DataLoader(D(), batch_size=8, num_workers=2)): steps(n, n + 1)"),
    ("loader_key", "code.type_key", "R1", "import torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 100\n    def __getitem__(self, i):\n        if i == 60: raise KeyError('answer')\n        return torch.zeros(1)\nif __name__ == '__main__':\n    for n, b in enumerate(torch.utils.data.DataLoader(D(), batch_size=8, num_workers=2)): steps(n, n + 1)"),
    ("hydra", "cfg.args", "S", "import hydra, os\nos.makedirs('conf', exist_ok=True); open('conf/c.yaml', 'w').write('lr: 1\\n')\nimport sys; sys.argv = ['train.py', 'trainer.lr=2']\n@hydra.main(version_base=None, config_path=os.getcwd() + '/conf', config_name='c')\ndef main(c): pass\nmain()"),
    ("omegaconf", "cfg.args", "S", "from omegaconf import OmegaConf\nc = OmegaConf.create({'a': 1, 'b': '???'})\nprint(c.b)"),
    ("hub_offline", "hub.rate", "Rb", "import os\nos.environ['HF_HUB_OFFLINE'] = '1'\nfrom huggingface_hub import hf_hub_download\nhf_hub_download('some-owner/some-model', 'config.json')"),
    ("ray_task", "code.type_key", "R1", "import ray\nray.init(num_cpus=1, include_dashboard=False, log_to_driver=True)\nsteps(0, 5)\n@ray.remote\ndef f(): return {}['advantages']\nray.get(f.remote())"),
    ("ray_actor_killed", "ray.actor_died", "Rb", "import ray, os, signal\nray.init(num_cpus=1, include_dashboard=False)\nsteps(0, 5)\n@ray.remote\nclass A:\n    def f(self): os.kill(os.getpid(), signal.SIGKILL)\na = A.remote()\nray.get(a.f.remote())"),
    ("early_end", "end.early_success", "S", "steps(0, 30)\nprint('training finished')"),
    ("anomaly", "num.nan", "F", "import torch\nsteps(0, 4)\ntorch.autograd.set_detect_anomaly(True)\nx = torch.zeros(1, requires_grad=True)\n(torch.sqrt(x) * 0).backward()"),
]

HEALTHY = [
    ("steps", "steps(0, 30)"),
    ("caught", "steps(0, 10)\nimport traceback\ntry:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\nsteps(10, 30)"),
    ("warnings", "import warnings\nsteps(0, 10)\nwarnings.warn('CUDA out of memory may follow: batch is large')\nsteps(10, 20)"),
    ("torch_warns", "import torch\nsteps(0, 3)\ntorch.cuda.is_available()\ntorch.tensor(torch.zeros(3))\nsteps(3, 12)"),
    ("optional_import", "import logging\nsteps(0, 2)\ntry:\n    import flash_attn\nexcept ModuleNotFoundError as e:\n    logging.warning('flash attention is off: %r', e)\nsteps(2, 12)"),
]

# Two ranks under torchrun: what the program does in rank 1.
RANKS = [
    ("rank_key", "code.type_key", "R1", "if r == 1 and n == 6: {}['advantages']"),
    ("rank_killed", "kill.unknown", "Rb", "if r == 1 and n == 6: os.kill(os.getpid(), signal.SIGKILL)"),
    ("rank_segv", "native.crash", "R1", "if r == 1 and n == 6: os.kill(os.getpid(), signal.SIGSEGV)"),
    ("rank_exit", "exit.unexplained", "Rb", "if r == 1 and n == 6: os._exit(7)"),
    ("rank_disk", "disk.full", "W", "if r == 0 and n == 6: open('/dev/full', 'wb', buffering=0).write(b'x' * 9)"),
    ("rank_nan", "num.nan", "F", "if r == 1 and n == 6: torch.multinomial(torch.tensor([float('nan'), 0.5]), 1)"),
    ("rank_hang", "comm.nccl_timeout", "K", "if r == 1 and n == 6: time.sleep(60)"),
]

RANK_PROGRAM = """
import os, signal, time, datetime, torch, torch.distributed as dist
dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=6))
r = dist.get_rank()
for n in range(12):
    CASE
    t = torch.ones(4); dist.all_reduce(t)
    if r == 0: print(f"step {n}/12 loss {1.0 / (n + 1):.4f}", flush=True)
"""


def clean(text, folder):
    text = text.replace(folder, "/job")
    text = text.replace(os.path.dirname(os.path.dirname(sys.executable)), "/opt/venv")
    text = re.sub(r"/\S*/\.venv-real", "/opt/venv", text)
    text = re.sub(r"/\S*/\.pyenv/versions/[^/]+", "/opt/python", text)
    text = re.sub(r"/\S*\.local/share/uv/python/[^/]+", "/opt/python", text)
    text = text.replace(os.uname().nodename, "node-0")
    return text


def run(argv, folder, program, out, name):
    path = os.path.join(folder, "train.py")
    with open(path, "w") as f:
        f.write(program)
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
    env.update(PYTHONUNBUFFERED="1", OMP_NUM_THREADS="1", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    try:
        done = subprocess.run([*argv, path], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150)
        code, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as e:
        code, text = 1, e.stdout or b""
        print(f"# {name} took too long", file=sys.stderr)
    code = 128 - code if code < 0 else code
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, f"real_{name}.log"), "w") as f:
        f.write(clean(text.decode("utf-8", "replace"), folder))
    return code


def main():
    out = os.path.abspath(sys.argv[1])
    python = [sys.executable]
    cases = [(n, c, a, STEPS + p) for n, c, a, p in CASES] + [(n, "none", "none", STEPS + p) for n, p in HEALTHY]
    for name, klass, action, program in cases:
        with tempfile.TemporaryDirectory() as folder:
            code = run(python, folder, program, os.path.join(out, klass), name)
        print(f"{klass}/real_{name}.log\t{code}\t{klass}\t{action}\treal", flush=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    for name, klass, action, case in RANKS:
        with tempfile.TemporaryDirectory() as folder:
            code = run(torchrun, folder, textwrap.dedent(RANK_PROGRAM.replace("CASE", case)), os.path.join(out, klass), name)
        print(f"{klass}/real_{name}.log\t{code}\t{klass}\t{action}\treal", flush=True)


if __name__ == "__main__":
    main()
