"""The pages of `supervise serve` at their limits, before a release. Prints a line a figure, writes screenshots, and fails where an aim is missed.

usage: full_page.py SUPERVISE LONG_RUN OUT [SECONDS [PART…]]    (SECONDS of twenty clients: 3600; of many, long, log, screens, clients: all)
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib

from browser import Browser

EXE, LONG_RUN, OUT = (os.path.abspath(a) for a in sys.argv[1:4])
SECONDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3600
PARTS = sys.argv[5:] or ["many", "long", "log", "screens", "clients"]
RUNS, RECORDS, LOG, CLIENTS = 1000, 500_000, 2 << 30, 20
# Memory is read so often while clients ask.
LOOK = 30
AXE = "axe-core@4.14.1"
missed = []


def say(what, got, unit, aim=None):
    """A figure, beside what it should be at most."""
    late = aim is not None and got > aim
    if late:
        missed.append(what)
    beside = "" if aim is None else f"   aim {aim}{'   MISSED' if late else ''}"
    print(f"{what:58} {got:>10.0f} {unit}{beside}", flush=True)


def memory(pid):
    """Resident KiB of a process."""
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])


class Server:
    """`supervise serve` of everything below a home."""

    def __init__(self, folder):
        self.folder = folder
        env = dict(os.environ, HOME=folder + "/home")
        env.pop("XDG_STATE_HOME", None)
        command = [EXE, "serve", "--public-read", "--listen", "127.0.0.1:0", "--socket", folder + "/serve.sock"]
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://([0-9.:]+)/", line):
                self.at = found[1]
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def get(self, path):
        """The body, and milliseconds to its last byte."""
        began = time.monotonic()
        with urllib.request.urlopen(f"http://{self.at}{path}", timeout=120) as answer:
            body = answer.read()
        return body, 1000 * (time.monotonic() - began)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def run_plain(folder, name, script):
    """A run of a shell script, to its end: its identity and its directory."""
    env = dict(os.environ, HOME=folder + "/home")
    run_dir = f"{folder}/{name}"
    os.makedirs(folder + "/home", exist_ok=True)
    settings = ["trainer=plain", f"run_dir={run_dir}", "retries=0"]
    words = [w for s in settings for w in ("--set", "supervisor." + s)]
    subprocess.run([EXE, "run", "-q", *words, "--", "sh", "-c", script], env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(run_dir + "/run.id") as f:
        return json.load(f)["run"], run_dir


def many(folder, run, run_dir):
    """Copies of a run."""
    registry = folder + "/home/.local/state/supervise/runs"
    with open(f"{registry}/{run}.json") as f:
        entry = json.load(f)
    os.truncate(run_dir + "/journal.reserve", 0)
    for n in range(RUNS - 1):
        copy, of = f"{n:016x}", f"{folder}/copy-{n}"
        shutil.copytree(run_dir, of)
        for name in ("run.id", "spec/1.json"):
            with open(f"{of}/{name}") as f:
                text = f.read().replace(run, copy).replace(run_dir, of)
            with open(f"{of}/{name}", "w") as f:
                f.write(text)
        with open(f"{registry}/{copy}.json", "w") as f:
            json.dump(dict(entry, run=copy, run_dir=of), f)


def thousand(folder):
    many(folder, *run_plain(folder, "first", "echo 'step:1 - loss:0.5'; exit 3"))
    with Server(folder) as server:
        body, ms = server.get("/")
        say("1,000 runs: the first page, as the server begins", ms, "ms")
        unread = body.count(b"not read yet")
        say("1,000 runs: of them not read yet", unread, "runs", 0)
        say("1,000 runs: the page", len(body), "bytes", 200_000)
        times = sorted(server.get("/")[1] for _ in range(20))
        say("1,000 runs: the page while the runs are known, median", times[10], "ms", 100)
        say("1,000 runs: memory of the server", memory(server.process.pid) / 1024, "MiB", 256)
    with Server(folder) as server:
        time.sleep(5)
        _, ms = server.get("/")
        say("1,000 runs: the first page, 5 s after the server began", ms, "ms", 100)


def sealed(line):
    """A line of a journal with its checksum, docs/journal.md."""
    text = json.dumps(line, separators=(",", ":")).encode()
    return text[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(text)


def long_journal(folder):
    subprocess.run([LONG_RUN, EXE, folder + "/long", "85000"], check=True, stdout=subprocess.DEVNULL)
    run_dir = folder + "/long/checkpoints/.supervise"
    journal = run_dir + "/journal/1.jsonl"
    with open(journal, "rb") as f:
        lines = f.readlines()
    # A line holds what was recorded in one moment.
    last = json.loads(lines[-1])
    records = last["seq"] + len(last.get("then", []))
    say("a long journal: records", records, "")
    if records < RECORDS:
        missed.append(f"a journal of {RECORDS} records")
    registry = folder + "/home/.local/state/supervise/runs"
    os.makedirs(registry, mode=0o700)
    os.chmod(folder + "/home/.local/state/supervise", 0o700)
    run = "0123456789abcdef"
    with open(f"{registry}/{run}.json", "w") as f:
        json.dump({"run": run, "run_dir": run_dir}, f)
    with Server(folder) as server:
        say("a long journal: the run's page, as the server begins", server.get(f"/run/{run}")[1], "ms")
    with Server(folder) as server:
        time.sleep(5)
        body, ms = server.get(f"/run/{run}")
        say("a long journal: the run's page, 5 s after the server began", ms, "ms", 1000)
        say("a long journal: the page", len(body), "bytes", 400_000)
        # The state is asked for again after 0.9 s: what is measured is the journal's own way.
        changes = []
        for _ in range(20):
            time.sleep(1)
            server.get("/")
            with open(journal, "ab") as f:
                for _ in range(20):
                    records += 1
                    step = {"progress": {"attempt": 1, "phase": "step", "step": records}}
                    f.write(sealed({"v": 2, "seq": records, "tick": last["tick"], "wall": last["wall"], "fact": step}))
            changes.append(server.get(f"/run/{run}")[1])
        say("a long journal: the page after a change, median", sorted(changes)[10], "ms", 50)
        say("a long journal: memory of the server", memory(server.process.pid) / 1024, "MiB", 256)
    os.remove(run_dir + "/snapshot.json")
    with Server(folder) as server:
        say("a long journal without a snapshot: the run's page", server.get(f"/run/{run}")[1], "ms")


def long_log(folder):
    run, run_dir = run_plain(folder, "talks", "echo the beginning")
    line = b"(WorkerDict pid=4711) step:%d - actor/loss:0.0123 - critic/score/mean:0.4567 - timing_s/step:12.3\n"
    block = b"".join(line % n for n in range(20_000))
    with open(run_dir + "/attempts/0001/worker-0.log", "ab") as f:
        f.write(b"here is the first needle\n")
        while f.tell() < LOG:
            f.write(block)
        f.write(b"here is the last needle\n")
    with Server(folder) as server:
        for what, query in (("in the last piece", "last+needle"), ("at its beginning", "first+needle"), ("nowhere", "no+such+thing")):
            body, ms = server.get(f"/run/{run}/log?attempt=1&worker=0&q={query}")
            text = body.decode()
            found = "needle\n" in text
            about = re.search(r'<p class="soft">(.*?)</p>', text)[1]
            say(f"2 GB of output: a search for what is {what}", ms, "ms", 4000)
            print(f"    found: {found}; {about}", flush=True)
        _, ms = server.get(f"/run/{run}/log?attempt=1&worker=0")
        say("2 GB of output: its end", ms, "ms", 100)
        say("2 GB of output: memory of the server", memory(server.process.pid) / 1024, "MiB", 256)


def clients(folder, run):
    """Twenty of them, each following pages, for a long time: the server's memory stays as it is."""
    with Server(folder) as server:
        stop, asked, failed, took = threading.Event(), [0] * CLIENTS, [], []
        paths = ["/", f"/run/{run}", "/metrics", f"/run/{run}/config", f"/run/{run}/log?attempt=1&worker=0&q=step", "/?page=3"]

        def reads(n):
            follows = socket.create_connection(server.at.split(":"))
            follows.sendall(f"GET /live?run={run} HTTP/1.1\r\nHost: {server.at}\r\n\r\n".encode())
            while not stop.is_set():
                try:
                    took.append(server.get(paths[(asked[n] + n) % len(paths)])[1])
                except (urllib.error.URLError, OSError) as e:
                    failed.append(str(e))
                asked[n] += 1
                stop.wait(0.5)
            follows.close()

        threads = [threading.Thread(target=reads, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        grown = []
        while len(grown) < SECONDS // LOOK:
            time.sleep(LOOK)
            grown.append(memory(server.process.pid))
        early, late = max(grown[: max(1, len(grown) // 3)]), max(grown[-max(1, len(grown) // 3) :])
        stop.set()
        for thread in threads:
            thread.join(120)
        say(f"20 clients for {SECONDS} s: answers", sum(asked), "")
        say("20 clients: failures", len(failed), "", 0)
        took.sort()
        say("20 clients: an answer, median", took[len(took) // 2], "ms")
        say("20 clients: an answer, 99 of 100", took[len(took) * 99 // 100], "ms")
        print("    MiB each", LOOK, "s:", *(round(kib / 1024) for kib in grown), flush=True)
        say("20 clients: highest memory in the first third of the time", early / 1024, "MiB", 256)
        say("20 clients: highest memory in the last third", late / 1024, "MiB", early * 1.1 / 1024)
        if failed:
            print("   ", failed[:3], flush=True)


OWN_CHECKS = """
const odd = [], all = (s) => [...document.querySelectorAll(s)];
if (document.documentElement.lang !== "en") odd.push("no language");
for (const mark of ["main", "header", "nav[aria-label]"]) if (!document.querySelector(mark)) odd.push("no " + mark);
if (all("h1").length !== 1) odd.push(all("h1").length + " h1");
for (const e of all("input:not([type=hidden])")) if (!e.closest("label")) odd.push("no label: " + e.name);
for (const e of all("svg")) if (!e.getAttribute("aria-label") && e.getAttribute("aria-hidden") !== "true") odd.push("no name: svg");
for (const e of all("a, button, summary")) if (!e.textContent.trim()) odd.push("no text: " + e.outerHTML.slice(0, 80));
for (const e of all("svg text")) if (e.getBoundingClientRect().height < 10) odd.push("too small to be read: " + e.textContent);
if (document.documentElement.scrollWidth > innerWidth) odd.push("wider than the window: " + document.documentElement.scrollWidth + " of " + innerWidth);
return odd;
"""
RUN_AXE = """
const done = arguments[0];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
  .then((r) => done(r.violations.map((v) => v.id + " (" + v.impact + "): " + v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + (n.any[0] || n.all[0] || n.none[0] || {message: ""}).message).join("; "))))
  .catch((e) => done(["axe: " + e]));
"""


def axe(folder):
    """The text of axe-core; none where it cannot be had."""
    try:
        subprocess.run(["npm", "pack", AXE, "--silent"], cwd=folder, check=True, capture_output=True, timeout=120)
        name = next(f for f in os.listdir(folder) if f.startswith("axe-core"))
        subprocess.run(["tar", "xf", name, "package/axe.min.js"], cwd=folder, check=True)
        with open(folder + "/package/axe.min.js") as f:
            return f.read()
    except (OSError, subprocess.SubprocessError, StopIteration) as e:
        print(f"    {AXE} cannot be had ({e}): the pages are checked by our own few rules alone", flush=True)
        return None


def screens(folder, run):
    """Screenshots of every kind of page, and what is wrong with each for whoever does not see it."""
    if not shutil.which("chromedriver"):
        print("skipped: there is no browser: tests/testbed/browser.sh install", flush=True)
        missed.append("screenshots")
        return
    os.makedirs(OUT, exist_ok=True)
    rules = axe(folder)
    pages = {"runs": "/", "run": f"/run/{run}", "config": f"/run/{run}/config", "curves": f"/curves?run={run}", "log": f"/run/{run}/log?attempt=1&worker=0&q=e"}
    wrong = 0
    with Server(folder) as server:
        for width, dark in ((360, False), (360, True), (1280, False), (2560, True)):
            browser = Browser(width, dark)
            for name, path in pages.items():
                browser.go(f"http://{server.at}{path}")
                odd = browser.script(OWN_CHECKS)
                if (shown := browser.script("return innerWidth")) != width:
                    odd.append(f"shown {shown} wide")
                if rules:
                    browser.script(rules + "; return null;")
                    odd += browser.ask(browser.base + "/execute/async", {"script": RUN_AXE, "args": []})
                picture = f"{OUT}/{name}-{width}-{'dark' if dark else 'light'}.png"
                browser.picture(picture)
                for one in odd:
                    print(f"    {name} at {width}{', dark' if dark else ''}: {one}", flush=True)
                wrong += len(odd)
            browser.close()
    say(f"accessibility, by {AXE if rules else 'our own rules'}: findings on 20 pages", wrong, "", 0)


def main():
    with tempfile.TemporaryDirectory(prefix="full-page.") as top:
        for name in ("many", "long", "log", "shown"):
            os.mkdir(f"{top}/{name}")
        if "many" in PARTS or "clients" in PARTS:
            thousand(top + "/many")
        if "long" in PARTS:
            long_journal(top + "/long")
        if "log" in PARTS:
            long_log(top + "/log")
        shutil.rmtree(top + "/log")
        script = "for n in 1 2 3 4 5; do echo \"step:$n - loss:0.$n - actor/entropy:1.$n\"; sleep 0.2; done; echo 'RuntimeError: CUDA out of memory'; exit 1"
        if "screens" in PARTS:
            run, _ = run_plain(top + "/shown", "shown", script)
            screens(top + "/shown", run)
        if "clients" in PARTS:
            clients(top + "/many", "0" * 16)
    if missed:
        sys.exit("missed: " + ", ".join(missed))


main()
