#!/usr/bin/env bash
# Installs what tests need of a Debian: FUSE and its Python binding for file systems, mmdebstrap for packages, tmux for screens, systemd, Slurm,
# a browser. Says what is missing where it cannot.
set -eu
here=$(dirname "$0")
"$here/systemd.sh" install || echo "install.sh: skipped: there is no systemd for the test of the unit" >&2
"$here/slurm.sh" install || echo "install.sh: skipped: there is no Slurm for the test of the batch script" >&2
"$here/browser.sh" install || echo "install.sh: skipped: there is no Chromium for the test of the page, no Prometheus for those of the metrics" >&2
if command -v fusermount3 >/dev/null && command -v mmdebstrap >/dev/null && command -v tmux >/dev/null && /usr/bin/python3 -c 'import fusepy' 2>/dev/null; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "install.sh: skipped: fuse3, python3-fusepy, mmdebstrap or tmux are missing, and only root on Debian can install them here" >&2
  exit 0
fi
log=$(mktemp)
exec 9>"${TMPDIR:-/tmp}/supervise-testbed.lock"
flock 9
if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends fuse3 python3-fusepy mmdebstrap tmux; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  exit 1
fi
rm -f "$log"
