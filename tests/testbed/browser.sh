#!/usr/bin/env bash
# A browser, and what drives it, for the tests of the pages, and Prometheus' own checker for the test of the metrics: Debian's packages.
# The checker is unpacked and not installed: the package would start a server.
#
# usage: browser.sh install     what is missing (Debian, root)
#        browser.sh promtool    prints where the checker is, or nothing
set -euo pipefail
place=$(cd "$(dirname "$0")/../.." && pwd)/target/testbed

checker() {
  command -v promtool && return
  if [ -x "$place/usr/bin/promtool" ]; then echo "$place/usr/bin/promtool"; fi
}

if [ "${1:?install or promtool}" = promtool ]; then
  checker
  exit 0
fi
if [ -n "$(checker)" ] && command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "browser.sh: chromium, chromedriver and promtool are missing, and only root on Debian can install them here" >&2
  exit 1
fi
log=$(mktemp)
# One package manager at a time: other parts of the tests may install theirs.
exec 9>"${TMPDIR:-/tmp}/supervise-testbed.lock"
flock 9
mkdir -p "$place"
if ! { apt-get update -q && cd "$place" && apt-get download -q prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb &&
  DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium chromium-driver fonts-dejavu-core; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  exit 1
fi
rm -f "$log"
