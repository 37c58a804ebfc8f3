# Shared parts of the Slurm test clusters; source it. `dir` is the cluster's directory.

# The process in a pid file, if it is still that program.
pid_of() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] && echo "$pid"
}

stop() {
  local pid
  pid=$(pid_of "$1" "$2") || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 100); do
    [ -d "/proc/$pid" ] || return 0
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
}

# Waits, for minutes if it must.
until_true() {
  for _ in $(seq 1200); do
    if "$@"; then return; fi
    sleep 0.25
  done
  echo "$(basename "$0"): it never came to: $*" >&2
  tail -n 20 "$dir"/log/* >&2
  return 1
}

no_jobs() { [ -z "$(squeue -h 2>/dev/null)" ]; }

# Directories, and the key of munge.
lay_out() {
  mkdir -p "$dir"/{etc,state,spool,log,run,munge}
  # munged refuses a socket in a directory that it does not trust.
  chmod 755 "$dir" "$dir"/{etc,munge,run}
  (umask 077 && head -c 1024 /dev/urandom >"$dir/munge/key")
}

start_controller() {
  munged --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" --log-file="$dir/log/munged.log" \
    --seed-file="$dir/munge/seed" --num-threads=2 --force
  slurmctld -f "$SLURM_CONF"
}

end_jobs() {
  if pid_of "$dir/run/slurmctld.pid" slurmctld >/dev/null; then
    scancel --quiet --user="$(id -un)" || true
    for _ in $(seq 200); do
      if no_jobs; then break; fi
      sleep 0.25
    done
  fi
}

stop_controller() {
  stop "$dir/run/slurmctld.pid" slurmctld
  stop "$dir/munge/pid" munged
}
