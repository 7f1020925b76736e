"""At which address each replica of a job is reached."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, JobKind, ReplicaSpec, TrainingJob
from gangline.jobs.framework import Address, Addresses
from gangline.jobs.pods.replicas import Member, job_members, member_name
from gangline.jobs.site import ServiceMode, Site


def member_addresses(
    site: Site,
    job: TrainingJob,
    ports: Mapping[str, int],
    replicas: Mapping[str, ReplicaSpec],
    services: Iterable[Service],
    job_kind: JobKind,
) -> Addresses:
    """The addresses of all replicas; on a shared host only of those whose service has been given one.

    `ports` are by replica type.
    """
    if job_kind.port is None:
        return Addresses(shared_host=site.shared_host)
    if site.shared_host:
        return Addresses(_published_addresses(job, replicas, services, job_kind.port.name), shared_host=True)
    return Addresses(
        {member: _cluster_address(site, job, member, ports[member.type]) for member in job_members(replicas)}
    )


def _cluster_address(site: Site, job: TrainingJob, member: Member, port: int) -> Address:
    name = member_name(job.metadata.name, member)
    if site.services is ServiceMode.PER_JOB:
        name = f"{name}.{job.metadata.name}"
    domain = f".{site.domain}" if site.domain else ""
    return Address(name, f"{name}.{job.metadata.namespace}.svc{domain}", port)


def _published_addresses(
    job: TrainingJob, replicas: Mapping[str, ReplicaSpec], services: Iterable[Service], port_name: str
) -> dict[Member, Address]:
    """The addresses that the node wrote on the services as an annotation."""
    annotations = {
        service.metadata.name: service.metadata.annotations.get(ADDRESSES_ANNOTATION) for service in services
    }
    addresses: dict[Member, Address] = {}
    for member in job_members(replicas):
        annotation = annotations.get(member_name(job.metadata.name, member))
        endpoint = msgspec.json.decode(annotation, type=dict[str, str]).get(port_name) if annotation else None
        if endpoint:
            host, _, port = endpoint.rpartition(":")
            addresses[member] = Address(host, host, int(port))
    return addresses
