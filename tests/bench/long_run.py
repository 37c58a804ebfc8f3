"""Prints what long_run measured, with ratios to what is aimed at. Reads its JSON on standard input."""

import json
import sys

AIMS = [
    ("bytes of journal a save", "bytes_a_save", 1024),
    ("status, ms", "status_ms", 100),
    ("start of a term, ms", "start_ms", 200),
]

n = json.load(sys.stdin)
for what, key, aim in AIMS:
    print(f"{what:28} {n[key]:>10}   {n[key] / aim:.2f} x the aim of {aim}")
early, late = n["memory_kib_after_a_tenth"], n["memory_kib_at_the_end"]
print(f"{'memory, KiB':28} {late:>10}   {late / early:.2f} x after a tenth of the saves")
fold = n["fold_without_snapshot_ms"]
print(f"{'fold without a snapshot, ms':28} {fold:>10}   {fold / max(n['start_ms'], 0.1):.0f} x with one")
