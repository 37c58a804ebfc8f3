#!/usr/bin/env bash
# Builds the documentation as a site, and checks it: links, anchors, nothing loaded from elsewhere, questions that a search answers.
#
# usage: site.sh install     the tools, from wheels, into an environment below target
#        site.sh OUT         builds into OUT
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-$PWD/target}/site-tools
want=$(sha256sum <packaging/site/requirements.txt)
if [ "$(cat "$tools/ready" 2>/dev/null)" != "$want" ]; then
  rm -rf "$tools"
  "${PYTHON:-python3}" -m venv "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary :all: -r packaging/site/requirements.txt
  echo "$want" >"$tools/ready"
fi
if [ "${1:?install, or a directory}" = install ]; then exit 0; fi

out=$(mkdir -p "$1" && cd "$1" && pwd)
export NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1
# Not --quiet: it takes warnings for none, and so switches `strict` off.
"$tools/bin/mkdocs" build -f packaging/site/mkdocs.yml -d "$out" 2>&1 | { grep -v '^INFO' || true; }
"$tools/bin/python" packaging/site/check.py "$out"
