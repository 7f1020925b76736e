"""Cluster IPs and node ports of services: allocated on write, held for as long as the service exists."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.kinds.core.ip_pools import AddressPool, PortPool
from gangline.apiserver.kinds.core.service_ips import needs_cluster_ip, ports_without_node_port, set_cluster_ip
from gangline.apiserver.registry.catalog import ServedKind, is_core_resource
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store
from gangline.schema.problems import FieldProblem, ProblemKind

SERVICES_PREFIX = collection_prefix("", "services")
SERVICE_CIDR = "10.96.0.0/12"


class _AllocationPools(msgspec.Struct, frozen=True):
    addresses: AddressPool
    ports: PortPool


class ServiceAllocator:
    """Allocates addresses and ports. The pools are read from the store at first use and kept in memory since."""

    def __init__(self, store: Store, cidr: str = SERVICE_CIDR) -> None:
        """`cidr` is the range of new cluster IPs. Services of other ranges keep what they have."""
        self._store, self._cidr = store, cidr
        self._pools: _AllocationPools | None = None

    @contextmanager
    def allocation(self, served_kind: ServedKind, old: JSON | None, new: JSON, *, keep: bool) -> Iterator[None]:
        """Allocate, in place, what a new or changed service needs; other kinds pass. Raises `StatusError`.

        If the block succeeds and `keep` is set, what only the old service had is released; else what only the new one
        has.
        """
        if not is_core_resource(served_kind, "services"):
            yield
            return
        problems = self._allocate(new, old)
        if problems:
            raise apierrors.invalid(served_kind.resource, new["metadata"]["name"], problems)
        committed = False
        try:
            yield
            committed = keep
        finally:
            self._release_replaced(old if committed else new, new if committed else old)

    def release_deleted(self, served_kind: ServedKind, obj: JSON) -> None:
        """Release what a deleted service had; other kinds pass."""
        if is_core_resource(served_kind, "services"):
            self._release_replaced(obj, None)

    def _allocate(self, new: JSON, old: JSON | None) -> list[FieldProblem]:
        """Allocate what a service needs, in place. Returns problems; then nothing is allocated."""
        pools = self._loaded_pools()
        spec, old_spec = new["spec"], old["spec"] if old is not None else {}
        address, old_ports = _cluster_ip(spec), _node_ports(old_spec)
        problems = pools.addresses.allocate(spec["clusterIPs"]) if address not in ("", _cluster_ip(old_spec)) else []
        ports: list[int] = []
        for index, port in enumerate(() if problems else spec.get("ports", ())):
            number = port.get("nodePort")
            if number and number not in old_ports and number not in ports:
                problems += pools.ports.allocate(number, f"spec.ports[{index}].nodePort")
                ports.append(number)
        if problems:
            self._release(ports[:-1], address if address != _cluster_ip(old_spec) and ports else "")
            return problems
        return self._allocate_missing(spec)

    def _allocate_missing(self, spec: JSON) -> list[FieldProblem]:
        pools = self._loaded_pools()
        if needs_cluster_ip(spec):
            address = pools.addresses.allocate_next()
            if address is None:
                detail = "failed to allocate a serviceIP: range is full"
                return [FieldProblem(ProblemKind.INTERNAL, "spec.clusterIPs", detail=detail)]
            set_cluster_ip(spec, address)
        for port in ports_without_node_port(spec):
            port["nodePort"] = pools.ports.allocate_next()
        return []

    def _release_replaced(self, old: JSON | None, new: JSON | None) -> None:
        """Release what the old service had and the new one (None: deleted) does not have."""
        if old is None:
            return
        new_spec = new["spec"] if new is not None else {}
        address = _cluster_ip(old["spec"])
        ports = _node_ports(old["spec"]) - _node_ports(new_spec)
        self._release(ports, address if address != _cluster_ip(new_spec) else "")

    def _release(self, ports: Iterable[int], address: str) -> None:
        pools = self._loaded_pools()
        pools.addresses.release(address)
        for number in ports:
            pools.ports.release(number)

    def _loaded_pools(self) -> _AllocationPools:
        if self._pools is None:
            specs = [msgspec.json.decode(record.data)["spec"] for record in self._store.range(SERVICES_PREFIX).records]
            ports = {number for spec in specs for number in _node_ports(spec)}
            self._pools = _AllocationPools(AddressPool(self._cidr, map(_cluster_ip, specs)), PortPool(ports))
        return self._pools


def _cluster_ip(spec: JSON) -> str:
    address = spec.get("clusterIP") or ""
    return "" if address == "None" or spec.get("type") == "ExternalName" else str(address)


def _node_ports(spec: JSON) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")}
