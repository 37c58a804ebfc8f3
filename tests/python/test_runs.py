"""Runs as data classes, from a stand-in for the program."""

import json
import os
import stat
import sys
import tempfile
import unittest
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest import mock

import supervise
from supervise import _program

STATUS = {
    "version": 1, "run": "ab12", "root": "/ckpt", "run_dir": "/ckpt/.supervise", "trainer": "loop", "mode": "running", "attempts": 2, "charged": 1,
    "mark": 40, "outcome": None, "of_a_later_version": {"x": 1},
    "progress": {"name": "<b>run</b>", "step": 45, "planned": 100, "since_ms": 200000, "pace": "late", "eta": 1700000000000, "new": []},
}
HISTORY = {"attempts": [
    {"attempt": 1, "from_step": None, "to_step": 30, "launched": 1700000000000, "ran_ms": 60000, "class": "exit.unexplained", "cause": "<script>"},
    {"attempt": 2, "from_step": 20, "to_step": 45, "launched": 1700000070000, "ran_ms": None, "class": None, "cause": None},
]}
CHECKPOINTS = {"steps": [
    {"id": "s40", "step": 40, "verdict": "whole", "proven": "full", "bytes": 5, "files": 1, "newest": 1700000000000, "saved_by": 1, "findings": []},
    {"id": "s20", "step": 20, "verdict": "damaged", "proven": None, "findings": [{"code": "zip_truncated"}, {}]},
]}
EXPLAIN = {"attempts": [{"attempt": 1, "told": [{"at": 1700000000000, "text": "launched", "reasons": [{"code": "fresh", "text": "no step"}]}]}]}


