"""Runs a notebook that reads the newest run, on a run of `supervise demo`, with the package that this interpreter has.

usage: HOME=EMPTY python3 notebook.py NOTEBOOK
"""

import os
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat

beside = Path(sys.executable).parent / "supervise"
home = Path(os.environ["HOME"])
home.mkdir(exist_ok=True)
os.environ["IPYTHONDIR"] = str(home / "ipython")
subprocess.run([beside, "demo", "--keep", home / "demo"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
shown, state, history, steps, events = (cell.outputs[0] for cell in notebook.cells if cell.cell_type == "code")
assert "<svg" in shown["data"]["text/html"], shown
assert state["text"].startswith("finished "), state
assert "SIGKILL" in history["text"], history
assert "'whole'" in steps["data"]["text/plain"], steps
assert "finished" in events["text"], events
print("the notebook ran")
