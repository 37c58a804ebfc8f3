#!/usr/bin/env bash
# Installs each package where nothing else is, and there looks at the machine and runs the demo configuration: the wheel by pip into a fresh
# environment and by `uv tool install`, the .deb by apt into a fresh Debian, the tarball unpacked in a fresh Debian.
#
# usage: packages.sh DIST DEMO_TRAINER      (what `make dist` made, and the program that the demo configuration trains with)
set -euo pipefail
dist=$(cd "$1" && pwd)
trainer=$(realpath "$2")
cd "$(dirname "$0")/.."
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
shopt -s nullglob
wheels=("$dist"/supervise_rl-*.whl) debs=("$dist"/supervise-rl_*.deb) tarballs=("$dist"/supervise-*-linux-gnu.tar.gz)
began=$SECONDS

# said NAME: the time since the last one.
said() { echo "$((SECONDS - began)) s $1"; began=$SECONDS; }
fail() { echo "packages.sh: $*" >&2; exit 1; }

[ ${#wheels[@]} = 1 ] && [ ${#tarballs[@]} = 1 ] || fail "expected one wheel and one tarball in $dist"
(cd "$dist" && sha256sum --quiet -c SHA256SUMS)

# try.sh PROGRAM ALIAS: what a person does first, in an empty home. Runs in the fresh Debian too: nothing but a shell is there.
cat >"$at/try.sh" <<'TRY'
set -eu
export HOME=$(mktemp -d)
cd "$HOME"
"$1" --version --json | tr -d ' \n' | grep -q '"commit":.*"target":"'
[ "$("$2" --version)" = "$("$1" --version)" ]
"$1" doctor >doctor
if grep -w WARNING doctor; then exit 1; fi
"$1" run -q /given/demo.yaml >run 2>&1 || { cat run; exit 1; }
"$1" status demo-run/checkpoints | grep -q 'finished (exit code 0)' || { "$1" status demo-run/checkpoints; exit 1; }
cd / && rm -rf "$HOME"
TRY

# here COMMAND...: as on a machine of which PATH knows nothing but the system and the demo trainer.
mkdir "$at/bin"
ln -s "$trainer" "$at/bin/demo_trainer"
sed 's#/given/demo.yaml#'"$PWD"'/examples/configs/demo.yaml#' "$at/try.sh" >"$at/here.sh"
here() { env -i PATH="$at/bin:/usr/bin:/bin" TMPDIR="$at" sh "$at/here.sh" "$@"; }

"${PYTHON:-python3}" -m venv "$at/venv"
pip=("$at/venv/bin/pip" --disable-pip-version-check -q install)
"${pip[@]}" --no-index "${wheels[0]}"
here "$at/venv/bin/supervise" "$at/venv/bin/supervise-rl"
said "wheel by pip"

"${pip[@]}" "uv>=0.9"
export UV_TOOL_DIR=$at/tools UV_TOOL_BIN_DIR=$at/tool-bin UV_CACHE_DIR=$at/uv
"$at/venv/bin/uv" -q tool install --offline --python "$at/venv/bin/python" "${wheels[0]}"
here "$at/tool-bin/supervise" "$at/tool-bin/supervise-rl"
said "wheel by uv"

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
  echo "packages.sh: skipped: .deb and tarball, which want a fresh Debian (root, mmdebstrap)" >&2
  exit 0
fi
. /etc/os-release
mmdebstrap -q --variant=apt "$VERSION_CODENAME" "$at/debian"
said "a fresh Debian"
mkdir "$at/debian/given"
cp "$at/try.sh" examples/configs/demo.yaml "${debs[@]}" "${tarballs[@]}" "$at/debian/given/"
install "$trainer" "$at/debian/given/demo_trainer"
# inside COMMAND...: with its own processes, which end with it.
inside() { unshare --mount --pid --fork --kill-child --mount-proc="$at/debian/proc" chroot "$at/debian" env -i PATH=/given:/usr/bin:/bin:/usr/sbin:/sbin "$@"; }

inside sh -euc 'tar -C /opt -xzf /given/supervise-*.tar.gz; cd /opt/supervise-*; sh /given/try.sh "$PWD/bin/supervise" "$PWD/bin/supervise-rl"; rm -r "$PWD"'
said tarball

apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -qqy --no-install-recommends)
inside sh -euc "${apt[*]} install /given/*.deb >/given/log 2>&1 || { cat /given/log; exit 1; }"
inside sh /given/try.sh supervise supervise-rl
inside sh -euc 'test -d /etc/supervise/runs; supervise config show >/dev/null
  for file in /usr/share/man/man1/supervise-run.1.gz /usr/share/bash-completion/completions/supervise /usr/share/zsh/site-functions/_supervise \
    /usr/share/fish/vendor_completions.d/supervise.fish /usr/lib/systemd/system/supervise@.service; do test -s "$file"; done'
# Both have a /usr/bin/supervise.
mkdir -p "$at/other/DEBIAN"
printf 'Package: daemontools\nVersion: 1:0.76\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a stand-in\n' >"$at/other/DEBIAN/control"
dpkg-deb -b "$at/other" "$at/debian/given/other.deb" >/dev/null
if inside dpkg -i /given/other.deb >"$at/log" 2>&1; then fail "daemontools is installed beside it"; fi
grep -q 'conflicts with daemontools' "$at/log" || fail "$(cat "$at/log")"
inside sh -euc "${apt[*]} purge supervise-rl >/dev/null; ! test -e /usr/bin/supervise; ! test -e /etc/supervise"
said .deb
