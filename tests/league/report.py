"""The report: of each fault and contender the share of harms with its bound, as a page and as JSON. Never one total."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from arena import read_results
from contenders import Who, die
from judge import End
from schedule import Kind

CONFIDENCE = 0.95

WHAT = {
    Kind.KILL_RANK: "SIGKILL to one rank, at a step",
    Kind.KILL_ALL: "SIGKILL to all ranks",
    Kind.KILL_IN_SAVE: "SIGKILL to all ranks in the middle of a save",
    Kind.KILL_LAUNCHER: "SIGKILL to the contender's own process",
    Kind.TWO_AT_ONCE: "SIGKILL to a rank and to the contender at once",
    Kind.HANG_STOP: "SIGSTOP to one rank, for good",
    Kind.HANG_SPIN: "one rank computes forever, the others wait",
    Kind.HANG_IN_SAVE: "SIGSTOP to one rank in the middle of a save",
    Kind.TORN_NEWEST: "half of a model shard of the newest step is gone, all ranks killed",
    Kind.FLIP_BYTE: "one bit of a model shard of the newest step flips, its times kept; all ranks killed",
    Kind.NO_TRACKER: "the tracker file is gone, all ranks killed",
    Kind.EMPTY_TRACKER: "the tracker file is empty, all ranks killed",
    Kind.DISK_FULL: "the disk of the checkpoints is full for one to two seconds",
    Kind.SIGTERM: "SIGTERM to the contender, as a scheduler's notice; the unit starts it again",
    Kind.DETERMINISTIC: "an exception at the same step of every attempt: the right end is a stop",
    Kind.NAN: "all weights become NaN once; half of these in the last save interval",
    Kind.CHAIN: "two to six of those above except hangs, full disks, exceptions and NaN, one after the other",
}
HARMS = ("from_zero", "from_damaged", "two_writers", "orphans")


def bound(harmed: int, games: int) -> float:
    """The highest rate of harm that such a count leaves likely (95 %, one-sided, exact): about 3 / n where none was harmed."""
    if games == 0 or harmed >= games:
        return 1.0
    low, high = harmed / games, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if at_most(harmed, games, middle) > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def at_most(harmed: int, games: int, rate: float) -> float:
    """The chance of so few harms."""
    term = (1 - rate) ** games
    total = term
    for k in range(harmed):
        term *= (games - k) / (k + 1) * rate / (1 - rate) if rate < 1 else 0.0
        total += term
    return total


def cell(results: list[dict[str, Any]]) -> dict[str, Any]:
    """What came of the games of one fault under one contender."""
    played = [r for r in results if r["end"] != End.MISSED.value]
    ends = {end.value: sum(r["end"] == end.value for r in played) for end in End if end is not End.MISSED}
    right = ends[End.RIGHT.value]
    # What a wrong end costs says nothing.
    well = [r for r in played if r["end"] == End.RIGHT.value]

    def median(name: str) -> float | None:
        return round(statistics.median(r[name] for r in well), 3) if well else None

    return {
        "games": len(played),
        "missed": len(results) - len(played),
        **ends,
        "not_right_at_most": round(bound(len(played) - right, len(played)), 4),
        "wrong_at_most": round(bound(ends[End.WRONG.value], len(played)), 4),
        **{name: sum(bool(r[name]) for r in played) for name in HARMS},
        "steps_again": sum(r["steps_again"] for r in well),
        "steps_lost": sum(r["steps_lost"] for r in well),
        "wall_median": median("wall"),
        "ettr_median": median("ettr"),
    }


def table(results: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Fault, then contender."""
    games: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        games[result["kind"]][result["who"]].append(result)
    who = [w.value for w in Who]
    return {k.value: {w: cell(games[k.value][w]) for w in who if w in games[k.value]} for k in Kind if k.value in games}


