"""What a loop reports: lines, marks, and that it never raises."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import supervise
from supervise import _report

HERE = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def ran(code, stdout=subprocess.PIPE, **env):
    """Standard output and error of a supervised Python program."""
    env = {"SUPERVISE_ATTEMPT": "a/1/1", **HERE, **env}
    env = {key: value for key, value in env.items() if value is not None}
    argv = [sys.executable, "-c", "import supervise\n" + textwrap.dedent(code)]
    return subprocess.run(argv, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120)


def lines(code, **env):
    done = ran(code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Report(unittest.TestCase):
    def test_a_step_is_a_line_and_the_end_is_said(self):
        got = lines("supervise.report(step=3, total=10, metrics={'loss': 0.5, 'eval/loss': 1})")
        self.assertEqual(got, ["supervise: step=3/10 loss=0.5 eval/loss=1.0", "supervise: end"])

    def test_an_exception_is_no_end(self):
        done = ran("supervise.report(step=3); raise RuntimeError('x')")
        self.assertEqual((done.returncode, done.stdout), (1, "supervise: step=3\n"))

    def test_without_a_supervisor_nothing_is_said(self):
        code = "supervise.report(step=3); supervise.saved('/nowhere', 3); print(supervise.resume_from(), supervise.should_save())"
        self.assertEqual(lines(code, SUPERVISE_ATTEMPT=None), ["None False"])

    def test_a_request_for_a_save_is_answered_once(self):
        with tempfile.TemporaryDirectory() as held:
            request, answers = Path(held, "save-request"), Path(held, "save-answers")
            request.write_text("7\n")
            code = "for step in (4, 5): supervise.report(step=step); print(supervise.should_save())"
            got = lines(code, SUPERVISE_SAVE_REQUEST=str(request))
            self.assertEqual([line for line in got if not line.startswith("supervise:")], ["True", "False"])
            self.assertIn('"id": 7, "step": 4', answers.read_text())
            self.assertEqual(lines("print(supervise.should_save())", SUPERVISE_SAVE_REQUEST=str(request), WORLD_SIZE="2"), ["False"])

    def test_only_the_first_rank_reports(self):
        code = "supervise.report(step=1)\nsupervise.report(step=2, rank=0)"
        self.assertEqual(lines(code, RANK="1"), ["supervise: step=2", "supervise: end"])
        self.assertEqual(lines("supervise.report(step=1, rank=3)", RANK="0"), [])

    def test_many_steps_are_few_lines_and_the_last_is_among_them(self):
        got = lines("for step in range(1, 20001): supervise.report(step=step)")
        self.assertEqual(got[-2:], ["supervise: step=20000", "supervise: end"])
        self.assertLess(len(got), 2000)

    def test_a_fork_does_not_say_the_end(self):
        code = """
            import os, sys
            supervise.report(step=1)
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
        """
        self.assertEqual(lines(code).count("supervise: end"), 1)

    def test_a_bad_argument_warns_once_and_never_raises(self):
        done = ran("""
            for _ in range(3):
                supervise.report(step="x")
                supervise.report(step=-1)
                supervise.report(step=1, total=2.5)
                supervise.report(step=1, metrics=3)
                supervise.saved(None, 1)
            supervise.report(step=10**16)
        """, SUPERVISE_SAVES="/tmp")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("RuntimeWarning"), 5, done.stderr)
        self.assertIn("a step is an integer, not str", done.stderr)
        strict = ran("import warnings; warnings.simplefilter('error'); supervise.report(step='x')")
        self.assertEqual(strict.returncode, 0, strict.stderr)

    def test_a_metric_that_is_no_number_does_not_hide_the_step(self):
        code = """
            class Odd:
                def __float__(self):
                    raise RuntimeError("no")
            supervise.report(step=3, metrics={"loss": 1.0, "large": 10**400, "odd": Odd()})
        """
        self.assertEqual(lines(code), ["supervise: step=3 loss=1.0", "supervise: end"])

    def test_what_a_metric_holds_stays_in_its_line(self):
        got = lines(r"""
            class Odd:
                def __float__(self): return float("nan")
            import warnings; warnings.simplefilter("ignore")
            bad = {"a b": 1, "x\nsupervise: step=9": 1, 3: 1, "text": "y", "step": 7, "nan": Odd(), "k" * 65: 1}
            supervise.report(step=1, metrics=bad)
            _ = [supervise._report._reporter.flush() for _ in range(1)]
        """)
        self.assertEqual(got, ["supervise: step=1 nan=nan", "supervise: end"])
        many = lines("import warnings; warnings.simplefilter('ignore'); supervise.report(step=1, metrics={'k%d' % n: n for n in range(99)})")
        self.assertEqual(many[0].count("="), 33)

    def test_a_full_pipe_drops_the_line_and_does_not_wait(self):
        read, write = os.pipe()
        try:
            os.set_blocking(write, False)
            try:
                while True:
                    os.write(write, b"x" * 4096)
            except BlockingIOError:
                pass
            os.set_blocking(write, True)
            done = ran("supervise.report(step=1)", stdout=write)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            os.close(read)
            os.close(write)

    def test_a_closed_standard_output_is_no_error(self):
        done = ran("import os; os.close(1); supervise.report(step=1)")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Saved(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.root = Path(held.name)

    def saves(self, code, **env):
        done = ran(f"import os; os.chdir({str(self.root)!r})\n" + textwrap.dedent(code), SUPERVISE_SAVES=str(self.root), **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(self.undated(p) for p in self.root.iterdir() if p.name.startswith("saved.")), done.stderr

    def undated(self, mark):
        """The name of a mark without the time in it, which is its own."""
        name, _, newest = mark.name.rpartition("-")
        if newest != str(mark.stat().st_mtime_ns):
            return mark.name
        return name

    def test_a_file_and_a_directory_are_marked(self):
        (self.root / "a.pt").write_bytes(b"12345")
        (self.root / "step_2/deep").mkdir(parents=True)
        (self.root / "step_2/x").write_bytes(b"1")
        (self.root / "step_2/deep/.y").write_bytes(b"22")
        (self.root / "step_2/link").symlink_to("x")
        marks, told = self.saves("supervise.saved('a.pt', 1); supervise.saved('step_2', step=2)")
        self.assertEqual((marks, told), (["saved.a.pt.1-1-5", "saved.step_2.2-2-3"], ""))

    def test_a_mark_whose_checkpoint_is_gone_goes_too_and_an_overwritten_one_warns(self):
        (self.root / "a.pt").write_bytes(b"1")
        (self.root / "saved.gone.pt.1-1-1").touch()
        marks, told = self.saves("supervise.saved('a.pt', 1); supervise.saved('a.pt', 2)")
        self.assertEqual(marks, ["saved.a.pt.2-1-1"])
        self.assertIn("a name of its own", told)

    def test_what_is_no_checkpoint_of_the_root_is_not_marked(self):
        (self.root / "in").mkdir()
        (self.root / "in/a.pt").touch()
        (self.root / ".hidden").touch()
        (self.root / "empty").mkdir()
        (self.root / "saved.x").touch()
        (self.root / "out").symlink_to("/etc/hostname")
        for path in ("in/a.pt", "..", ".", ".hidden", "empty", "saved.x", "out", "none.pt", "/etc/hostname"):
            marks, told = self.saves(f"supervise.saved({path!r}, 1)")
            self.assertEqual(marks, ["saved.x"], path)
            self.assertIn("RuntimeWarning", told, path)
        self.assertIn("is the checkpoint root itself", self.saves("supervise.saved('.', 1)")[1])

    def test_the_supervisor_is_told_once_that_a_save_does_not_count(self):
        code = "for n in (1, 2): supervise.saved('/tmp/ü%d' % n, n)"
        got = lines(code, SUPERVISE_SAVES=str(self.root))
        self.assertEqual(len(got), 1)
        self.assertTrue(got[0].startswith("supervise: not saved: /tmp/\\xfc1 is not directly in the checkpoint root"), got)

    def test_a_warning_names_the_line_of_the_loop(self):
        loop = self.root / "loop.py"
        loop.write_text("import supervise\nsupervise.saved('/etc/hostname', 1)\nsupervise.report('x')\nsupervise.report(1, 2, {'a b': 1})\n")
        env = {"SUPERVISE_ATTEMPT": "a/1/1", "SUPERVISE_SAVES": str(self.root), **HERE}
        done = subprocess.run([sys.executable, str(loop)], env=env, capture_output=True, text=True, timeout=120)
        for line in (2, 3, 4):
            self.assertIn(f"loop.py:{line}: RuntimeWarning", done.stderr)

    def test_only_the_first_rank_marks(self):
        (self.root / "a.pt").write_bytes(b"1")
        self.assertEqual(self.saves("supervise.saved('a.pt', 1)", RANK="1"), ([], ""))

    def test_the_supervisor_says_where_to_resume(self):
        env = {"SUPERVISE_RESUME_FROM": str(self.root / "a.pt")}
        self.assertEqual(lines("print(supervise.resume_from())", **env), [str(self.root / "a.pt"), "supervise: end"])
        self.assertEqual(lines("print(supervise.resume_from())", SUPERVISE_RESUME_FROM=""), ["None", "supervise: end"])


class Numbers(unittest.TestCase):
    def test_only_what_can_be_read_at_once(self):
        class Tensor:
            def __init__(self, kind):
                self.device = type("Device", (), {"type": kind})()

            def __float__(self):
                return 2.0

        got = _report.numbers({"loss": 1, "cpu": Tensor("cpu"), "gpu": Tensor("cuda"), "on": True, "a b": 1, "step": 3})
        self.assertEqual(got, {"loss": 1.0, "cpu": 2.0})


if __name__ == "__main__":
    unittest.main()
