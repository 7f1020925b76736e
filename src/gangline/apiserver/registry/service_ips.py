"""Addresses and node ports of services: given when asked for, kept while the service is there."""

from collections.abc import Iterable

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.kinds.core.ip_pools import AddressPool, PortPool
from gangline.apiserver.kinds.core.service_ips import give_address, needs_address, ports_without_number
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store
from gangline.schema.problems import Problem, ProblemKind

SERVICES = collection_prefix("", "services")
CIDR = "10.96.0.0/12"


class _Pools(msgspec.Struct, frozen=True):
    addresses: AddressPool
    ports: PortPool


class ServiceAddresses:
    """What is given out. Read from the store at first use, kept in memory since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pools: _Pools | None = None

    def take(self, new: JSON, old: JSON | None = None) -> list[Problem]:
        """Give a service what it needs, in place, or say why not; then nothing is taken."""
        pools = self._ready()
        spec, before = new["spec"], old["spec"] if old is not None else {}
        asked, mine = _address(spec), _ports(before)
        problems = (
            pools.addresses.take_this(spec["clusterIPs"]) if asked not in ("", _address(before)) else []
        )
        taken: list[int] = []
        for index, port in enumerate(() if problems else spec.get("ports", ())):
            number = port.get("nodePort")
            if number and number not in mine and number not in taken:
                problems += pools.ports.take_this(number, f"spec.ports[{index}].nodePort")
                taken.append(number)
        if problems:
            self._give_back(taken[:-1], asked if asked != _address(before) and taken else "")
            return problems
        return self._fill(spec)

    def _fill(self, spec: JSON) -> list[Problem]:
        pools = self._ready()
        if needs_address(spec):
            address = pools.addresses.take()
            if address is None:
                return [
                    Problem(
                        ProblemKind.INTERNAL,
                        "spec.clusterIPs",
                        detail="failed to allocate a serviceIP: range is full",
                    )
                ]
            give_address(spec, address)
        for port in ports_without_number(spec):
            port["nodePort"] = pools.ports.take()
        return []

    def settle(self, old: JSON | None, new: JSON | None) -> None:
        """A service became another one, or went: what only the old one had is free again."""
        if old is None:
            return
        kept = new["spec"] if new is not None else {}
        address = _address(old["spec"])
        self._give_back(_ports(old["spec"]) - _ports(kept), address if address != _address(kept) else "")

    def _give_back(self, ports: Iterable[int], address: str) -> None:
        pools = self._ready()
        pools.addresses.release(address)
        for number in ports:
            pools.ports.release(number)

    def _ready(self) -> _Pools:
        if self._pools is None:
            specs = [
                msgspec.json.decode(record.data)["spec"] for record in self._store.range(SERVICES).records
            ]
            ports = {number for spec in specs for number in _ports(spec)}
            self._pools = _Pools(AddressPool(CIDR, map(_address, specs)), PortPool(ports))
        return self._pools


def _address(spec: JSON) -> str:
    address = spec.get("clusterIP") or ""
    return "" if address == "None" or spec.get("type") == "ExternalName" else str(address)


def _ports(spec: JSON) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")}