def ends(cell: dict[str, Any]) -> str:
    words = [f"{cell['right']} of {cell['games']}"]
    names = {"wrong": "wrong end", "operator": "operator needed", "never_over": "never over"}
    words += [f"{text} {cell[name]}" for name, text in names.items() if cell[name]]
    harms = {"from_zero": "from zero", "from_damaged": "from a damaged step", "two_writers": "two writers", "orphans": "orphans"}
    words += [f"{text} {cell[name]}" for name, text in harms.items() if cell[name]]
    return ", ".join(words)


def percent(rate: float) -> str:
    return f"{rate:.0%}".replace("%", " %") if rate >= 0.1 else f"{rate:.2%}".replace("%", " %")


def show(results: list[dict[str, Any]]) -> None:
    for kind, row in table(results).items():
        for who, found in row.items():
            if found["games"]:
                again = f"{found['steps_again'] / max(found['right'], 1):.1f} steps again"
                print(f"{kind:<14} {who:<10} {ends(found)}; not right at most {percent(found['not_right_at_most'])}; {again}")


def write(paths: list[Path], page: Path, data: Path) -> int:
    files = [read_results(path) for path in paths]
    if not all(len(rows) > 1 for rows in files):
        die(f"no results in {', '.join(map(str, paths))}: run `make league` first")
    headers = [rows[0] for rows in files]
    results = [row for rows in files for row in rows[1:]]
    cells = table(results)
    summary = {"format": 1, "sources": headers, "loads": span(results, "load"), "faults": cells}
    data.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    page.write_text(render(headers, results, cells), encoding="utf-8")
    return 0


def span(results: list[dict[str, Any]], name: str) -> list[float]:
    values = [r[name] for r in results]
    return [min(values), statistics.median(values), max(values)]


def render(headers: list[dict[str, Any]], results: list[dict[str, Any]], cells: dict[str, dict[str, dict[str, Any]]]) -> str:
    who = [w.value for w in Who if any(w.value in row for row in cells.values())]
    low, middle, high = span(results, "load")
    seeds = ", ".join(sorted({str(h["seed"]) for h in headers}))
    counts = ", ".join(f"{sum(r['who'] == w for r in results)} under {SUBJECTS[w]}" for w in who)
    missed = sum(r["end"] == End.MISSED.value for r in results)
    again = sum(r["throw"] > 0 for r in results)
    lines = [
        "# League of faults",
        "",
        "<!-- Generated by `make league-report`. Do not edit. -->",
        "",
        "A seeded schedule of faults, played against `supervise` and what people use instead. An injector outside of every contender causes each fault: it",
        "sends signals, changes files and fills the disk. The same unit surrounds each contender: it restarts the contender 0.3 s after an exit code other",
        "than 0, three times at most, and not after a code that asks for an operator. The training is that of `supervise demo`: four ranks, 40 steps,",
        "a save every four steps. It is deterministic: a run ended right if its weights are those of an undisturbed run, bit for bit.",
        "",
        "```console",
        f"$ make league SEED={headers[0]['seed']} FAULTS=300",
        f"$ make league SEED={headers[0]['seed']} NUMBER=17 WHO=supervise KEEP=1",
        "```",
        "",
        "The second command replays one game and keeps its directory. An interrupted league resumes.",
        "",
        "## What was played",
        "",
        f"{len(results)} games: {counts}. Seed {seeds}, {headers[0]['cores']} cores, load {low} to {high} (median {middle}).",
        f"Build: {headers[0]['build']}, commit {headers[0]['commit'] or 'unknown'}.",
        "",
        "A game whose fault missed its moment, or whose injector waited more than 3 s for a processor, is played again at another step of the same seed:",
        f"{again} were. {missed} do not count, after four tries.",
        "",
        "| contender | version | sha256 |",
        "| --- | --- | --- |",
    ]
    versions = {w: v for header in headers for w, v in header["contenders"].items()}
    lines += [f"| {NAMES[w]} | {versions[w]['version']} | {versions[w]['sha256'][:16] or '-'} |" for w in who]
    lines += [
        "",
        "The whole hashes and every count are in [league.json](league.json).",
        "",
        "## How the games ended",
        "",
        "*n of m*: games with the right end. A *wrong end* is an exit code 0 with other weights, the worst of all. *Operator needed*: the contender stopped",
        "for good. *Never over*: still running at the limit of "
        + f"{headers[0]['limit']:g} s, or more than twenty gangs in a row without a new step. *From zero*: training began",
        "again at step 1 without a word although there were checkpoints. *Orphans*: processes that still run 5 s after the end.",
        "",
        f"| fault | {' | '.join(NAMES[w] for w in who)} |",
        f"| --- |{' --- |' * len(who)}",
    ]
    lines += [f"| `{kind}` | {' | '.join(ends(row[w]) if w in row else '' for w in who)} |" for kind, row in cells.items()]
    lines += [
        "",
        "## What the counts allow to say",
        "",
        "The highest rate at which games may end other than right, with 95 % confidence (exact binomial, one-sided). If none of n did, it is about 3 / n:",
        "few games say little, and no row says anything about another.",
        "",
        f"| fault | {' | '.join(NAMES[w] for w in who)} |",
        f"| --- |{' --: |' * len(who)}",
    ]
    lines += [f"| `{kind}` | {' | '.join(percent(row[w]['not_right_at_most']) if w in row else '' for w in who)} |" for kind, row in cells.items()]
    lines += [
        "",
        "## What it cost",
        "",
        "Median seconds from start to end, median share of the undisturbed time in it (ETTR), and mean of the steps trained twice, of the games with the right",
        "end. The undisturbed time is that of the bare training with the start of its processes. Times depend on the load, see above.",
        "",
        f"| fault | {' | '.join(f'{NAMES[w]}: s | ETTR | steps again' for w in who)} |",
        f"| --- |{' --: | --: | --: |' * len(who)}",
    ]
    lines += [f"| `{kind}` | {' | '.join(cost(row.get(w)) for w in who)} |" for kind, row in cells.items()]
    lines += ["", "## Where we lose", "", *losses(cells), "", "## The faults", "", "| fault | what happens |", "| --- | --- |"]
    lines += [f"| `{kind.value}` | {WHAT[kind]} |" for kind in Kind]
    lines += ["", *LIMITS]
    return "\n".join(lines) + "\n"


