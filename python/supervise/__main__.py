"""python3 -m supervise saved PATH STEP: reports a checkpoint of a loop that was saved without a supervisor."""

import sys

from ._report import mark


def main() -> int:
    if len(sys.argv) != 4 or sys.argv[1] != "saved":
        print(__doc__, file=sys.stderr)
        return 64
    try:
        mark(sys.argv[2], int(sys.argv[3]))
    except (OSError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 64
    return 0


sys.exit(main())
