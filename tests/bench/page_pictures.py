#!/usr/bin/env python3
"""Writes the pictures in docs/serve: the pages of demo runs.

usage: page_pictures.py [PROGRAMS [OUT]]    (target/debug, docs/serve; needs Chromium: tests/testbed/browser.sh install)
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from browser import Browser

TOP = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.argv[1] if len(sys.argv) > 1 else TOP / "target/debug").resolve()
OUT = Path(sys.argv[2] if len(sys.argv) > 2 else TOP / "docs/serve").resolve()
CHANGES = {
    "total_training_steps: 14": "total_training_steps: 60",
    "save_freq: 2": "save_freq: 5",
    "step_ms: 30": "step_ms: 250",
    "step: 5,": "step: 13,",
    "step: 8,": "step: 25,",
    "step: 11,": "step: 38,",
    "step: 12,": "step: 45,",
}


def start(folder, name, env, changes):
    """A run of the demo trainer, in a folder with this name."""
    config = (TOP / "examples/configs/demo.yaml").read_text()
    place = folder / name
    for old, new in {**CHANGES, "experiment_name: perceptron": f"experiment_name: {name}", "demo-run/checkpoints": f"{place}/checkpoints", **changes}.items():
        assert old in config, f"the example says nothing of {old!r}"
        config = config.replace(old, new)
    place.mkdir()
    (place / "demo.yaml").write_text(config)
    command = [PROGRAMS / "supervise", "run", "-q", place / "demo.yaml"]
    return subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def serve(folder, env):
    """The server, and the link that opens it."""
    command = [PROGRAMS / "supervise", "serve", "--allow-actions", "--listen", "127.0.0.1:0", "--socket", folder / "serve.sock"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    link = next(found[0] for line in process.stderr if (found := re.search(r"http://\S+", line)))
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, link


def wait_for(browser, script):
    until = time.monotonic() + 120
    while not browser.script(script):
        if time.monotonic() > until:
            sys.exit(f"the page never came to this: {script}")
        time.sleep(0.2)


def main():
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures.") as top:
        folder = Path(top)
        env = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": top, "XDG_STATE_HOME": f"{top}/state"}
        done = start(folder, "perceptron-a", env, {"total_training_steps: 14": "total_training_steps: 30", "seed: 20": "seed: 7"})
        shown = start(folder, "perceptron-b", env, {"total_training_steps: 14": "total_training_steps: 4000"})
        server, link = serve(folder, env)
        try:
            done.wait()
            for width, dark in ((1400, False), (1400, True), (390, False)):
                browser = Browser(width, dark)
                look = f"{'phone' if width < 500 else 'screen'}-{'dark' if dark else 'light'}"
                browser.go(link if width == 1400 and not dark else link.rsplit("/enter", 1)[0])
                if browser.script("return !!document.querySelector('input[name=token]')"):
                    token = next(folder.glob("state/**/serve.token")).read_text().strip()
                    browser.script(f"const f = document.querySelector('form'); f.token.value = '{token}'; f.submit()")
                at = link.rsplit("/enter", 1)[0]
                wait_for(browser, "return document.title.startsWith('Runs')")
                wait_for(browser, "return document.querySelectorAll('table.runs tbody tr').length === 2")
                browser.picture(OUT / f"runs-{look}.png", True)
                runs = browser.script("return [...document.querySelectorAll('table.runs tbody tr')].map((r) => r.id.slice(4))")
                names = browser.script("return [...document.querySelectorAll('table.runs tbody tr')].map((r) => r.innerText)")
                run = next(run for run, name in zip(runs, names) if "perceptron-b" in name)
                pages = {
                    "run": (f"/run/{run}", "return document.querySelectorAll('#charts canvas').length > 1"),
                    "output": (f"/run/{run}/log?attempt=1&worker=0", "return !!document.querySelector('#log')"),
                    "compare": ("/curves?" + "&".join(f"run={r}" for r in runs), "return document.querySelectorAll('#charts canvas').length > 1"),
                    "stop": (f"/run/{run}/stop?how=stop-now", "return !!document.querySelector('button.danger')"),
                    "configuration": (f"/run/{run}/config", "return !!document.querySelector('h1')"),
                    "machine": ("/machine", "return !!document.querySelector('table')"),
                }
                for name, (path, ready) in pages.items():
                    # Pictures are large: one of each page, and the first ones on a phone.
                    if dark or (width < 500 and name != "run"):
                        continue
                    browser.go(at + path)
                    wait_for(browser, ready)
                    time.sleep(0.5)
                    browser.picture(OUT / f"{name}-{look}.png", True)
                browser.close()
        finally:
            for process in (server, shown, done):
                process.terminate()
                process.wait()


main()
