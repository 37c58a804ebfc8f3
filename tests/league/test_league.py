"""The league's own rules: what the schedule throws, how an end is judged, what a count allows to say."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from collections import Counter
from pathlib import Path

import processes
import schedule
from judge import Course, End, Result, Undisturbed, judge
from injector import Hit, flip_bit
from report import bound
from schedule import ENDS_LAUNCHER, HANGS, Game, Kind
from training import StepLine, TrainingFiles, parse_lines


class Schedule(unittest.TestCase):
    def test_a_hundred_numbers_hold_each_kind_and_few_hangs(self) -> None:
        kinds = Counter(schedule.kind_of(3, n) for n in range(200, 300))
        self.assertEqual(set(kinds), set(Kind))
        self.assertLessEqual(sum(kinds[k] for k in HANGS), 5)
        self.assertEqual(kinds[Kind.HANG_SPIN], 2)

    def test_a_number_names_one_game_and_a_throw_another_step_of_it(self) -> None:
        self.assertEqual(schedule.game(7, 4711), schedule.game(7, 4711))
        again = schedule.game(7, 4711, throw=1)
        self.assertEqual(again.kind, schedule.game(7, 4711).kind)
        self.assertNotEqual(again.faults, schedule.game(7, 4711).faults)

    def test_a_chain_leaves_the_unit_restarts(self) -> None:
        for n in range(200):
            faults = schedule.game(1, n, only=Kind.CHAIN).faults
            self.assertIn(len(faults), range(2, 7))
            self.assertLessEqual(sum(f.kind in ENDS_LAUNCHER for f in faults), 3)


class Judge(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "out").mkdir()

    def play(
        self, game: Game, steps: list[tuple[int, str]], digest: str, code: int, hits: tuple[Hit, ...] = (), **flags: bool
    ) -> Result:
        lines = [json.dumps({"step": step, "attempt": attempt}) + "\n" for step, attempt in steps]
        (self.folder / "out/losses.jsonl").write_text("".join(lines))
        (self.folder / "out/digest.txt").write_text(digest + "\n")
        course = Course(over=True, codes=(code,), restarts=0, wall=2.0, leftovers=(), **{"missed": False, **flags})
        return judge("supervise", game, TrainingFiles(self.folder), list(hits), course, Undisturbed("same", 1.0))

    def test_ends(self) -> None:
        kill = schedule.game(1, 1, only=Kind.KILL_RANK)
        whole = [(step, "a") for step in range(1, 41)]
        self.assertEqual(self.play(kill, whole, "same", 0).end, End.RIGHT)
        self.assertEqual(self.play(kill, whole, "other", 0).end, End.WRONG)
        self.assertEqual(self.play(kill, whole[:9], "same", 0).end, End.WRONG)
        self.assertEqual(self.play(kill, whole[:9], "same", 6).end, End.OPERATOR)
        self.assertEqual(self.play(kill, whole, "same", 0, missed=True).end, End.MISSED)
        self.assertEqual(self.play(kill, whole, "other", 0, starved=True).end, End.MISSED)
        repeated = schedule.game(1, 1, only=Kind.DETERMINISTIC)
        self.assertEqual(self.play(repeated, whole[:9], "", 3).end, End.RIGHT)
        self.assertEqual(self.play(repeated, whole, "same", 0).end, End.WRONG)

    def test_steps_and_starts(self) -> None:
        flip = schedule.game(1, 1, only=Kind.FLIP_BYTE)
        hit = Hit(Kind.FLIP_BYTE, step=9, at=1.0, lines=9, pids=(1,), damaged=8)
        first = [(step, "a") for step in range(1, 10)]
        found = self.play(flip, first + [(step, "b") for step in range(9, 41)], "other", 0, (hit,))
        self.assertEqual((found.from_damaged, found.from_zero, found.steps_again), (1, 0, 1))
        found = self.play(flip, first + [(step, "b") for step in range(5, 41)], "same", 0, (hit,))
        self.assertEqual((found.from_damaged, found.steps_again, found.steps_lost), (0, 5, 0))
        found = self.play(flip, first + [(step, "b") for step in range(1, 41)], "same", 0, (hit,))
        self.assertEqual(found.from_zero, 1)


class Record(unittest.TestCase):
    def test_a_line_that_a_kill_cut_hides_no_other(self) -> None:
        text = '{"attempt":"a","step":1}\n{"attempt":"{"attempt":"b","step":2}\n{"att{"attempt":"b"\n{"attempt":"b","st'
        self.assertEqual(parse_lines(text), [StepLine(1, "a"), StepLine(2, "b")])


class Processes(unittest.TestCase):
    def test_a_game_ends_what_has_its_mark_or_works_in_its_directory(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            by_mark = subprocess.Popen(["sleep", "600"], env={**os.environ, "LEAGUE_GAME": "a.b"}, start_new_session=True)
            by_directory = subprocess.Popen(["sleep", "600"], cwd=folder, env={"PATH": os.environ["PATH"]}, start_new_session=True)
            other = subprocess.Popen(["sleep", "600"], env={**os.environ, "LEAGUE_GAME": "a.bc"}, start_new_session=True)
            try:
                found = processes.leftovers("LEAGUE_GAME=a.b", Path(folder), 0.0)
                self.assertEqual(set(found), {by_mark.pid, by_directory.pid})
                processes.end_all("LEAGUE_GAME=a.b", Path(folder))
                self.assertEqual((by_mark.wait(), by_directory.wait(), other.poll()), (-9, -9, None))
            finally:
                for process in (by_mark, by_directory, other):
                    process.kill()
                    process.wait()


class Numbers(unittest.TestCase):
    def test_the_bound_is_the_rule_of_three_where_nothing_was_harmed(self) -> None:
        self.assertAlmostEqual(bound(0, 300), 3 / 300, places=3)
        # Clopper and Pearson, one-sided.
        self.assertAlmostEqual(bound(2, 20), 0.2826, places=3)
        self.assertEqual(bound(3, 3), 1.0)

    def test_a_flipped_bit_is_one_and_keeps_the_times(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "shard"
            path.write_bytes(bytes(300))
            before = path.stat().st_mtime_ns
            flip_bit(path, 77)
            self.assertEqual(sum(bin(byte).count("1") for byte in path.read_bytes()), 1)
            self.assertEqual(path.stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
