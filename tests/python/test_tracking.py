"""Restarts in trackers, from a stand-in for the program and stand-ins for the trackers."""

import os
import types
import unittest
import warnings
from unittest import mock

import supervise
from supervise import _runs, _tracking

ATTEMPTS = [
    {"attempt": 1, "from_step": 0, "to_step": 8, "class": "code.exception", "cause": "worker 0 line 11:\n RuntimeError: broken"},
    {"attempt": 2, "from_step": 5, "to_step": 5, "class": "kill.unknown", "cause": None},
    {"attempt": 3, "from_step": 5, "to_step": None, "class": None, "cause": None},
    {"attempt": 4, "from_step": 9, "to_step": None, "class": None, "cause": None},
]
NUMBERS = {"supervise/restarts": 2, "supervise/resumed_from": 5, "supervise/steps_trained_twice": 3}
TEXTS = [
    "restart 1: worker 0 line 11: RuntimeError: broken; resumed from step 5; 3 steps trained twice",
    "restart 2: kill.unknown; resumed from step 5",
]


class Tracking(unittest.TestCase):
    def setUp(self):
        self.asked = []
        for patch in (
            mock.patch.dict(os.environ, {"SUPERVISE_ATTEMPT": "ab12/1/3"}),
            mock.patch.object(_runs, "ask", self.ask),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def ask(self, command, *words):
        self.asked.append((command, *words))
        return {"attempts": ATTEMPTS}

    def test_a_summary_writer(self):
        writer = mock.Mock(spec=["add_scalar", "add_text", "flush"])
        supervise.track(writer)
        self.assertEqual(self.asked, [("history", "ab12")])
        self.assertEqual([call.args for call in writer.add_scalar.call_args_list], [(key, value, 5) for key, value in NUMBERS.items()])
        writer.add_text.assert_called_once_with("supervise/restart", TEXTS[1], 5)
        writer.flush.assert_called_once_with()

    def test_a_run_of_wandb(self):
        run = mock.Mock(spec=["log", "summary", "log_artifact"])
        supervise.track(run)
        run.log.assert_called_once_with(NUMBERS, commit=False)
        run.summary.update.assert_called_once_with({"supervise/restart_1": TEXTS[0], "supervise/restart_2": TEXTS[1]})

    def test_mlflow(self):
        mlflow = mock.Mock(spec=["log_metrics", "set_tag"])
        supervise.track(mlflow)
        mlflow.log_metrics.assert_called_once_with(NUMBERS, step=5)
        self.assertEqual([call.args for call in mlflow.set_tag.call_args_list], [(f"supervise.restart_{n}", text) for n, text in enumerate(TEXTS, 1)])

    def test_loggers_of_lightning(self):
        writer = mock.Mock(spec=["add_scalar", "add_text", "flush"])
        supervise.track(types.SimpleNamespace(log_metrics=None, experiment=writer))
        self.assertEqual(writer.add_scalar.call_count, 3)
        client = mock.Mock(spec=["set_tag"])
        logger = mock.Mock(spec=["log_metrics", "experiment", "run_id"], experiment=client, run_id="r1")
        supervise.track(logger)
        logger.log_metrics.assert_called_once_with(NUMBERS, 5)
        client.set_tag.assert_called_with("r1", "supervise.restart_2", TEXTS[1])
        other = mock.Mock(spec=["log_metrics", "experiment"], experiment=object())
        supervise.track(other)
        other.log_metrics.assert_called_once_with(NUMBERS, 5)

    def test_a_function(self):
        got = []
        supervise.track(lambda numbers, step: got.append((numbers, step)))
        self.assertEqual(got, [(NUMBERS, 5)])

    def test_nothing_in_a_first_start_without_a_supervisor_and_on_other_ranks(self):
        tracker = mock.Mock(side_effect=AssertionError)
        with mock.patch.dict(os.environ, {"SUPERVISE_ATTEMPT": "ab12/1/1"}):
            supervise.track(tracker)
        self.assertEqual(len(self.asked), 1)
        with mock.patch.dict(os.environ, {"RANK": "1"}):
            supervise.track(tracker)
        supervise.track(tracker, rank=2)
        del os.environ["SUPERVISE_ATTEMPT"]
        supervise.track(tracker)
        self.assertEqual(len(self.asked), 1)
        tracker.assert_not_called()

    def test_it_never_raises(self):
        bad = mock.Mock(spec=["log", "summary"])
        bad.log.side_effect = ConnectionError("no\nnetwork")
        for tracker, problem in ((object(), "object is no tracker"), (bad, "no network")):
            with self.assertWarnsRegex(RuntimeWarning, problem):
                supervise.track(tracker)
        os.environ["SUPERVISE_ATTEMPT"] = "what is this"
        with self.assertWarns(RuntimeWarning):
            supervise.track(print)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            supervise.track(print)

    def test_only_trackers_that_are_open_are_found(self):
        fakes = {"wandb": types.SimpleNamespace(run="run"), "mlflow": types.SimpleNamespace(active_run=lambda: None)}
        with mock.patch.dict("sys.modules", fakes):
            self.assertEqual(_tracking.active(), ["run"])


if __name__ == "__main__":
    unittest.main()
