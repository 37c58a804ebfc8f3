#!/usr/bin/env bash
# Counts the openings of doc comments that describe instead of naming, and finds modules and types by names that were given up.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find config supervisor tests -name '*.rs')

grep -hE '^\s*//[/!] ' "${files[@]}" | awk '
  { lines++ }
  $2 ~ /^(What|Where|Which|Whether|Who|So)$/ { openings++ }
  END {
    share = 100 * openings / lines
    printf "%d of %d lines of doc comments begin with What, Where, Which, Whether, Who or So: %.2f %%\n", openings, lines, share
    if (share >= 3) { print "words.sh: fewer than 3 % are wanted: say what the thing is" > "/dev/stderr"; exit 1 }
  }'

gone='host/src/(lane|leash|feed|sink)|driver/(lanes|wires)|trainers/src/(way|starter)|verl/(fits|needs|wishes|part)|core/src/(live|resume/part)'
gone+='|zip/seams|prepare/(room|elsewhere|shown|learn)|checkpoint/src/record|tests/(it|live|lab|catch)'
left=$(printf '%s\n' "${files[@]}" | grep -E "($gone)(/|\.rs)" || true)
left+=$(grep -nE '\b(struct|enum|trait) (Book|Wires|Leash|Lane\w*)\b' "${files[@]}" || true)
if [ -n "$left" ]; then
  printf 'words.sh: names that were given up:\n%s\n' "$left" >&2
  exit 1
fi
