#!/usr/bin/env bash
# Bring podman, docker and a registry for tests/e2e/test_engines.py, from the packages of Debian or Ubuntu. They are
# unpacked, not installed: nothing of the system changes.
#
#   hack/engines.sh           bring them if they are not there, and print where they are
#   hack/engines.sh --where   print where they go and do nothing
#
# They go to $GANGLINE_CACHE (default: ~/.cache/gangline), 330 MB: `sys` has the programs, `image` the root of an image
# with Python and busybox. Needs apt-get and dpkg-deb. The tests need root, and skip with the reason where they cannot run.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

programs=(podman conmon runc golang-github-containers-common docker.io containerd tini docker-registry busybox-static)
target=$cache/engines-$(hash_of "${BASH_SOURCE[0]}")

if [ "${1:-}" != --where ] && [ ! -f "$target/complete" ]; then
  needs_debian
  rm -rf "$target"
  mkdir -p "$target"
  say "downloading podman, docker and a registry ..."
  minimal=$(apt-cache depends python3-minimal | sed -n 's/.*Depends: \(python3\.[0-9]*-minimal\).*/\1/p' | head -n 1)
  library=lib${minimal%-minimal}
  download "$target/debs" "${programs[@]}"
  download_exactly "$(dpkg --print-architecture)" "$target/image-debs" "$minimal" "$library-minimal" "$library-stdlib" libc6 zlib1g libexpat1
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
