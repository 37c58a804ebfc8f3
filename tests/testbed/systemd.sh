#!/usr/bin/env bash
# A real systemd for one test: pid 1 of its own namespaces, with journald and its own control groups, booted by systemd-nspawn. Its root is
# an overlay over this machine's, so that a program built here has its own path; its writes vanish with it.
#
# usage: systemd.sh install               the packages, where they are missing (Debian, root)
#        systemd.sh up DIR FOLDER         boots it; units stand in DIR/units, FOLDER is shared at its own path; units named in DIR/wanted
#                                         are started at boot
#        systemd.sh run DIR COMMAND...    runs a command in it
#        systemd.sh off DIR               cuts its power
#        systemd.sh down DIR              shuts it down, and kills leftovers by pid
set -euo pipefail
mode=${1:?install, up, run, off or down}

install() {
  local log
  if command -v systemctl >/dev/null && command -v systemd-nspawn >/dev/null; then return; fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "systemd.sh: systemd and systemd-container are missing, and only root on Debian can install them here" >&2
    return 1
  fi
  log=$(mktemp)
  # One package manager at a time: other parts of the tests may install theirs.
  exec 9>"${TMPDIR:-/tmp}/supervise-testbed.lock"
  flock 9
  if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
    systemd systemd-container; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    return 1
  fi
  rm -f "$log"
  exec 9>&-
}

# systemd-nspawn, if it is still running.
nspawn() {
  local pid
  pid=$(cat "$dir/nspawn.pid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = systemd-nspawn ] && echo "$pid"
}

# Its pid 1, as seen from here.
leader() {
  local pid child
  pid=$(nspawn) || return 1
  for child in $(cat "/proc/$pid/task/$pid/children" 2>/dev/null); do
    if [ "$(cat "/proc/$child/comm" 2>/dev/null)" = systemd ]; then
      echo "$child"
      return
    fi
  done
  return 1
}

inside() {
  local pid
  pid=$(leader) || { echo "systemd.sh: it does not run" >&2; return 1; }
  nsenter -t "$pid" -m -u -i -n -p -C -w -- "$@"
}

is_up() { inside systemctl is-active -q testbed.target 2>/dev/null; }

# In a mount namespace of its own: everything mounted here goes with it.
boot() {
  local root=$dir/root unit clone own=()
  local units=$root/etc/systemd/system
  clone=$(cd "$(dirname "$0")/../.." && pwd)
  # The box has a /tmp of its own, and programs of a clone below this one are started in it.
  case $clone in /tmp/*) own=(--bind-ro="$clone") ;; esac
  mount -t tmpfs -o size=1g tmpfs "$dir/over"
  mkdir "$dir/over/upper" "$dir/over/work"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/over/upper,workdir=$dir/over/work" "$root"
  rm -f "$root/etc/machine-id"
  : >"$root/etc/machine-id"
  # Nothing that this machine has enabled, and no network of its own to wait for.
  find "$units" -mindepth 1 -maxdepth 1 -name '*.wants' -exec rm -rf {} +
  for unit in systemd-timesyncd systemd-resolved systemd-networkd; do ln -sf /dev/null "$units/$unit.service"; done
  printf '[Unit]\nDescription=the test bed\nRequires=sysinit.target\nAfter=sysinit.target\nAllowIsolate=yes\n' >"$units/testbed.target"
  cp -r "$dir/units/." "$units/"
  mkdir "$units/testbed.target.wants"
  while read -r unit; do ln -s "../$unit" "$units/testbed.target.wants/$unit"; done <"$dir/wanted"
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 exec systemd-nspawn --register=no --keep-unit --quiet --machine=testbed --private-network \
    --console=pipe --link-journal=no --bind="$folder" "${own[@]}" -D "$root" --boot -- --unit=testbed.target
}

# Control groups of the box: it hangs its own below them.
groups() {
  local at
  for at in /sys/fs/cgroup/unified /sys/fs/cgroup/systemd /sys/fs/cgroup; do
    if [ -e "$at/cgroup.procs" ]; then echo "$at/supervise-box-$(basename "$dir")"; fi
  done
}

up() {
  mkdir -p "$dir/units" "$dir/over" "$dir/root"
  touch "$dir/wanted"
  (
    for group in $(groups); do mkdir -p "$group" && echo "$BASHPID" >"$group/cgroup.procs"; done
    echo "$BASHPID" >"$dir/nspawn.pid"
    exec setsid unshare --mount --propagation private "$0" boot "$dir" "$folder" >"$dir/console" 2>&1 </dev/null
  ) &
  for _ in $(seq 3000); do
    if is_up; then return; fi
    if [ ! -d "/proc/$(cat "$dir/nspawn.pid" 2>/dev/null)" ]; then break; fi
    sleep 0.1
  done
  echo "systemd.sh: it did not boot" >&2
  tail -n 20 "$dir/console" >&2
  inside systemctl list-jobs >&2 || true
  inside journalctl --no-pager -n 40 >&2 || true
  off
  return 1
}

gone() {
  local pid=$1
  for _ in $(seq 600); do
    [ -d "/proc/$pid" ] || return 0
    sleep 0.1
  done
  return 1
}

# Everything in it dies at once, as its pid 1 does.
off() {
  local pid
  if pid=$(leader); then kill -9 "$pid" 2>/dev/null || true; fi
  if pid=$(nspawn); then
    gone "$pid" || kill -9 "$pid" 2>/dev/null || true
    gone "$pid" || true
  fi
  rm -f "$dir/nspawn.pid"
  for group in $(groups); do
    if [ -d "$group" ]; then find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true; fi
  done
}

down() {
  local pid
  # The signal by which systemd is asked for its poweroff.target.
  if pid=$(leader); then kill -s RTMIN+4 "$pid" 2>/dev/null || true; fi
  if pid=$(nspawn); then gone "$pid" || true; fi
  off
}

if [ "$mode" != install ]; then dir=$(realpath -m "${2:?a directory}"); fi
case $mode in
  install) install ;;
  up) folder=${3:?a folder} && up ;;
  boot) folder=$3 && boot ;;
  run) shift 2 && inside "$@" ;;
  off) off ;;
  down) down ;;
  *) sed -n '5,11p' "$0" >&2 && exit 2 ;;
esac
