#!/usr/bin/env bash
# Runs parts of the tests in streams, all streams at once and the parts of a stream one after the other; ends with what each took, slowest
# first. Each line tells whose it is. A part that fails hides none of the others.
#
# usage: parts.sh STREAM...      (a stream: names of targets of the Makefile, the more urgent stream first)
set -uo pipefail
cd "$(dirname "$0")/.."
ends=$(mktemp -d)
trap 'rm -rf "$ends"' EXIT

# stream NICENESS TARGET...
stream() {
  local niceness=$1 part began
  shift
  for part in "$@"; do
    began=$SECONDS
    nice -n "$niceness" "${MAKE:-make}" --no-print-directory "$part" 2>&1 | sed -u "s/^/$part: /"
    if [ "${PIPESTATUS[0]}" != 0 ]; then echo "$part" >>"$ends/failed"; fi
    echo "$((SECONDS - began)) s $part" >>"$ends/times"
  done
}

# What watches moments goes before what only computes: no test may depend on it, but each is the sooner done.
niceness=0
for parts in "$@"; do
  # shellcheck disable=SC2086 # a stream is several words
  stream "$niceness" $parts &
  niceness=$((niceness + 5))
done
wait
sort -rn "$ends/times"
if [ -e "$ends/failed" ]; then
  echo "parts.sh: failed: $(tr '\n' ' ' <"$ends/failed")" >&2
  exit 1
fi
