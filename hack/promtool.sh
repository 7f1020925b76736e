#!/usr/bin/env bash
# Fetch promtool, which checks alert rules and metrics, from Debian's package of Prometheus. Nothing is installed.
#
#   hack/promtool.sh           fetch it if it is not there yet, and print where it is
#   hack/promtool.sh --where   print where it goes and fetch nothing
#
# A promtool on PATH is used as it is. Otherwise the package is downloaded, and the program is unpacked into
# $GANGLINE_CACHE (default: ~/.cache/gangline).
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"    # $cache, say, die
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"
target=$cache/promtool/promtool

fetch() (
  needs_debian
  say "fetching promtool from Debian's package prometheus ..."
  scratch=$(mktemp -d "$cache/promtool.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  # The package alone: promtool needs none of those that it depends on.
  download_exactly "$(dpkg --print-architecture)" "$scratch/packages" prometheus
  unpack "$scratch/packages" "$scratch/unpacked"
  mkdir "$scratch/made"
  mv "$scratch/unpacked/usr/bin/promtool" "$scratch/made"
  rm -rf "$cache/promtool"
  mv "$scratch/made" "$cache/promtool"
)

if found=$(command -v promtool); then
  target=$found
elif [ "${1:-}" != --where ]; then
  [ -x "$target" ] || fetch
fi
printf '%s\n' "$target"
