"""`supervise merge --upload` with Hugging Face's own `hf`, against a hub of ours on loopback: what arrives is the model, byte for byte.

usage: upload.py PROGRAMS        (the folder with the built binaries)

The hub speaks as much of the interface as `hf upload` needs (huggingface_hub 1.33: repository, preupload, LFS batch, commit), and asks for the token.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUPERVISE = Path(sys.argv[1]) / "supervise"
SOURCE = HERE.parent / "fixtures/verl_sft_fsdp2_w2"
NAME, TOKEN = "org/tiny", "hf_thisisnorealtokenatall"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Keeps what is committed."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def read(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, what, status=200):
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub, path = self.server, self.path.split("?")[0]
        if path == f"/api/models/{NAME}/revision/main" and hub.created:
            return self.answer({"id": NAME, "sha": COMMIT, "siblings": [], "private": hub.created["private"]})
        return self.answer({"error": f"not found: {path}"}, 404)

    def do_PUT(self):
        body = self.read()
        self.server.large[hashlib.sha256(body).hexdigest()] = body
        self.answer({})

    def do_POST(self):
        hub, body, path = self.server, self.read(), self.path.split("?")[0]
        hub.tokens.add(self.headers.get("authorization"))
        if path == "/api/repos/create":
            hub.created = {"private": False} | json.loads(body)
            return self.answer({"url": f"{hub.address}/{NAME}", "name": NAME})
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if path == f"/api/models/{NAME}/preupload/main":
            mode = lambda name: "lfs" if name.endswith(".safetensors") else "regular"
            files = [{"path": f["path"], "uploadMode": mode(f["path"]), "shouldIgnore": False} for f in json.loads(body)["files"]]
            return self.answer({"files": files})
        if path == f"/{NAME}.git/info/lfs/objects/batch":
            objects = [{**o, "actions": {"upload": {"href": f"{hub.address}/put/{o['oid']}"}}} for o in json.loads(body)["objects"]]
            return self.answer({"transfer": "basic", "objects": objects})
        if path == f"/api/models/{NAME}/commit/main" and not hub.refuses:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                if line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.large[value["oid"]]
            return self.answer({"commitUrl": f"{hub.address}/{NAME}/commit/{COMMIT}", "commitOid": COMMIT, "success": True})
        return self.answer({"error": f"refused: {path}"}, 403)


def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.created, server.files, server.large, server.tokens, server.refuses = None, {}, {}, set(), False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def merge(server, work, target):
    words = [SUPERVISE, "merge", SOURCE, "--target", target, "--upload", NAME, "--private"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    env = {**ours, "HF_ENDPOINT": server.address, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(work / "home"),
           "HF_HUB_DISABLE_TELEMETRY": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    assert TOKEN not in said, "the token is said"
    return done.returncode, said


def main():
    server = hub()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        code, said = merge(server, work, work / "model")
        assert code == 0, said
        made = {str(f.relative_to(work / "model")): f.read_bytes() for f in (work / "model").rglob("*") if f.is_file()}
        assert "model.safetensors" in made and "config.json" in made, sorted(made)
        assert server.files == made, (sorted(server.files), sorted(made), said)
        # Newer releases say it in another word.
        assert server.created["private"] or server.created.get("visibility") == "private", server.created
        assert server.tokens == {f"Bearer {TOKEN}"}, server.tokens
        print(f"ok: {len(made)} files arrived, byte for byte, in a private repository")

        server.refuses, server.files = True, {}
        code, said = merge(server, work, work / "refused")
        assert code == 69 and "hf ended with" in said and "the model is whole in" in said, (code, said)
        assert (work / "refused/model.safetensors").read_bytes() == made["model.safetensors"]
        assert not server.files
        print("ok: a hub that refuses leaves the model where it is, and that is said")
    server.shutdown()


if __name__ == "__main__":
    main()
