"""What `supervise plan --learn` understands of the launch scripts of a checkout: verl's own, those of its recipes, your own.

usage: launch_scripts.py PROGRAMS CHECKOUT [--only TEXT] [--each N] [--set KEY=VALUE]... [--json FILE]

PROGRAMS is the folder with the built `supervise`. Run it with the interpreter of an environment that has what the trainer needs; of
the trainer itself the CHECKOUT's own files count (recipes belong into its folder `recipe`). Every `*.sh` that starts a module with
Python is run up to its trainer's call, in name spaces of its own (no network, no other process in sight) and with stand-ins for what
would install, fetch, end or delete something. Prints a table of what came of them; nothing is trained.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BIN = Path(sys.executable).parent
ALONE = ["unshare", "-rpmn", "--fork", "--mount-proc", "--kill-child"]
STAND_INS = """apt apt-get conda curl docker git hf huggingface-cli kill killall modelscope npu-smi nvidia-smi pip pip3 pkill ray rm
scontrol sleep ssh sudo wget""".split()
CALLS = re.compile(r"python3? .*-m |torchrun|main_\w+\.py")
LIMIT = 900
# Key names and paths differ from script to script: a reason is counted without them.
VARIABLE = [(r"`[^`]*`", "`…`"), (r"(?<![\w.])/[^\s,:;]+", "/…"), (r"\b[0-9]+(\.[0-9]+)?( ms| s)?\b", "N")]


def reason(text):
    """Each complaint of a plan, without what belongs to one script only; that it never saves is one, wherever it stands."""
    at = text.find('{"error"')
    if at < 0:
        told = (text.strip().splitlines() or ["nothing was said"])[-1:]
    else:
        error = json.loads(text[at:].splitlines()[0])["error"]
        told = error.get("lines") if error["message"].endswith("wrong in the configuration:") else [error["message"]]
    out = []
    for line in told:
        if line.lstrip().startswith("hint:"):
            continue
        line = re.sub(r"^(default of [^:]*|override [^:]*|flag [^:]*|environment \w+): ", "", line)
        for pattern, by in VARIABLE:
            line = re.sub(pattern, by, line)
        out.append(line[:110])
    return " + ".join(sorted(set(out)))


def plan(supervise, checkout, script, work, more):
    env = dict(os.environ, HOME=str(work / "home"), XDG_STATE_HOME=str(work / "state"), PYTHONPATH=str(checkout))
    env["PATH"] = f"{work / 'bin'}:{BIN}:{env['PATH']}"
    command = [*ALONE, supervise, "plan", "--learn", "--yes", "--json", "--set", "supervisor.learn_within=60s", *more]
    try:
        done = subprocess.run([str(word) for word in [*command, "--", "bash", script]], cwd=checkout, env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return "no answer in time", ""
    if done.stdout.startswith("{"):
        codes = [f["code"] for f in json.loads(done.stdout)["findings"]]
        return "understood", " ".join(codes)
    return reason(done.stderr), done.stderr


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("programs", type=Path)
    flags.add_argument("checkout", type=Path)
    flags.add_argument("--only", default="")
    flags.add_argument("--each", type=int, default=1)
    flags.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    flags.add_argument("--json", type=Path)
    given = flags.parse_args()
    checkout = given.checkout.resolve()
    scripts = sorted(s for s in checkout.rglob("*.sh") if CALLS.search(s.read_text(errors="replace")) and given.only in str(s))
    table, told = collections.defaultdict(list), {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for place in ("bin", "home", "state"):
            (work / place).mkdir()
        for name in STAND_INS:
            # Whose Python `ray job submit` would use is read from its first line.
            (work / "bin" / name).write_text(f"#!{sys.executable}\n" if name == "ray" else "#!/bin/sh\nexit 0\n")
            (work / "bin" / name).chmod(0o755)
        subprocess.run([*ALONE, "true"], check=True)
        for script in scripts[:: given.each]:
            name = str(script.relative_to(checkout))
            outcome, more = plan(given.programs.resolve() / "supervise", checkout, script, work, [word for text in given.set for word in ("--set", text)])
            table[outcome].append(name)
            told[name] = {"outcome": outcome, "told": more}
            print(f"{name}: {outcome}", flush=True)
    print(f"\n{len(told)} scripts of {checkout.name}")
    for outcome, names in sorted(table.items(), key=lambda row: -len(row[1])):
        print(f"{len(names):5}  {outcome}\n       e.g. {names[0]}")
    if given.json:
        given.json.write_text(json.dumps(told, indent=1))


main()
