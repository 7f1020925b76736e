#!/usr/bin/env bash
# Fetch promtool, which checks alert rules and metrics, from Debian's package of Prometheus. Nothing is installed.
#
#   hack/promtool.sh           fetch it if it is not there yet, and print where it is
#   hack/promtool.sh --where   print where it goes and fetch nothing
#
# A promtool on PATH is used as it is. Otherwise apt-get downloads the package (no root needed), and dpkg-deb unpacks the
# program into $GANGLINE_CACHE (default: ~/.cache/gangline).
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"    # $cache, say, die
target=$cache/promtool/promtool

fetch() (
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die "promtool: no apt-get and dpkg-deb here; install Prometheus, so that promtool is on PATH"
  say "fetching promtool from Debian's package prometheus ..."
  scratch=$(mktemp -d "$cache/promtool.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cd "$scratch"
  apt-get download -qq prometheus >&2 || die "promtool: apt-get download prometheus failed; run apt-get update first"
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
