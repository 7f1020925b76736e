"""Addresses and node ports of services: given when asked for, kept while the service is there."""

from collections.abc import Iterable

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.kinds.core.ip_pools import AddressPool, PortPool
from gangline.apiserver.kinds.core.service_ips import (
    needs_cluster_ip,
    ports_without_node_port,
    set_cluster_ip,
)
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store
from gangline.schema.problems import FieldProblem, ProblemKind

SERVICES_PREFIX = collection_prefix("", "services")
SERVICE_CIDR = "10.96.0.0/12"


class _AllocationPools(msgspec.Struct, frozen=True):
    addresses: AddressPool
    ports: PortPool


class ServiceAllocator:
    """What is given out. Read from the store at first use, kept in memory since."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pools: _AllocationPools | None = None

    def allocate(self, new: JSON, old: JSON | None = None) -> list[FieldProblem]:
        """Give a service what it needs, in place, or say why not; then nothing is taken."""
        pools = self._loaded_pools()
        spec, before = new["spec"], old["spec"] if old is not None else {}
        asked, mine = _cluster_ip(spec), _node_ports(before)
        problems = pools.addresses.allocate(spec["clusterIPs"]) if asked not in ("", _cluster_ip(before)) else []
        taken: list[int] = []
        for index, port in enumerate(() if problems else spec.get("ports", ())):
            number = port.get("nodePort")
            if number and number not in mine and number not in taken:
                problems += pools.ports.allocate(number, f"spec.ports[{index}].nodePort")
                taken.append(number)
        if problems:
            self._release(taken[:-1], asked if asked != _cluster_ip(before) and taken else "")
            return problems
        return self._allocate_missing(spec)

    def _allocate_missing(self, spec: JSON) -> list[FieldProblem]:
        pools = self._loaded_pools()
        if needs_cluster_ip(spec):
            address = pools.addresses.allocate_next()
            if address is None:
                return [
                    FieldProblem(
                        ProblemKind.INTERNAL,
                        "spec.clusterIPs",
                        detail="failed to allocate a serviceIP: range is full",
                    )
                ]
            set_cluster_ip(spec, address)
        for port in ports_without_node_port(spec):
            port["nodePort"] = pools.ports.allocate_next()
        return []

    def release_replaced(self, old: JSON | None, new: JSON | None) -> None:
        """A service became another one, or went: what only the old one had is free again."""
        if old is None:
            return
        kept = new["spec"] if new is not None else {}
        address = _cluster_ip(old["spec"])
        self._release(_node_ports(old["spec"]) - _node_ports(kept), address if address != _cluster_ip(kept) else "")

    def _release(self, ports: Iterable[int], address: str) -> None:
        pools = self._loaded_pools()
        pools.addresses.release(address)
        for number in ports:
            pools.ports.release(number)

    def _loaded_pools(self) -> _AllocationPools:
        if self._pools is None:
            specs = [msgspec.json.decode(record.data)["spec"] for record in self._store.range(SERVICES_PREFIX).records]
            ports = {number for spec in specs for number in _node_ports(spec)}
            self._pools = _AllocationPools(AddressPool(SERVICE_CIDR, map(_cluster_ip, specs)), PortPool(ports))
        return self._pools


def _cluster_ip(spec: JSON) -> str:
    address = spec.get("clusterIP") or ""
    return "" if address == "None" or spec.get("type") == "ExternalName" else str(address)


def _node_ports(spec: JSON) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")}
