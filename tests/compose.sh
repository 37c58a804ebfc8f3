#!/usr/bin/env bash
# Plays the steps of contrib/docker in a fresh Debian, in namespaces of its own: no image is built or pulled. The Dockerfile's RUN, the commands of
# compose.yaml, and a real Prometheus with its configuration, which must find the metrics and load the alerts. Grafana is not started: only its
# files are looked at.
#
# usage: compose.sh DIST DEBIAN PROMETHEUS      (`make dist`, a root without supervise-rl, the program; root)
set -euo pipefail
dist=$(cd "$1" && pwd) debian=$(cd "$2" && pwd) prometheus=$(realpath "$3")
cd "$(dirname "$0")/../contrib/docker"
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
fail() { echo "compose.sh: $*" >&2; exit 1; }

# What a service mounts is there.
for file in $(sed -n 's/^ *- \(\.[^:]*\):.*/\1/p' compose.yaml); do test -f "$file" || fail "$file is not there"; done
python3 -m json.tool ../grafana/supervise.json >/dev/null

# RUN of the Dockerfile, without the mount that Docker makes.
awk '/^RUN/ { p = 1 } p { print } p && !/\\$/ { exit }' Dockerfile | sed '1s/.*\\$/set -eu; \\/' >"$at/run.sh"
mkdir -p "$debian/dist"
unshare --mount sh -euc 'mount --bind "$1" "$2/dist"; mount -t proc proc "$2/proc"; DEBIAN_FRONTEND=noninteractive chroot "$2" sh -eu <"$3"' sh "$dist" "$debian" "$at/run.sh" >"$at/log" 2>&1 ||
  { cat "$at/log"; fail "RUN of the Dockerfile failed"; }

# The commands of the services, with short steps.
sed -n 's/^    command: //p' compose.yaml | sed 's/step_ms=5000/step_ms=50/' >"$at/commands"
[ "$(wc -l <"$at/commands")" = 2 ] || fail "expected two commands in compose.yaml"
python3 -c 'import json, shlex, sys; [print(shlex.join(json.loads(line))) for line in sys.stdin]' <"$at/commands" >"$at/services"
sed -n 's/^ENV /export /p; s/^WORKDIR /cd /p' Dockerfile >"$debian/dist.env"
cp prometheus.yaml ../prometheus/alerts.yaml "$at/"
echo "127.0.0.1 localhost supervise" >"$at/hosts"

cat >"$at/play.sh" <<'PLAY'
set -eu
at=$1 debian=$2 prometheus=$3
mount --bind "$at/hosts" /etc/hosts
mount -t proc proc "$debian/proc"
ip link set lo up
service() { chroot "$debian" env -i PATH=/usr/bin:/bin HOME=/home/supervise setpriv --reuid 1000 --regid 1000 --clear-groups sh -c ". /dist.env; exec $(sed -n "$1p" "$at/services")"; }
service 1 >"$at/serve.log" 2>&1 &
service 2 >"$at/run.log" 2>&1 || { cat "$at/run.log"; exit 1; }
"$prometheus" --config.file="$at/prometheus.yaml" --storage.tsdb.path="$at/tsdb" >"$at/prometheus.log" 2>&1 &
found() { python3 -c 'import json, sys, urllib.parse, urllib.request as u; print(u.urlopen("http://127.0.0.1:9090/api/v1/" + sys.argv[1]).read().decode())' "$1" 2>/dev/null; }
for try in $(seq 120); do
  if found 'query?query=supervise_run_proven_step==14' | grep -q '"supervise:8617"' && found rules | grep -q SuperviseRunNeedsPerson; then exit 0; fi
  sleep 1
done
cat "$at/serve.log" "$at/prometheus.log"
exit 1
PLAY
unshare --mount --pid --net --fork --kill-child --mount-proc bash "$at/play.sh" "$at" "$debian" "$prometheus" || fail "Prometheus does not find the metrics"
rm -rf "$debian/dist" "$debian/dist.env"