NAMES = {"supervise": "supervise", "bash_loop": "bash loop", "torchrun": "torchrun"}
SUBJECTS = {**NAMES, "bash_loop": "the bash loop"}

LIMITS = [
    "## What this does not show",
    "",
    "- The training is a miniature: its checkpoints are small, and its steps take 25 ms (300 ms for hangs and NaN). Real trainers are broken in",
    "  [reliability](reliability.md) and in `make test-real`.",
    "- All on one machine. Nothing here says anything about several nodes or about GPUs.",
    "- `hang_spin`, `deterministic` and `nan` are played by the trainer: a process cannot be made to do so from outside.",
    "- The fault comes at a step, not at a bit-equal moment: the injector polls every 3 ms, and later on a busy machine.",
    "- torchrun gets `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, without which a restarted gang can hang, and `--max_restarts=3`.",
]


def cost(found: dict[str, Any] | None) -> str:
    if not found or found["wall_median"] is None:
        return " | | "
    return f"{found['wall_median']:.1f} | {found['ettr_median']:.2f} | {found['steps_again'] / found['right']:.1f}"


def losses(cells: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Each fault where another contender ends right as often, and sooner or with fewer steps trained twice; or ends right more often."""
    ours = Who.SUPERVISE.value
    lines = []
    for kind, row in cells.items():
        mine = row.get(ours)
        for who, other in row.items():
            if not mine or who == ours or not mine["games"] or not other["games"]:
                continue
            share, others = mine["right"] / mine["games"], other["right"] / other["games"]
            if others > share:
                lines.append(f"- `{kind}`: {SUBJECTS[who]} ends right more often: {ends(other)}; supervise {ends(mine)}.")
            elif others == share > 0 and mine["wall_median"] > other["wall_median"]:
                lines.append(f"- `{kind}`: {SUBJECTS[who]} needs {mine['wall_median'] - other['wall_median']:.1f} s less (median).")
    return lines or ["Nowhere in these games."]
