"""Caches in, one frozen value out."""

from collections.abc import Callable, Iterable
from typing import Generic

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.meta import Key, Object
from gangline.api.training import ADDRESSES, REPLICA_INDEX, REPLICA_TYPE
from gangline.base.clock import Clock
from gangline.jobs.framework import Addresses, Framework, J, Member
from gangline.jobs.plan import Observed
from gangline.runtime.cache import Cache

OWNER_UID = "owner uid"
"""The index under which children are found: the uid of their controlling owner."""

Addressing = Callable[[Service, int, str], str | None]
"""Where a member listens, given its service, port number and port name; None while that is not known."""


def owner_uid(found: Object) -> Iterable[str]:
    reference = found.metadata.controller
    return (reference.uid,) if reference is not None else ()


def cluster_address(service: Service, port: int, name: str) -> str | None:
    """In a cluster: the service's DNS name."""
    return f"{service.metadata.name}.{service.metadata.namespace}.svc:{port}"


def local_address(service: Service, port: int, name: str) -> str | None:
    """On the local plane: what the node's address book wrote on the service."""
    book = service.metadata.annotations.get(ADDRESSES)
    return msgspec.json.decode(book, type=dict[str, str]).get(name) if book else None


class Observe(Generic[J]):
    """Reads the caches, never the server."""

    def __init__(
        self,
        framework: Framework[J],
        jobs: Cache[J],
        pods: Cache[Pod],
        services: Cache[Service],
        addressing: Addressing,
        clock: Clock,
    ) -> None:
        self._framework, self._jobs, self._pods, self._services = framework, jobs, pods, services
        self._addressing, self._clock = addressing, clock

    def __call__(self, key: Key) -> Observed[J] | None:
        job = self._jobs.get(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            return None
        job = self._framework.default(job)
        services = self._services.by(OWNER_UID, job.metadata.uid)
        return Observed(
            job=job,
            pods=self._pods.by(OWNER_UID, job.metadata.uid),
            services=services,
            addresses=self._addresses(job, services),
            now=self._clock.now().replace(microsecond=0),
        )

    def _addresses(self, job: J, services: Iterable[Service]) -> Addresses:
        spelled = {kind.lower(): kind for kind in self._framework.replicas(job)}
        hosts: dict[Member, str] = {}
        for service in services:
            labels = service.metadata.labels
            kind, index = spelled.get(labels.get(REPLICA_TYPE, "")), labels.get(REPLICA_INDEX, "")
            port = next((p for p in service.spec.ports if p.name == self._framework.port.name), None)
            if kind is None or port is None or not index.isdigit():
                continue
            address = self._addressing(service, port.port, port.name)
            if address is not None:
                hosts[Member(kind, int(index))] = address
        return Addresses(hosts)
