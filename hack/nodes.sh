#!/usr/bin/env bash
# Bring what a Kubernetes node needs besides a kubelet, for the tests on real nodes, from the packages of Debian or
# Ubuntu: containerd, runc, CNI plugins, iptables. They are unpacked, not installed: nothing of the system changes.
#
#   hack/nodes.sh           bring it if it is not there, and print where it is
#   hack/nodes.sh --where   print where it goes and do nothing
#
# It goes to $GANGLINE_CACHE (default: ~/.cache/gangline), 150 MB. Needs apt-get and dpkg.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/go.sh"

packages=(containerd runc containernetworking-plugins iptables iproute2 conntrack busybox-static)
target=$cache/nodes-$(hash_of "${BASH_SOURCE[0]}")

if [ "${1:-}" != --where ] && [ ! -f "$target/complete" ]; then
  command -v apt-get > /dev/null && command -v dpkg > /dev/null || die "apt-get and dpkg are needed; this is no Debian"
  rm -rf "$target"
  mkdir -p "$target/debs/partial"
  say "downloading containerd, runc and CNI plugins ..."
  # Also those that the system has; what they need and the system lacks comes with them.
  apt-get install --yes --no-install-recommends --reinstall --download-only -o "Dir::Cache::archives=$target/debs" "${packages[@]}" > "$target/debs/log" 2>&1 ||
    { tail -n 5 "$target/debs/log" >&2; die "apt-get cannot download ${packages[*]}; run apt-get update?"; }
  for file in "$target"/debs/*.deb; do dpkg -x "$file" "$target"; done
  rm -rf "$target/debs"
  # The names that an installation makes links for.
  for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -sf xtables-legacy-multi "$target/usr/sbin/$name"
  done
  touch "$target/complete"  # last, so that half of it is never used
fi
printf '%s\n' "$target"
