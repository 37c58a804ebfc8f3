"""A run as a notebook shows it. Everything that comes from a run is escaped; there is no script."""

from __future__ import annotations

from datetime import datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from ._runs import Attempt, Status

WIDTH, HEIGHT, EDGE = 420, 90, 4
# Beyond it lines could not be told apart.
ATTEMPTS = 200
GOOD, BAD, BUSY = "#2da44e", "#cf222e", "#0969da"
Line = Tuple[float, float, float, float, bool]


def problem(name: str, text: str) -> str:
    """A run that cannot be read."""
    return f'<div><b>{escape(name)}</b><pre style="color:{BAD}">{escape(text)}</pre></div>'


def run(status: Status, attempts: Sequence[Attempt], now: datetime) -> str:
    """State, step, time since the last progress, and the steps over time."""
    step = "?" if status.step is None else str(status.step)
    planned = "" if status.planned is None else f" / {status.planned}"
    facts = [f"step {step}{planned}", f"attempt {status.attempts}"]
    if status.mark is not None:
        facts.append(f"newest proven step {status.mark}")
    if status.since_progress is not None:
        facts.append(f"last progress {span(status.since_progress)} ago")
    why = status.outcome.why if status.outcome is not None else status.problem
    return (
        f'<div style="max-width:{WIDTH}px"><b>{escape(status.name or status.run)}</b> '
        f'<span style="color:{colour(status)}">● {escape(status.state)}</span><br>'
        f"<small>{escape(' · '.join(facts))}</small><br>"
        f"{plot(attempts, status, now)}" + (f"<br><small>{escape(why)}</small>" if why else "") + "</div>"
    )


def colour(status: Status) -> str:
    """Of the state."""
    if status.outcome is not None:
        return GOOD if status.outcome.exit_code == 0 else BAD
    return BAD if status.pace in ("late", "overdue") else BUSY


def span(of: timedelta) -> str:
    """In its largest unit."""
    seconds = int(of.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def plot(attempts: Sequence[Attempt], status: Status, now: datetime) -> str:
    """One line per attempt, from the step it resumed at to the one it reached."""
    lines = points(attempts, now)
    if not lines:
        return ""
    first, last = min(line[0] for line in lines), max(line[2] for line in lines)
    top = float(max([1.0, *(line[3] for line in lines), *([float(status.planned)] if status.planned else [])]))

    def at(time: float, step: float) -> str:
        x = EDGE + (time - first) / max(last - first, 1e-9) * (WIDTH - 2 * EDGE)
        y = HEIGHT - EDGE - min(step / top, 1.0) * (HEIGHT - 2 * EDGE)
        return f"{x:.1f},{y:.1f}"

    drawn = [
        f'<polyline points="{at(began, low)} {at(ended, high)}" fill="none" stroke="{BAD if failed else BUSY}" stroke-width="2"/>'
        for began, low, ended, high, failed in lines
    ]
    title = f"steps over time, {len(attempts)} attempts, up to step {top:.0f}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#8884"/>{"".join(drawn)}</svg>'
    )


def points(attempts: Sequence[Attempt], now: datetime) -> List[Line]:
    """Start, its step, end, its step, and whether a failure ended it."""
    out: List[Line] = []
    for attempt in attempts[-ATTEMPTS:]:
        if attempt.launched is None:
            continue
        began = attempt.launched.timestamp()
        ended = now.timestamp() if attempt.ran is None else began + attempt.ran.total_seconds()
        low = attempt.from_step or 0
        high: Optional[int] = attempt.to_step
        out.append((began, float(low), ended, float(low if high is None else high), attempt.failure is not None))
    return out
