"""Prints the results of run.sh (one JSON object per line) as a table, with ratios to supervise."""

import json
import sys

COLUMNS = {
    "start, ms": lambda r: r.get("cold_ms", r.get("cold_to_step1_ms")),
    "first back, ms": lambda r: middle(r.get("first_ms")),
    "all back, ms": lambda r: middle(r.get("all_ms")),
    "kill to step, ms": lambda r: middle(r.get("kill_to_step_ms")),
    "most, ms": lambda r: (r.get("all_ms") or r.get("kill_to_step_ms") or [None] * 3)[2],
    "private, MiB": lambda r: r.get("private_mib"),
    "idle CPU, %": lambda r: r.get("idle_cpu_percent"),
}


def middle(spread):
    return spread[1] if spread else None


def cell(value, base):
    if value is None:
        return ""
    ratio = f" ({value / base:.1f}x)" if base else ""
    return f"{value:g}{ratio}"


def show(title, rows, base):
    columns = [(name, pick) for name, pick in COLUMNS.items() if any(pick(r) is not None for r in rows)]
    print(f"\n{title}\n| | {' | '.join(name for name, _ in columns)} | rounds |")
    print("|---" * (len(columns) + 2) + "|")
    for row in rows:
        cells = [cell(pick(row), pick(base) if base and row is not base else None) for _, pick in columns]
        rounds = row.get("rounds", row.get("kills"))
        print(f"| {row['name']} | {' | '.join(cells)} | {rounds}{', stuck: ' + row['stuck'] if 'stuck' in row else ''} |")


def main():
    with open(sys.argv[1]) as lines:
        rows = [json.loads(line) for line in lines]
    for title, group in (
        ("Idle workers", [r for r in rows if "kills" not in r]),
        ("Real training, two ranks", [r for r in rows if "kills" in r]),
    ):
        if group:
            show(title, group, next((r for r in group if r["name"].startswith("supervise")), None))


if __name__ == "__main__":
    main()
