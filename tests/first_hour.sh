#!/usr/bin/env bash
# Plays a user's first hour: installs a wheel into a fresh environment that the user may not write, plays the demo, then every command of the
# quickstart that is marked as runnable. Prints how long each took.
#
# usage: first_hour.sh WHEEL QUICKSTART      (docs/quickstart.md)
set -euo pipefail
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
chmod 755 "$at"
mkdir "$at/home" "$at/tmp" "$at/steps"

# timed NAME COMMAND...: its output is shown if it fails.
timed() {
  local began=${EPOCHREALTIME/./} name=$1 took
  shift
  "$@" >"$at/output" 2>&1 </dev/null || { cat "$at/output"; echo "first_hour.sh: failed: $name" >&2; exit 1; }
  took=$(((${EPOCHREALTIME/./} - began) / 100000))
  printf '%5d.%d s  %s\n' $((took / 10)) $((took % 10)) "$name"
}

timed "python3 -m venv" "${PYTHON:-python3}" -m venv "$at/venv"
timed "pip install $(basename "$1")" "$at/venv/bin/pip" -q --disable-pip-version-check install --no-index "$1"
user=(env -i PATH="$at/venv/bin:/usr/bin:/bin" HOME="$at/home" TMPDIR="$at/tmp")
if [ "$(id -u)" = 0 ]; then
  chown 1000:1000 "$at/home" "$at/tmp"
  user=(setpriv --reuid 1000 --regid 1000 --clear-groups "${user[@]}")
fi

awk -v out="$at/steps/" '
  /^<!-- runnable -->/ { marked = 1; next }
  /^```sh/ && marked { marked = 0; inside = 1; file = sprintf("%s%02d", out, ++n); next }
  /^```/ { inside = 0 }
  inside { print > file }' "$2"
cd "$at/home"
timed "supervise demo" "${user[@]}" supervise demo
[ -z "$(ls "$at/tmp")" ] || { ls "$at/tmp"; echo "first_hour.sh: the demo left files" >&2; exit 1; }
for step in "$at"/steps/*; do
  timed "$(head -n 1 "$step")$([ "$(wc -l <"$step")" = 1 ] || echo "  (and $(($(wc -l <"$step") - 1)) more)")" "${user[@]}" bash -euo pipefail "$step"
done
printf '%5d   s  in all\n' $SECONDS
