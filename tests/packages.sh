#!/usr/bin/env bash
# Installs each package where nothing else is, and there looks at the machine and plays the demo: the wheel by pip into a fresh
# environment and by `uv tool install`, the .deb by apt into a fresh Debian, the tarball unpacked in a fresh Debian. Then plays a user's first
# hour with the wheel.
#
# usage: packages.sh DIST      (what `make dist` made)
set -euo pipefail
dist=$(cd "$1" && pwd)
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
"$1" demo >demo 2>&1 || { cat demo; exit 1; }
# It leaves no file, and no run in the list.
if ls -d "${TMPDIR:-/tmp}"/supervise-demo-* 2>/dev/null || "$1" status 2>/dev/null | grep supervise-demo; then exit 1; fi
test -s "$3/supervise/examples/configs/verl_sft.yaml"
cd / && rm -rf "$HOME"
TRY

# here COMMAND...: as on a machine of which PATH knows nothing but the system.
here() { env -i PATH=/usr/bin:/bin TMPDIR="$at" sh "$at/try.sh" "$@"; }

"${PYTHON:-python3}" -m venv "$at/venv"
pip=("$at/venv/bin/pip" --disable-pip-version-check -q install)
"${pip[@]}" --no-index "${wheels[0]}"
here "$at/venv/bin/supervise" "$at/venv/bin/supervise-rl" "$at/venv/share"
said "wheel by pip"

# What is imported is what the wheel has, and the program is the one beside it.
(cd "$at" && "$at/venv/bin/python" -m unittest discover -q -s "$OLDPWD/tests/python")
said "Python package"

"${pip[@]}" nbclient==0.11.0 ipykernel==7.4.0
HOME=$at/notebook "$at/venv/bin/python" tests/notebook.py examples/read_runs.ipynb
said "notebook"

"${pip[@]}" "mypy==2.4.1"
(cd "$at" && "$at/venv/bin/mypy" --strict --ignore-missing-imports -p supervise)
said "types"

"${pip[@]}" "uv>=0.9"
export UV_TOOL_DIR=$at/tools UV_TOOL_BIN_DIR=$at/tool-bin UV_CACHE_DIR=$at/uv
"$at/venv/bin/uv" -q tool install --offline --python "$at/venv/bin/python" "${wheels[0]}"
here "$at/tool-bin/supervise" "$at/tool-bin/supervise-rl" "$at/tools/supervise-rl/share"
said "wheel by uv"

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
  echo "packages.sh: skipped: .deb and tarball, which want a fresh Debian (root, mmdebstrap)" >&2
  exit 0
fi
. /etc/os-release
mmdebstrap -q --variant=apt "$VERSION_CODENAME" "$at/debian"
said "a fresh Debian"
mkdir "$at/debian/given"
cp "$at/try.sh" "${debs[@]}" "${tarballs[@]}" "$at/debian/given/"
# inside COMMAND...: with its own processes, which end with it.
inside() { unshare --mount --pid --fork --kill-child --mount-proc="$at/debian/proc" chroot "$at/debian" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin "$@"; }

inside sh -euc 'tar -C /opt -xzf /given/supervise-*.tar.gz; cd /opt/supervise-*; sh /given/try.sh "$PWD/bin/supervise" "$PWD/bin/supervise-rl" "$PWD/share"; rm -r "$PWD"'
said tarball

apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -qqy --no-install-recommends)
inside sh -euc "${apt[*]} install /given/*.deb >/given/log 2>&1 || { cat /given/log; exit 1; }"
inside sh /given/try.sh supervise supervise-rl /usr/share
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

inside sh -euc "apt-get update -qq && ${apt[*]} install python3-venv >/given/log 2>&1 || { cat /given/log; exit 1; }"
said "Python in that Debian"
cp tests/first_hour.sh docs/quickstart.md "${wheels[0]}" "$at/debian/given/"
inside bash /given/first_hour.sh "/given/$(basename "${wheels[0]}")" /given/quickstart.md
said "a first hour with the wheel"

prometheus=$(tests/testbed/browser.sh prometheus)
if [ -n "$prometheus" ]; then
  tests/compose.sh "$dist" "$at/debian" "$prometheus"
  said "the steps of contrib/docker"
else
  echo "packages.sh: skipped: contrib/docker, which wants Prometheus" >&2
fi
