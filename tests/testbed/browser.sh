#!/usr/bin/env bash
# A browser, and what drives it, for the tests of the pages; Prometheus and its checker for those of the metrics: Debian's packages.
# Prometheus is unpacked and not installed: the package would start a server.
#
# usage: browser.sh install     what is missing (Debian, root)
#        browser.sh promtool    prints where the checker is, or nothing
#        browser.sh prometheus  prints where Prometheus itself is, or nothing
set -euo pipefail
place=$(cd "$(dirname "$0")/../.." && pwd)/target/testbed

place_of() {
  command -v "$1" && return
  if [ -x "$place/usr/bin/$1" ]; then echo "$place/usr/bin/$1"; fi
}

case ${1:?install, promtool or prometheus} in
  promtool | prometheus)
    place_of "$1"
    exit 0
    ;;
esac
if [ -n "$(place_of promtool)" ] && [ -n "$(place_of prometheus)" ] && command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "browser.sh: chromium, chromedriver, prometheus and promtool are missing, and only root on Debian can install them here" >&2
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
