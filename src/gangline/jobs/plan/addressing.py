"""At which address each replica of a job is reached."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, JobKind, TrainingJob
from gangline.jobs.framework import Address, Addresses
from gangline.jobs.pods.replicas import Member
from gangline.jobs.site import ServiceMode, Site


def member_addresses(
    site: Site,
    job: TrainingJob,
    ports: Mapping[str, int],
    names: Mapping[Member, str],
    services: Iterable[Service],
    job_kind: JobKind,
) -> Addresses:
    """The addresses of all replicas; on a shared host only of those whose service has been given one.

    `ports` are by replica type; `names` are those of the replicas' pods and services.
    """
    if job_kind.port is None:
        return Addresses(shared_host=site.shared_host)
    if site.shared_host:
        return Addresses(_published_addresses(names, services, job_kind.port.name), shared_host=True)
    return Addresses({member: _cluster_address(site, job, name, ports[member.type]) for member, name in names.items()})


def _cluster_address(site: Site, job: TrainingJob, name: str, port: int) -> Address:
    if site.services is ServiceMode.PER_JOB:
        name = f"{name}.{job.metadata.name}"
    domain = f".{site.domain}" if site.domain else ""
    return Address(name, f"{name}.{job.metadata.namespace}.svc{domain}", port)


def _published_addresses(
    names: Mapping[Member, str], services: Iterable[Service], port_name: str
) -> dict[Member, Address]:
    """The addresses that the node wrote on the services as an annotation."""
    annotations = {
        service.metadata.name: service.metadata.annotations.get(ADDRESSES_ANNOTATION) for service in services
    }
    addresses: dict[Member, Address] = {}
    for member, name in names.items():
        annotation = annotations.get(name)
        endpoint = msgspec.json.decode(annotation, type=dict[str, str]).get(port_name) if annotation else None
        if endpoint:
            host, _, port = endpoint.rpartition(":")
            addresses[member] = Address(host, host, int(port))
    return addresses
