"""Addresses of their own for pods that share the machine's network, all of them of the loopback interface.

A program that listens on all addresses is reached by the address of its pod; one that listens on the address of its pod
leaves the port to other pods. Linux answers on all of 127.0.0.0/8 without being set up for it; macOS only on 127.0.0.1.
"""

import socket
import zlib
from ipaddress import IPv4Address, IPv4Network

from gangline.base.host_features import POD_RANGE
from gangline.node.ports import LOOPBACK

POD_ADDRESSES = IPv4Network(POD_RANGE)


class LoopbackAddresses:
    """The addresses of pods, by uid. A pod that has one already keeps it."""

    def __init__(self, network: IPv4Network = POD_ADDRESSES) -> None:
        self._network = network
        self._first, self._count = int(network.network_address) + 1, network.num_addresses - 2
        self._is_usable: bool | None = None
        self._by_uid: dict[str, str] = {}

    def claim(self, uid: str, before: str = "") -> str:
        """The address of a pod, which had the address `before` in its status; 127.0.0.1 where there are no others."""
        known = self._by_uid.get(uid)
        if known is not None:
            return known
        if self._is_usable is None:
            self._is_usable = can_bind(str(self._network[1]))
        if not self._is_usable:
            return LOOPBACK
        used = set(self._by_uid.values())
        address = before
        if not self._is_pod_address(before) or before in used:
            # By its uid, so that planes beside each other rarely give the same.
            number = zlib.crc32(uid.encode()) % self._count
            while (address := str(IPv4Address(self._first + number))) in used:
                number = (number + 1) % self._count
        self._by_uid[uid] = address
        return address

    def release(self, uid: str) -> None:
        """The pod needs its address no more."""
        self._by_uid.pop(uid, None)

    def _is_pod_address(self, text: str) -> bool:
        try:
            return IPv4Address(text) in self._network
        except ValueError:
            return False


def can_bind(address: str) -> bool:
    """Whether programs of this machine can listen on an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
