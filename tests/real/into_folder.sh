# Sourced by the scripts that install into a folder of their own beside the environment of install.sh. Its stamp works as that one's does.
#
# begin FOLDER FILE…: sets `folder` and makes it; ends the script where the stamp tells that what FILE… ask for is there, else empties it.
# finish NAME: runs the function `install` into a log, shows the log's end if it fails, writes the stamp and how long it took.

begin() {
  mkdir -p "$1"
  folder=$(cd "$1" && pwd)
  shift
  want=$({ cat "$0" "${BASH_SOURCE[0]}" "$@"; echo "$@"; } | sha256sum | cut -d' ' -f1)
  # Two test runs may ask for the same folder at once.
  exec 9>"$folder/.lock"
  flock 9
  if [ "$(cat "$folder/.ready" 2>/dev/null)" = "$want" ]; then
    exit 0
  fi
  find "$folder" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
  start=$SECONDS
}

finish() {
  local code
  # Not as part of a condition: set -e would not hold in it.
  set +e
  (
    set -e
    install
  ) >"$folder/install.log" 2>&1
  code=$?
  set -e
  if [ "$code" -ne 0 ]; then
    tail -n 30 "$folder/install.log" >&2
    echo "$(basename "$0"): failed; the whole output is in $folder/install.log" >&2
    exit 1
  fi
  printf '%s' "$want" >"$folder/.ready"
  printf '%-12s %4d s, %s MB\n' "$1" $((SECONDS - start)) "$(du -sm "$folder" | cut -f1)"
}