class Runs(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = Path(held.name)
        self.program = self.dir / "supervise"
        self.answers({"status": [STATUS], "history": HISTORY, "checkpoints": CHECKPOINTS, "explain": EXPLAIN})
        found = mock.patch.object(_program, "program", lambda: str(self.program))
        found.start()
        self.addCleanup(found.stop)

    def answers(self, answers, code=0, error=""):
        (self.dir / "answers.json").write_text(json.dumps(answers))
        (self.dir / "error").write_text(error)
        self.program.write_text(f"""#!{sys.executable}
import json, sys
here = {str(self.dir)!r}
open(here + "/asked", "a").write(json.dumps(sys.argv[1:]) + "\\n")
sys.stderr.write(open(here + "/error").read())
if not {code}:
    print(json.dumps(json.load(open(here + "/answers.json"))[sys.argv[1]]))
sys.exit({code})
""")
        self.program.chmod(stat.S_IRWXU)

    def test_a_status_is_frozen_and_keeps_what_is_new(self):
        status = supervise.run("my-run").status()
        self.assertEqual((status.step, status.planned, status.mark, status.state), (45, 100, 40, "late"))
        self.assertEqual(status.since_progress, timedelta(seconds=200))
        self.assertEqual(status.eta, datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc))
        self.assertEqual(status.raw["of_a_later_version"], {"x": 1})
        with self.assertRaises(FrozenInstanceError):
            status.step = 1
        asked = json.loads((self.dir / "asked").read_text().splitlines()[-1])
        self.assertEqual(asked, ["status", "--json", "--", "my-run"])

    def test_events_checkpoints_and_history(self):
        run = supervise.run("x")
        [event] = run.events()
        self.assertEqual((event.attempt, event.text, event.codes), (1, "launched", ("fresh",)))
        newest, damaged = run.checkpoints()
        self.assertTrue(newest.is_proven)
        self.assertEqual((damaged.is_proven, damaged.findings, damaged.bytes), (False, ("zip_truncated",), None))
        self.assertEqual([(a.from_step, a.to_step, a.failure) for a in run.history()], [(None, 30, "exit.unexplained"), (20, 45, None)])

    def test_runs_lists_those_of_the_machine(self):
        self.assertEqual(supervise.runs(), [supervise.Run("/ckpt/.supervise")])

    def test_the_run_that_was_launched_last_comes_first(self):
        of = lambda run, ledger: {"run": run, "run_dir": f"/{run}", "ledger": ledger}
        self.answers({"status": [of("old", {"began": 5}), of("none", None), of("new", {"began": 9})]})
        self.assertEqual([run.name for run in supervise.runs()], ["/new", "/old", "/none"])

    def test_whatever_has_another_type_is_unknown(self):
        odd = {"run": 3, "mode": None, "progress": [], "outcome": {"word": 1}, "attempts": "x", "mark": True}
        self.answers({"status": [odd]})
        status = supervise.run("x").status()
        self.assertEqual((status.run, status.mode, status.step, status.attempts, status.mark), ("", "unknown", None, 0, None))
        self.answers({"status": [{"progress": {"since_ms": -1, "eta": 1 << 70}}]})
        status = supervise.run("x").status()
        self.assertEqual((status.since_progress, status.eta), (None, None))
        self.answers({"checkpoints": 3, "explain": [], "history": {"attempts": [None]}})
        run = supervise.run("x")
        self.assertEqual((run.checkpoints(), run.events(), len(run.history())), ([], [], 1))

    def test_a_notebook_shows_it_and_everything_is_escaped(self):
        shown = supervise.run("x")._repr_html_()
        self.assertIn("step 45 / 100", shown)
        self.assertIn("last progress 3 min ago", shown)
        self.assertIn("&lt;b&gt;run&lt;/b&gt;", shown)
        self.assertEqual(shown.count("<polyline"), 2)
        self.assertNotIn("<b>run", shown)
        self.assertNotIn("<script", shown)
        ended = {**STATUS, "mode": "finished", "outcome": {"word": "gave_up", "exit_code": 6, "why": "<i>"}}
        self.answers({"status": [ended], "history": {"attempts": []}})
        shown = supervise.run("x")._repr_html_()
        self.assertIn("gave_up", shown)
        self.assertIn("&lt;i&gt;", shown)

    def test_an_error_has_message_exit_code_and_hints(self):
        error = {"error": {"kind": "usage", "exit_code": 64, "message": "no such run", "lines": [], "hints": ["look at status"]}}
        self.answers({}, 64, json.dumps(error) + "\n")
        with self.assertRaises(supervise.SuperviseError) as told:
            supervise.run("x").status()
        e = told.exception
        self.assertEqual((e.message, e.exit_code, e.kind, e.hints), ("no such run", 64, "usage", ("look at status",)))
        self.assertIn("no such run", supervise.run("<x>")._repr_html_())
        self.answers({}, 101, "thread panicked")
        with self.assertRaisesRegex(supervise.SuperviseError, "thread panicked"):
            supervise.runs()
        self.answers({"status": []})
        with self.assertRaisesRegex(supervise.SuperviseError, "0 runs"):
            supervise.run("x").status()


class Program(unittest.TestCase):
    def test_beside_the_interpreter_then_path_then_the_variable(self):
        with tempfile.TemporaryDirectory() as held:
            for name in ("bin/supervise", "path/supervise", "other/named"):
                file = Path(held, name)
                file.parent.mkdir()
                file.write_text("#!/bin/sh\n")
                file.chmod(0o755)
            env = {"PATH": held + "/path", "SUPERVISE": held + "/other/named"}
            beside = mock.patch.object(sys, "executable", held + "/bin/python3")
            nowhere = mock.patch.object(_program.sysconfig, "get_path", lambda _: held)
            with beside, nowhere, mock.patch.dict(os.environ, env):
                self.assertEqual(_program.program(), held + "/bin/supervise")
                os.unlink(held + "/bin/supervise")
                self.assertEqual(_program.program(), held + "/path/supervise")
                os.unlink(held + "/path/supervise")
                self.assertEqual(_program.program(), held + "/other/named")
                os.unlink(held + "/other/named")
                with self.assertRaisesRegex(supervise.SuperviseError, "neither beside"):
                    _program.program()


if __name__ == "__main__":
    unittest.main()
