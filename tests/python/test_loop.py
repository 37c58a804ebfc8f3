"""A hand-written loop under the real program: the one beside this interpreter, on PATH or in $SUPERVISE."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

import supervise
from supervise import _program

LOOP = """
    import json, os, signal, sys, time
    import supervise

    root, steps, kills, ending = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
    os.makedirs(root, exist_ok=True)
    path = None if "IGNORE" in os.environ else supervise.resume_from()
    state = json.loads(path.read_text()) if path else {"step": 0, "sum": 0}
    for step in range(state["step"] + 1, steps + 1):
        time.sleep(float(os.environ.get("PACE", "0")))
        state = {"step": step, "sum": state["sum"] * 31 % 1000003 + step}
        supervise.report(step=step, total=steps, metrics={"loss": 1 / step})
        if step % 5 == 0:
            file = os.path.join(root, "step_%d.%s" % (step, ending))
            with open(file, "w") as out:
                json.dump(state, out)
            supervise.saved(file, step=step)
        flag = os.path.join(root, "..", "killed-%d" % step)
        if step in kills and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    print("sum", state["sum"])
"""


def found():
    try:
        return _program.program()
    except supervise.SuperviseError:
        return None


@unittest.skipUnless(found(), "no program `supervise` here")
class Loop(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = Path(held.name).resolve()
        self.root = self.dir / "ckpt"
        (self.dir / "loop.py").write_text(textwrap.dedent(LOOP))
        path = os.pathsep.join(p for p in sys.path if p)
        places = {"HOME": held.name, "XDG_STATE_HOME": held.name, "XDG_CONFIG_HOME": held.name, "PYTHONPATH": path}
        env = mock.patch.dict(os.environ, places)
        env.start()
        self.addCleanup(env.stop)

    def run_loop(self, steps, kills, ending="json", *sets):
        words = ["trainer=loop", f"root={self.root}", "backoff.initial=0s", *sets]
        argv = [found(), "run", *(w for one in words for w in ("--set", "supervisor." + one)), "--", sys.executable, str(self.dir / "loop.py")]
        argv += [str(self.root), str(steps), json.dumps(kills), ending]
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, cwd=str(self.dir))

    def sums(self):
        logs = sorted(self.root.glob(".supervise/attempts/*/worker-*.log"))
        return [line for log in logs for line in log.read_text().splitlines() if line.startswith("sum ")]

    def test_a_killed_loop_resumes_from_what_it_saved(self):
        done = self.run_loop(23, [7, 12, 21])
        self.assertEqual(done.returncode, 0, done.stdout)
        total = 0
        for step in range(1, 24):
            total = total * 31 % 1000003 + step
        self.assertEqual(self.sums(), [f"sum {total}"])
        run = supervise.run(str(self.root))
        status = run.status()
        self.assertEqual((status.trainer, status.outcome.word, status.attempts), ("loop", "finished", 4))
        self.assertEqual((status.step, status.planned, status.mark), (23, 23, 20))
        self.assertEqual([a.from_step for a in run.history()], [0, 5, 10, 20])
        self.assertEqual([c.step for c in run.checkpoints()], [20, 15, 10, 5])
        self.assertTrue(all(c.is_proven for c in run.checkpoints()))
        self.assertTrue(run.events())
        for words in ([], ["--as", "loop"]):
            seen = json.loads(subprocess.check_output([found(), "verify", str(self.root), "--depth", "full", "--json", *words]))
            verdicts = [(s["step"], s["verdict"], s["proven"]) for s in seen["paths"][0]["steps"]]
            self.assertEqual(verdicts, [(step, "whole", "full") for step in (20, 15, 10, 5)])
        self.assertIn("<polyline", run._repr_html_())
        # The next start repeats what was not saved, and ends again.
        self.assertEqual(self.run_loop(23, []).returncode, 0)
        self.assertEqual(self.sums(), [f"sum {total}"] * 2)

    def test_a_loop_that_is_over_ends_again(self):
        for _ in range(2):
            done = self.run_loop(10, [])
            self.assertEqual(done.returncode, 0, done.stdout)
        done = self.run_loop(15, [])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([a.from_step for a in supervise.run(str(self.root)).history()], [0, 10])

    def test_a_loop_that_ignores_the_resume_saves_over_nothing(self):
        self.assertEqual(self.run_loop(20, []).returncode, 0)
        before = {p.name: p.stat().st_mtime_ns for p in self.root.glob("step_*.json")}
        with mock.patch.dict(os.environ, {"IGNORE": "1", "PACE": "0.5"}):
            done = self.run_loop(30, [], "json", "retries=1")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("it did not resume", done.stdout)
        after = {p.name: p.stat().st_mtime_ns for p in self.root.glob("step_*.json")}
        self.assertEqual({name: after.get(name) for name in before}, before, done.stdout)

    def test_a_changed_byte_in_a_checkpoint_of_one_file_is_found(self):
        self.assertEqual(self.run_loop(20, []).returncode, 0)
        newest = self.root / "step_20.json"
        times, text = newest.stat(), newest.read_text()
        newest.write_text(text[:-2] + str((int(text[-2]) + 1) % 10) + text[-1:])
        os.utime(newest, ns=(times.st_atime_ns, times.st_mtime_ns))
        done = self.run_loop(25, [])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([a.from_step for a in supervise.run(str(self.root)).history()], [0, 15])

    def test_a_torn_checkpoint_is_passed_over(self):
        self.assertEqual(self.run_loop(20, []).returncode, 0)
        newest = self.root / "step_20.json"
        text = newest.read_text()
        newest.write_text(text[: len(text) // 2])
        done = self.run_loop(20, [])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([a.from_step for a in supervise.run(str(self.root)).history()], [0, 15])
        self.assertEqual(len(set(self.sums())), 1)

    def test_checkpoints_from_before_are_not_begun_beside(self):
        self.root.mkdir()
        older = self.root / "step_5.json"
        older.write_text(json.dumps({"step": 5, "sum": 7}))
        done = self.run_loop(8, [])
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn(f"python3 -m supervise saved {older} STEP", done.stdout)
        for words, code in (([str(older), "5"], 0), ([str(older), "x"], 64), ([str(self.root / "none"), "5"], 64), ([], 64)):
            argv = [sys.executable, "-m", "supervise", "saved", *words]
            self.assertEqual(subprocess.run(argv, stderr=subprocess.DEVNULL).returncode, code, words)
        done = self.run_loop(8, [])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([a.from_step for a in supervise.run(str(self.root)).history()], [5])

    def test_an_unknown_format_is_resumed_from_only_if_that_is_meant(self):
        with mock.patch.dict(os.environ, {"PACE": "0.3"}):
            done = self.run_loop(12, [8], "bin")
        self.assertEqual(done.returncode, 4, done.stdout)
        lines = done.stdout.splitlines()
        of = lambda text: next(at for at, line in enumerate(lines) if text in line)
        self.assertLess(of("WARNING: attempt 1: step_5.bin"), of("was killed by SIGKILL"), done.stdout)
        self.assertIn("--set supervisor.proof.trust_reported=true", lines[of("  next:")])
        run = supervise.run(str(self.root))
        [step] = run.checkpoints()
        self.assertEqual((step.step, step.verdict, step.findings), (5, "unknown", ("reported_only",)))
        [warning] = run.status().raw["attempt"]["warnings"]
        self.assertIn("reported, not proven", warning)
        done = self.run_loop(12, [8], "bin", "proof.trust_reported=true")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("resume from step_5.bin: newest whole step (reported)", done.stdout)
        self.assertIn("step 10 is reported", done.stdout)
        self.assertNotRegex(done.stdout.replace("not proven", ""), r"\bis proven|proven step|\(proven")
        self.assertEqual([a.from_step for a in run.history()], [0, 5])

    def test_a_save_outside_of_the_root_is_said_at_once(self):
        elsewhere = self.dir / "elsewhere"
        elsewhere.mkdir()
        loop = self.dir / "loop.py"
        loop.write_text(loop.read_text().replace("file = os.path.join(root,", f"file = os.path.join({str(elsewhere)!r},"))
        done = self.run_loop(10, [])
        [line] = [line for line in done.stdout.splitlines() if "WARNING: attempt 1: a save does not count" in line]
        self.assertIn(f"{elsewhere}/step_5.json is not directly in the checkpoint root {self.root}", line)
        [warning] = supervise.run(str(self.root)).status().raw["attempt"]["warnings"]
        self.assertIn("is not directly in the checkpoint root", warning)

    def test_a_file_that_was_written_again_is_not_the_older_step(self):
        self.assertEqual(self.run_loop(20, []).returncode, 0)
        newest = self.root / "step_20.json"
        newest.write_text(newest.read_text())
        done = self.run_loop(25, [])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([a.from_step for a in supervise.run(str(self.root)).history()], [0, 15])

    def test_a_copy_of_the_root_has_its_steps(self):
        self.assertEqual(self.run_loop(10, []).returncode, 0)
        for copy in (lambda a, b: shutil.copytree(a, b), lambda a, b: shutil.copytree(a, b, copy_function=shutil.copy)):
            to = self.dir / "copy"
            copy(self.root, to)
            shutil.rmtree(to / ".supervise")
            told = json.loads(subprocess.check_output([found(), "checkpoints", str(to), "--json"]))
            self.assertEqual([(s["step"], s["verdict"]) for s in told["steps"]], [(10, "whole"), (5, "whole")])
            shutil.rmtree(to)


if __name__ == "__main__":
    unittest.main()
