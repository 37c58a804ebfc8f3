#!/usr/bin/env bash
# Finds modules and types that still have a retired name.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find config supervisor tests -name '*.rs')

gone='host/src/(lane|leash|feed|sink)|driver/(lanes|wires)|trainers/src/(way|starter)|verl/(fits|needs|wishes|part)|core/src/(live|resume/part)'
gone+='|zip/seams|prepare/(room|elsewhere|shown|learn)|checkpoint/src/record|tests/(it|live|lab|catch)'
left=$(printf '%s\n' "${files[@]}" | grep -E "($gone)(/|\.rs)" || true)
left+=$(grep -nE '\b(struct|enum|trait) (Book|Wires|Leash|Lane\w*)\b' "${files[@]}" || true)
if [ -n "$left" ]; then
  printf 'words.sh: retired names:\n%s\n' "$left" >&2
  exit 1
fi
