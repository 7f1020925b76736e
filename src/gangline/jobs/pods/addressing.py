"""Where jobs run: in a cluster or on one machine, and how members find each other there."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, JobKind, ReplicaSpec, TrainingJob
from gangline.jobs.framework import Address, Addresses
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.pods.replicas import Member, member_name


class ServiceMode(StrEnum):
    """One headless service per member, as v1 has it; or one per job, with host names for its pods."""

    PER_REPLICA = "per-replica"
    PER_JOB = "per-job"


class Site(msgspec.Struct, frozen=True):
    """What the engine must know of the place."""

    services: ServiceMode = ServiceMode.PER_REPLICA
    # What follows `.svc` in full names, without its dot: as in CUSTOM_CLUSTER_DOMAIN.
    domain: str = ""
    # Members share one machine: their addresses are on their services, and pods wait for them.
    shared_host: bool = False
    # Pods carry the labels of earlier operators too.
    legacy_labels: bool = False
    # Who places all of a job's pods or none; None: nobody in particular.
    gang_scheduler: GangScheduler | None = None
    # Only for jobs that ask for it, by a scheduling policy or by name.
    gangs_on_request: bool = False
    # Others whom a job may ask for by name.
    other_gang_schedulers: tuple[GangScheduler, ...] = ()

    @property
    def gang_schedulers(self) -> tuple[GangScheduler, ...]:
        """All whom a job may ask for."""
        return (
            *((self.gang_scheduler,) if self.gang_scheduler is not None else ()),
            *self.other_gang_schedulers,
        )


def member_addresses(
    site: Site,
    job: TrainingJob,
    ports: Mapping[str, int],
    replicas: Mapping[str, ReplicaSpec],
    services: Iterable[Service],
    facts: JobKind,
) -> Addresses:
    """Where each member is found, as far as that is known. `ports` by replica type."""
    if facts.port is None:
        return Addresses(shared_host=site.shared_host)
    if site.shared_host:
        return Addresses(_published_addresses(job, replicas, services, facts), shared_host=True)
    return Addresses(
        {
            Member(kind, index): _cluster_address(site, job, Member(kind, index), ports[kind])
            for kind, spec in replicas.items()
            for index in range(spec.replicas or 0)
        }
    )


def _cluster_address(site: Site, job: TrainingJob, member: Member, port: int) -> Address:
    name = member_name(job.metadata.name, member)
    if site.services is ServiceMode.PER_JOB:
        name = f"{name}.{job.metadata.name}"
    ending = f".{site.domain}" if site.domain else ""
    return Address(name, f"{name}.{job.metadata.namespace}.svc{ending}", port)


def _published_addresses(
    job: TrainingJob, replicas: Mapping[str, ReplicaSpec], services: Iterable[Service], facts: JobKind
) -> dict[Member, Address]:
    """What the node's address book wrote on the services."""
    assert facts.port is not None
    books = {service.metadata.name: service.metadata.annotations.get(ADDRESSES_ANNOTATION) for service in services}
    known: dict[Member, Address] = {}
    for kind, spec in replicas.items():
        for index in range(spec.replicas or 0):
            member = Member(kind, index)
            book = books.get(member_name(job.metadata.name, member))
            written = msgspec.json.decode(book, type=dict[str, str]).get(facts.port.name) if book else None
            if written:
                host, _, number = written.rpartition(":")
                known[member] = Address(host, host, int(number))
    return known
