#!/usr/bin/env bash
# Runs parts of the tests one after the other; ends with what each took, slowest first. A part that fails hides none of the others.
#
# usage: parts.sh TARGET...      (targets of the Makefile)
set -uo pipefail
cd "$(dirname "$0")/.."
times=()
failed=()
for part in "$@"; do
  began=$SECONDS
  "${MAKE:-make}" --no-print-directory "$part" || failed+=("$part")
  times+=("$((SECONDS - began)) s $part")
done
printf '%s\n' "${times[@]}" | sort -rn
if [ ${#failed[@]} -gt 0 ]; then
  echo "parts.sh: failed: ${failed[*]}" >&2
  exit 1
fi
