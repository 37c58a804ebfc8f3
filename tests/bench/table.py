"""Prints the results of run.sh (one JSON object per line) as a table, with ratios to supervise."""

import json
import sys

COLUMNS = {
    "start, ms": lambda r: r.get("cold_ms"),
    "first back, ms": lambda r: middle(r.get("first_ms")),
    "all back, ms": lambda r: middle(r.get("all_ms")),
    "most, ms": lambda r: (r.get("all_ms") or [None] * 3)[2],
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
        print(f"| {row['name']} | {' | '.join(cells)} | {row['rounds']}{', stuck: ' + row['stuck'] if 'stuck' in row else ''} |")


def main():
    with open(sys.argv[1]) as lines:
        rows = [json.loads(line) for line in lines]
    show("Idle workers", rows, next((r for r in rows if r["name"].startswith("supervise")), None))


if __name__ == "__main__":
    main()
