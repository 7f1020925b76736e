"""Allocation of cluster IPs and node ports to services.

Pools hold what is allocated. The registry fills them from the stored services when it starts.
"""

import ipaddress
from collections.abc import Iterable

from gangline.apiserver.kinds.core.service_ips import HEADLESS
from gangline.schema.problems import FieldProblem, invalid

NODE_PORT_RANGE = range(30000, 32768)


class AddressPool:
    """The cluster IPs of one range, without its first and last address."""

    def __init__(self, cidr: str, allocated: Iterable[str] = ()) -> None:
        self._range = ipaddress.IPv4Network(cidr)
        self._allocated = {
            int(ipaddress.IPv4Address(address)) for address in allocated if address and address != HEADLESS
        }
        self._first = int(self._range.network_address) + 1
        self._last = int(self._range.broadcast_address) - 1
        self._next_candidate = self._first

    def allocate_next(self) -> str | None:
        """Allocate a free address; None when there is none."""
        for step in range(self._last - self._first + 1):
            number = self._first + (self._next_candidate - self._first + step) % (self._last - self._first + 1)
            if number not in self._allocated:
                self._allocated.add(number)
                self._next_candidate = number + 1 if number < self._last else self._first
                return str(ipaddress.IPv4Address(number))
        return None

    def allocate(self, addresses: list[str]) -> list[FieldProblem]:
        """Allocate the address that a service requests. Returns why this is impossible, or nothing."""
        address = addresses[0]
        number = int(ipaddress.IPv4Address(address))
        detail = ""
        if not self._first <= number <= self._last:
            detail = (
                "the provided network does not match the current range"
                if number == int(self._range.network_address)
                else f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {self._range}"
            )
        elif number in self._allocated:
            detail = "provided IP is already allocated"
        if detail:
            return [invalid("spec.clusterIPs", addresses, f"failed to allocate IP {address}: {detail}")]
        self._allocated.add(number)
        return []

    def release(self, address: str) -> None:
        """Free an address. Idempotent; the "None" of headless services is ignored."""
        if address and address != HEADLESS:
            self._allocated.discard(int(ipaddress.IPv4Address(address)))


class PortPool:
    """The node ports. A port belongs to one service, whatever the protocol."""

    def __init__(self, allocated: Iterable[int] = ()) -> None:
        self._allocated = set(allocated)
        self._next_candidate = NODE_PORT_RANGE.start

    def allocate_next(self) -> int | None:
        """Allocate a free port; None when there is none."""
        size = len(NODE_PORT_RANGE)
        for step in range(size):
            number = NODE_PORT_RANGE.start + (self._next_candidate - NODE_PORT_RANGE.start + step) % size
            if number not in self._allocated:
                self._allocated.add(number)
                self._next_candidate = number + 1
                return number
        return None

    def allocate(self, number: int, path: str) -> list[FieldProblem]:
        """Allocate the port that a service requests at `path`. Returns why this is impossible, or nothing."""
        if number not in NODE_PORT_RANGE:
            first, last = NODE_PORT_RANGE.start, NODE_PORT_RANGE.stop - 1
            detail = f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        elif number in self._allocated:
            detail = "provided port is already allocated"
        else:
            self._allocated.add(number)
            return []
        return [invalid(path, number, detail)]

    def release(self, number: int) -> None:
        """Free a port. Idempotent."""
        self._allocated.discard(number)
