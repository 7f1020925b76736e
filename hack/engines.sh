#!/usr/bin/env bash
# Bring podman, docker and a registry for tests/e2e/test_engines.py, from the packages of Debian or Ubuntu. They are
# unpacked, not installed: nothing of the system changes.
#
#   hack/engines.sh           bring them if they are not there, and print where they are
#   hack/engines.sh --where   print where they go and do nothing
#
# They go to $GANGLINE_CACHE (default: ~/.cache/gangline), 330 MB: `sys` has the programs, `image` the root of an image
# with Python and busybox. Needs apt-get and dpkg. The tests need root, and skip with the reason where they cannot run.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"

programs=(podman conmon runc golang-github-containers-common docker.io containerd tini docker-registry busybox-static)
target=$cache/engines-$(hash_of "${BASH_SOURCE[0]}")

# download FOLDER PACKAGE...: the packages and those that they depend on and the system lacks.
download() {
  local folder=$1
  shift
  mkdir -p "$folder/partial"
  apt-get install --yes --no-install-recommends --download-only -o "Dir::Cache::archives=$folder" "$@" > "$folder/log" 2>&1 ||
    { tail -n 5 "$folder/log" >&2; die "apt-get cannot download $*; run apt-get update?"; }
}

# download_exactly FOLDER PACKAGE...: the packages, also if the system has them.
download_exactly() {
  local folder=$1
  shift
  mkdir -p "$folder"
  (cd "$folder" && apt-get download "$@" > log 2>&1) || { tail -n 5 "$folder/log" >&2; die "apt-get cannot download $*"; }
}

unpack() {
  local file
  mkdir -p "$2"
  for file in "$1"/*.deb; do dpkg -x "$file" "$2"; done
}

if [ "${1:-}" != --where ] && [ ! -f "$target/complete" ]; then
  command -v apt-get > /dev/null && command -v dpkg > /dev/null || die "apt-get and dpkg are needed; this is no Debian"
  rm -rf "$target"
  mkdir -p "$target"
  say "downloading podman, docker and a registry ..."
  minimal=$(apt-cache depends python3-minimal | sed -n 's/.*Depends: \(python3\.[0-9]*-minimal\).*/\1/p' | head -n 1)
  library=lib${minimal%-minimal}
  download "$target/debs" "${programs[@]}"
  download_exactly "$target/image-debs" "$minimal" "$library-minimal" "$library-stdlib" libc6 zlib1g libexpat1
  unpack "$target/debs" "$target/sys"
  unpack "$target/image-debs" "$target/image"
  cp "$(find "$target/sys" -name busybox -path '*bin/*' | head -n 1)" "$target/image/usr/bin/busybox"
  for name in sh sleep echo cat env ls pwd hostname id test kill touch tail head; do
    ln -sf busybox "$target/image/usr/bin/$name"
  done
  ln -sf "${minimal%-minimal}" "$target/image/usr/bin/python"
  # As on an installed system, where these are links.
  for folder in bin lib lib64; do
    [ ! -d "$target/image/$folder" ] || cp -a "$target/image/$folder/." "$target/image/usr/$folder/" 2> /dev/null ||
      { mkdir -p "$target/image/usr/$folder"; cp -a "$target/image/$folder/." "$target/image/usr/$folder/"; }
    rm -rf "${target:?}/image/$folder"
    mkdir -p "$target/image/usr/$folder"
    ln -s "usr/$folder" "$target/image/$folder"
  done
  mkdir -p "$target/image"/{dev,proc,sys,tmp,etc}
  rm -rf "$target/debs" "$target/image-debs"
  touch "$target/complete"  # last, so that half of it is never used
fi
printf '%s\n' "$target"
