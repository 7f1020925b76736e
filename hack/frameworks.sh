#!/usr/bin/env bash
# Bring the training frameworks for tests/frameworks, each group into a virtual environment of its own.
#
#   hack/frameworks.sh [GROUP...]   bring what is not there yet (all groups: 1.4 GB to download, 5 GB on disk)
#   hack/frameworks.sh --where      print group and environment, and do nothing
#
# Groups: light (XGBoost, LightGBM, Open MPI 5), mpi4 (Open MPI 4), jax, tensorflow, torch, transformers (which needs
# torch), paddle. They go to
# $GANGLINE_CACHE/frameworks (default: ~/.cache/gangline/frameworks), with a hash of the pinned packages in their names.
# To change the packages edit requirements/frameworks/GROUP.in and there run (for torch and transformers with --no-deps)
#   uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header GROUP.in -o GROUP.txt
set -euo pipefail

python=${PYTHON:-python3}
cache=${GANGLINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gangline}/frameworks
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/../requirements/frameworks
all="light mpi4 jax tensorflow torch transformers paddle"

# environment GROUP: where it goes, as tests/frameworks/conftest.py has it.
environment() {
  local hash
  hash=$("$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])' <"$pins/$1.txt")
  printf '%s/%s-%s\n' "$cache" "$1" "$hash"
}

install() {
  local group=$1 environment=$2 options=()
  printf 'installing %s ...\n' "$group" >&2
  rm -rf "$environment"
  "$python" -m venv "$environment"
  case $group in torch|transformers) options=(--no-deps) ;; esac
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes ${options[@]+"${options[@]}"} -r "$pins/$group.txt" >&2
  if [ "$group" = torch ] && [ "$(uname)" = Linux ]; then
    "$environment/bin/python" "$here/torch_stubs.py" >&2
  fi
  touch "$environment/complete"  # last, so that half an environment is never used
}

where=
[ "${1:-}" != --where ] || { where=yes; shift; }
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
for group in ${*:-$all}; do
  [ -f "$pins/$group.txt" ] || { printf 'error: no group "%s"; there are: %s\n' "$group" "$all" >&2; exit 1; }
  made=$(environment "$group")
  [ -n "$where" ] || [ -f "$made/complete" ] || install "$group" "$made"
  printf '%s %s\n' "$group" "$made"
done
