"""A rollout server on the CPU that stands in for SGLang, so that areal's own PPO trainer runs where there is no GPU.

areal starts `python -m areal.experimental.inference_service.sglang.launch_server`, which asks the package `sglang` for its arguments
and its server. `stand_in(FOLDER)` writes a package of that name, whose arguments never come back: they are served here, over the
requests that areal makes. Nothing in the areal installation is edited.

The faults that FAULTS names for rank "rollout" (fault_hooks.py) fire before an answer, `step` being the version of the weights.
"""

import argparse
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = {
    "__init__.py": "",
    "srt/__init__.py": "",
    "srt/server_args.py": "from areal_rollout import serve as prepare_server_args\n",
    "srt/utils/__init__.py": "def kill_process_tree(*args, **kwargs): pass\n",
    "srt/utils/common.py": "def suppress_noisy_warnings(): pass\n",
}


def stand_in(folder):
    """The package, and what tells its version; the folder, for PYTHONPATH."""
    for name, text in PACKAGE.items():
        path = folder / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    about = folder / "sglang-0.5.10.post1.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.10.post1\n")
    return folder


class Engine:
    """A model, one answer after the other; what is asked for a pause or for new weights ends an answer where it is."""

    def __init__(self, path):
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(1)
        self.torch = torch
        config = AutoConfig.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        self.turn = threading.Lock()
        self.running = threading.Event()
        self.running.set()
        self.version = 0
        self.load(path)
        self.faults = None
        if os.environ.get("FAULTS"):
            from fault_hooks import Faults

            self.faults = Faults(json.loads(os.environ["FAULTS"]), os.environ["FAULT_LEDGER"], "rollout")

    def load(self, path):
        from safetensors.torch import load_file

        weights = {}
        for file in Path(path).glob("*.safetensors"):
            weights |= load_file(file)
        self.running.clear()
        with self.turn:
            self.model.load_state_dict(weights, strict=False)
            # `weight_update_v12`
            self.version = int("".join(c for c in Path(path).name if c.isdigit()) or 0)
        self.running.set()
        return {"success": True, "message": ""}

    def strike(self):
        from areal_worker import strike_if_asked

        strike_if_asked("rollout")
        fault = self.faults and self.faults.take(("hang", "spin", "kill"), self.version)
        if fault:
            from fault_hooks import strike

            strike(fault, None)

    def generate(self, input_ids, sampling_params, **_):
        torch, found = self.torch, []
        heat, limit = sampling_params.get("temperature") or 0, sampling_params["max_new_tokens"]
        stop = set(sampling_params.get("stop_token_ids") or []) if not sampling_params.get("ignore_eos") else set()
        why = "length"
        with self.turn, torch.no_grad():
            self.strike()
            cache, feed = None, torch.tensor([input_ids])
            while len(found) < limit:
                if not self.running.is_set():
                    why = "abort"
                    break
                out = self.model(input_ids=feed, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                logp = torch.log_softmax(out.logits[0, -1].float() / (heat or 1.0), -1)
                token = torch.multinomial(logp.exp(), 1) if heat else logp.argmax().view(1)
                found.append((float(logp[token]), int(token), None))
                if int(token) in stop:
                    why = "stop"
                    break
                feed = token.view(1, 1)
        if why == "abort":
            # Asked again at once, it would be refused again.
            time.sleep(0.2)
        counts = {"prompt_tokens": len(input_ids), "completion_tokens": len(found)}
        return {"meta_info": {"finish_reason": {"type": why}, "output_token_logprobs": found, **counts}}

    def answer(self, path, asked):
        if path == "/generate":
            return self.generate(**asked)
        if path == "/update_weights_from_disk":
            return self.load(asked["model_path"])
        if path == "/pause_generation":
            self.running.clear()
        elif path == "/continue_generation":
            self.running.set()
        return {}


def serve(argv):
    """Answers until it is killed."""
    parser = argparse.ArgumentParser()
    for name in ("model-path", "host"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    args, _ = parser.parse_known_args(argv)
    engine = Engine(args.model_path)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.say({})

        def do_POST(self):
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.say(engine.answer(self.path, json.loads(text or b"{}")))

        def say(self, what):
            text = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()
