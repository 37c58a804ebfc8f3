#!/usr/bin/env bash
# Packs one program as a wheel, a .deb and a tarball. The same commit always gives the same bytes.
#
# usage: dist.sh OUT             builds the program for glibc 2.28 and later, and packs it
#        dist.sh OUT PROGRAM     packs an existing program, whatever it needs
set -euo pipefail
# A package that was not made is no name.
shopt -s nullglob
cd "$(dirname "$0")/.."
root=$PWD
out=$(mkdir -p "$1" && cd "$1" && pwd)
glibc=2.28
largest=$((12 << 20))
machine=$(uname -m)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
BUILD_OF_COMMIT=$(git describe --always --dirty --abbrev=40 --match='')
export SOURCE_DATE_EPOCH BUILD_OF_COMMIT
umask 022

# Tools are installed from wheels, into an environment next to what they build.
tools=${CARGO_TARGET_DIR:-$root/target}/dist-tools
want=$(sha256sum <packaging/requirements.txt)
if [ "$(cat "$tools/ready" 2>/dev/null)" != "$want" ]; then
  rm -rf "$tools"
  "${PYTHON:-python3}" -m venv "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check -r packaging/requirements.txt
  echo "$want" >"$tools/ready"
fi

# No program contains paths of this machine, which would differ on another one.
build() {
  local cargo=${CARGO_HOME:-$HOME/.cargo}
  export RUSTFLAGS="--remap-path-prefix=$root=/supervise --remap-path-prefix=$cargo=/cargo --remap-path-prefix=$out/build=/build --remap-path-prefix=$(rustc --print sysroot)=/rust"
  PATH=$tools/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python \
    cargo zigbuild --profile dist --locked -p supervise --target "$machine-unknown-linux-gnu.$glibc" --target-dir "$out/build"
  program=$out/build/$machine-unknown-linux-gnu/dist/supervise
}

# The oldest supported system is known only for a program that is built here.
tag=manylinux_${glibc/./_}_$machine effort=9
if [ $# = 2 ]; then program=$2 tag=linux_$machine effort=1; else build; fi
rm -rf "$out/work"
work=$out/work
mkdir -p "$work"
strip -o "$work/supervise" "$program"
newest=$(objdump -T "$work/supervise" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
size=$(stat -c %s "$work/supervise")
echo "dist.sh: $size bytes, needs ${newest/_/ }"
if [ $# = 1 ]; then
  [ "$(printf 'GLIBC_%s\n%s\n' $glibc "$newest" | sort -V | tail -n 1)" = GLIBC_$glibc ] || { echo "dist.sh: more than glibc $glibc is needed" >&2; exit 1; }
  [ "$size" -le $largest ] || { echo "dist.sh: larger than $largest bytes" >&2; exit 1; }
fi
"$tools/bin/python" packaging/sbom.py "$version" "$machine-unknown-linux-gnu" >"$work/sbom.json"
"$tools/bin/python" packaging/check_sbom.py "$work/sbom.json"

# wheel: the program, its second name, the Python package and the examples, in the layout of the binary distribution format.
wheel() {
  local at=$work/wheel dist data
  dist=$at/supervise_rl-$version.dist-info
  data=$at/supervise_rl-$version.data
  mkdir -p "$data/scripts" "$data/data/share/supervise" "$dist/licenses" "$dist/sboms"
  install -m755 "$work/supervise" packaging/supervise-rl "$data/scripts/"
  cp -r examples "$data/data/share/supervise/"
  install -Dm644 -t "$at/supervise" python/supervise/*.py python/supervise/py.typed
  install -m644 LICENSE "$dist/licenses/LICENSE"
  install -m644 "$work/sbom.json" "$dist/sboms/supervise.cdx.json"
  sed "s/@VERSION@/$version/" packaging/wheel-metadata | cat - README.md >"$dist/METADATA"
  printf 'Wheel-Version: 1.0\nGenerator: supervise\nRoot-Is-Purelib: false\nTag: py3-none-%s\n' "$tag" >"$dist/WHEEL"
  chmod 644 "$dist/METADATA" "$dist/WHEEL"
  "$tools/bin/wheel" pack "$at" -d "$out" >/dev/null
}

# Everything that `make install` installs, and the second name.
files() {
  make -s install BIN="$work/supervise" DESTDIR="$1" PREFIX="$2"
  ln -s supervise "$1$2/bin/supervise-rl"
}

deb() {
  local at=$work/deb architecture
  architecture=$(dpkg --print-architecture)
  files "$at" /usr
  gzip -9n "$at"/usr/share/man/man1/*.1
  ln -s supervise.1.gz "$at/usr/share/man/man1/supervise-rl.1.gz"
  install -d "$at/DEBIAN" "$at/etc/supervise/runs" "$at/usr/share/doc/supervise-rl"
  install -m644 packaging/config.yaml "$at/etc/supervise/config.yaml"
  install -m644 "$work/sbom.json" "$at/usr/share/doc/supervise-rl/supervise.cdx.json"
  install -m644 README.md "$at/usr/share/doc/supervise-rl/README.md"
  install -m644 packaging/copyright "$at/usr/share/doc/supervise-rl/copyright"
  gzip -9n <CHANGELOG.md >"$at/usr/share/doc/supervise-rl/changelog.gz"
  echo /etc/supervise/config.yaml >"$at/DEBIAN/conffiles"
  sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$(du -sk --apparent-size "$at" | cut -f1)/" packaging/control >"$at/DEBIAN/control"
  (cd "$at" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) >"$at/DEBIAN/md5sums"
  chmod 644 "$at"/DEBIAN/*
  dpkg-deb --root-owner-group -Zxz -z$effort --build "$at" "$out/supervise-rl_${version}_$architecture.deb" >/dev/null
}

tarball() {
  local name=supervise-$version-$machine-linux-gnu at
  at=$work/tar/$name
  mkdir -p "$at"
  files "$work/tar" "/$name"
  # It may be unpacked anywhere; the unit assumes the usual path.
  sed -i "s#ExecStart=/$name/bin#ExecStart=/usr/local/bin#" "$at/lib/systemd/system/supervise@.service"
  cp -r README.md CHANGELOG.md LICENSE "$at/"
  install -m644 "$work/sbom.json" "$at/supervise.cdx.json"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=u-w --mtime="@$SOURCE_DATE_EPOCH" -C "$work/tar" -c "$name" | gzip -${effort}n >"$out/$name.tar.gz"
}

rm -f "$out"/*.whl "$out"/*.deb "$out"/*.tar.gz "$out"/*.cdx.json
wheel
if command -v dpkg-deb >/dev/null; then deb; else echo "dist.sh: no .deb: dpkg-deb is not here" >&2; fi
tarball
install -m644 "$work/sbom.json" "$out/supervise-$version.cdx.json"
rm -rf "$work"
(cd "$out" && sha256sum -- *.whl *.deb *.tar.gz *.cdx.json | tee SHA256SUMS)
