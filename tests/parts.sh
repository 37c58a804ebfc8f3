#!/usr/bin/env bash
# Runs parts of the tests in streams, the parts of a stream one after the other; ends with what each took, slowest first. Each line tells
# whose it is. A part that fails hides none of the others.
#
# usage: parts.sh STREAM...      (a stream: names of targets of the Makefile, the more urgent stream first)
#
# The streams run at once where this machine lets a later one have only what an earlier one leaves: in a control group of an eighth of
# the usual weight (none at all would end what has time limits of its own).
# Niceness would not do it: the kernel weighs sessions, and what is tested starts many. Elsewhere they run one after the other.
set -uo pipefail
cd "$(dirname "$0")/.."
ends=$(mktemp -d)
group=
trap 'rm -rf "$ends"; [ -z "$group" ] || rmdir "$group"' EXIT

# Makes the group for who yields: version 1 of control groups, or 2.
for weight in /sys/fs/cgroup/cpu/supervise-tests-$$/cpu.shares=128 /sys/fs/cgroup/supervise-tests-$$/cpu.weight=12; do
  if mkdir "${weight%/*}" 2>/dev/null; then
    group=${weight%/*}
    if { echo "${weight#*=}" >"${weight%=*}" && sh -c 'echo $$ >"$0/cgroup.procs"' "$group"; } 2>/dev/null; then break; fi
    rmdir "$group"
    group=
  fi
done

# stream TARGET...
stream() {
  local part began
  for part in "$@"; do
    began=$SECONDS
    ${MAKE:-make} --no-print-directory "$part" 2>&1 | sed -u "s/^/$part: /" | tee "$ends/$part.out"
    if [ "${PIPESTATUS[0]}" != 0 ]; then echo "$part" >>"$ends/failed"; fi
    echo "$((SECONDS - began)) s $part" >>"$ends/times"
  done
}

# shellcheck disable=SC2086 # a stream is several words
if [ -n "$group" ]; then
  stream $1 &
  for parts in "${@:2}"; do
    (echo "$BASHPID" >"$group/cgroup.procs" && stream $parts) &
  done
  wait
else
  for parts in "$@"; do stream $parts; done
fi
sort -rn "$ends/times"
if [ -e "$ends/failed" ]; then
  # Once more, below all that passed.
  while read -r part; do
    grep -E ' FAILED$|panicked at|Error( |:)|[a-z]: failed' "$ends/$part.out" | tail -n 40 | cut -c1-500
  done <"$ends/failed"
  echo "parts.sh: failed: $(tr '\n' ' ' <"$ends/failed")" >&2
  exit 1
fi
