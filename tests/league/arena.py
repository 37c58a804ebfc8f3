"""Plays games, several at a time, each in a process of its own, and keeps their results in a file that is continued."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import processes
import schedule
from contenders import Programs, Unit, Who, die
from game import Assignment
from judge import Undisturbed
from schedule import THROWS, Game, Kind
from training import TrainingFiles, config

HERE = Path(__file__).resolve().parent
# What a game takes beyond its limit: its end, and the search for orphans.
MARGIN = 60.0


@dataclass(frozen=True)
class Options:
    programs: Programs
    seed: int
    numbers: list[int]
    who: list[Who]
    # Numbers whose kind is not the schedule's.
    kinds: dict[int, Kind]
    jobs: int
    limit: float
    keep: bool
    results: Path | None


class Arena:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.directory = options.programs.folder.parent / "league" / f"games.{os.getpid()}"
        self.directory.mkdir(parents=True)
        self.lock = threading.Lock()
        self.ideals: dict[tuple[int, int, int], Future[Undisturbed]] = {}
        self.running: set[subprocess.Popen[bytes]] = set()
        self.is_ending = False
        self.results = Results(options)

    def play(self) -> list[dict[str, Any]]:
        wanted = [(number, who) for number in self.options.numbers for who in self.options.who]
        missing = [pair for pair in wanted if pair not in self.results.known]
        with ThreadPoolExecutor(self.options.jobs) as pool:
            futures = [pool.submit(self._play_until_hit, number, who) for number, who in missing]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                for future in futures:
                    future.cancel()
                with self.lock:
                    self.is_ending = True
                    for played in self.running:
                        played.kill()
                raise
        return [self.results.known[pair] for pair in wanted]

    def _play_until_hit(self, number: int, who: Who) -> None:
        result: dict[str, Any] = {}
        for throw in range(THROWS):
            result = self._play(number, who, throw)
            if result["end"] != "missed":
                break
        self.results.add(number, who, result)
        with self.lock:
            print(line(result), flush=True)

    def _play(self, number: int, who: Who, throw: int) -> dict[str, Any]:
        options = self.options
        game = schedule.game(options.seed, number, throw, options.kinds.get(number))
        directory = self.directory / f"{options.seed}.{number}.{throw}.{who.value}"
        directory.mkdir()
        mark = f"LEAGUE_GAME={os.getpid()}.{directory.name}"
        ideal = self._undisturbed(game)
        Assignment(
            who=who,
            programs=options.programs,
            seed=options.seed,
            number=number,
            throw=throw,
            only=options.kinds.get(number),
            limit=options.limit,
            mark=mark,
            ideal=ideal,
        ).write(directory)
        code = self._run_game(directory)
        processes.end_all(mark, directory)
        keep_disk(TrainingFiles(directory).root, options.keep)
        if code != 0:
            raise RuntimeError(f"game {directory.name} failed ({code}): {(directory / 'game.log').read_text(errors='replace')}")
        result: dict[str, Any] = json.loads((directory / "result.json").read_text())
        result["load"] = round(os.getloadavg()[0], 1)
        if options.keep:
            print(f"kept: {directory}", flush=True)
        else:
            shutil.rmtree(directory)
        return result

    def _run_game(self, directory: Path) -> int | None:
        with open(directory / "game.log", "wb") as log:
            command = [sys.executable, str(HERE / "game.py"), str(directory)]
            played = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        with self.lock:
            self.running.add(played)
            if self.is_ending:
                played.kill()
        try:
            return played.wait(self.options.limit + MARGIN)
        except subprocess.TimeoutExpired:
            return None
        finally:
            played.kill()
            played.wait()
            with self.lock:
                self.running.remove(played)

    def _undisturbed(self, game: Game) -> Undisturbed:
        """The same training with no fault, in a bare loop; once for each length of its steps and saves."""
        key = (game.training, game.step_ms, game.save_ms)
        with self.lock:
            is_first = key not in self.ideals
            future = self.ideals.setdefault(key, Future())
        if is_first:
            try:
                future.set_result(self._train(game))
            except Exception as error:
                future.set_exception(error)
        return future.result()

    def _train(self, game: Game) -> Undisturbed:
        directory = self.directory / f"undisturbed.{game.training}.{game.step_ms}.{game.save_ms}"
        directory.mkdir()
        (directory / "run.yaml").write_text(config(game, undisturbed=True))
        mark = f"LEAGUE_GAME={os.getpid()}.{directory.name}"
        began = time.monotonic()
        unit = Unit(Who.BASH_LOOP, self.options.programs, directory, mark, processes.free_port())
        while not unit.is_over(time.monotonic()) and time.monotonic() < began + self.options.limit:
            time.sleep(0.01)
        wall = time.monotonic() - began
        processes.end_all(mark, directory)
        digest = TrainingFiles(directory).digest()
        if digest is None:
            raise RuntimeError(f"the undisturbed training did not end: {(directory / 'log').read_text(errors='replace')[-2000:]}")
        shutil.rmtree(directory)
        return Undisturbed(digest, wall)

    def close(self) -> None:
        if not self.options.keep:
            shutil.rmtree(self.directory, ignore_errors=True)


class Results:
    """Lines of JSON: first which programs, then one line a game."""

    def __init__(self, options: Options) -> None:
        self.path = options.results
        self.known: dict[tuple[int, Who], dict[str, Any]] = {}
        self.lock = threading.Lock()
        header = header_of(options)
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = read_results(self.path) if self.path.exists() else []
        if not rows:
            self.path.write_text(json.dumps(header) + "\n")
            return
        for name in ("seed", "only", "trainer_hash"):
            if rows[0][name] != header[name]:
                die(f"{self.path} holds results with another {name}: name another file (RESULTS=FILE), or remove it")
        for who, version in header["contenders"].items():
            if rows[0]["contenders"].setdefault(who, version) != version:
                die(f"{self.path} holds results of another {who} ({rows[0]['contenders'][who]['version']}): name another file (RESULTS=FILE), or remove it")
        # A line cut in half by a kill goes, and contenders may have been added.
        self.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.known = {(row["number"], Who(row["who"])): row for row in rows[1:]}

    def add(self, number: int, who: Who, result: dict[str, Any]) -> None:
        with self.lock:
            self.known[number, who] = result
            if self.path is not None:
                with open(self.path, "a", encoding="utf-8") as out:
                    out.write(json.dumps(result) + "\n")


def read_results(path: Path) -> list[dict[str, Any]]:
    rows = []
    for text in path.read_text(encoding="utf-8").split("\n"):
        try:
            rows.append(json.loads(text))
        except ValueError:
            pass
    return rows


def header_of(options: Options) -> dict[str, Any]:
    programs = options.programs
    return {
        "seed": options.seed,
        "only": sorted({kind.value for kind in options.kinds.values()}),
        "limit": options.limit,
        "cores": os.cpu_count(),
        "build": programs.folder.name,
        "commit": commit(),
        "trainer_hash": programs.trainer_hash(),
        "contenders": {who.value: {"version": programs.version(who), "sha256": programs.hash(who)} for who in options.who},
    }


def commit() -> str | None:
    try:
        done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def keep_disk(root: Path, keep: bool) -> None:
    """Unmounts the small disk of a game; what was on it stays where the game is kept."""
    if not os.path.ismount(root):
        return
    aside = root.with_name("checkpoints.kept")
    if keep:
        shutil.copytree(root, aside, symlinks=True)
    subprocess.run(["umount", "--lazy", str(root)], check=True)
    if keep:
        root.rmdir()
        aside.rename(root)


def line(result: dict[str, Any]) -> str:
    words = [f"{result['number']:>5} {result['who']:<10} {result['kind']:<14} {result['end']:<10}"]
    words.append(f"{result['wall']:6.1f} s, {result['steps_again']} steps again")
    for name in ("from_zero", "from_damaged", "two_writers"):
        if result[name]:
            words.append(f"{name}={result[name]}")
    if result["orphans"]:
        words.append(f"orphans={len(result['orphans'])}")
    return ", ".join(words)
