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
  architecture=$(dpkg --print-architecture)
  fresh_lists "$architecture"
  scratch=$(mktemp -d "$cache/promtool.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cd "$scratch"
  # The package alone: promtool needs none of those that it depends on.
  private_apt "$architecture" /var/lib/dpkg/status -qq download prometheus >&2 || die "apt-get cannot download prometheus"
  mkdir made unpacked
  dpkg-deb -x prometheus_*.deb unpacked
  mv unpacked/usr/bin/promtool made/promtool
  rm -rf "$cache/promtool"
  mv made "$cache/promtool"
)

if found=$(command -v promtool); then
  target=$found
elif [ "${1:-}" != --where ]; then
  [ -x "$target" ] || fetch
fi
printf '%s\n' "$target"
