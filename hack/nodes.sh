#!/usr/bin/env bash
# Bring what a Kubernetes node needs besides a kubelet, for the tests on real nodes, from the packages of Debian or
# Ubuntu: containerd, runc, CNI plugins, iptables. They are unpacked, not installed: nothing of the system changes.
#
#   hack/nodes.sh           bring it if it is not there, and print where it is
#   hack/nodes.sh --where   print where it goes and do nothing
#
# It goes to $GANGLINE_CACHE (default: ~/.cache/gangline), 160 MB. Needs apt-get and dpkg-deb.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"
. "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

packages=(containerd runc containernetworking-plugins iptables iproute2 conntrack)
target=$cache/nodes-$(hash_of "${BASH_SOURCE[0]}")

if [ "${1:-}" != --where ] && [ ! -f "$target/complete" ]; then
  needs_debian
  rm -rf "$target"
  mkdir -p "$target"
  say "downloading containerd, runc and CNI plugins ..."
  download "$target/debs" --reinstall "${packages[@]}"    # also those that the system has
  unpack "$target/debs" "$target"
  rm -rf "$target/debs"
  # The names that an installation makes links for.
  for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -sf xtables-legacy-multi "$target/usr/sbin/$name"
  done
  touch "$target/complete"  # last, so that half of it is never used
fi
printf '%s\n' "$target"
