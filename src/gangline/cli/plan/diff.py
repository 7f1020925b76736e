"""`gangline plan --diff`: compares planned objects with those on a server."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION
from gangline.api.meta import JSON, Key, Selector
from gangline.cli.connect.server import ServerTarget
from gangline.cli.output import formats, tables
from gangline.cli.plan.objects import GangMode, JobDocument, PlanTarget, planned_objects
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.summary.replicas import JOB_NAME

SERVER_FIELDS = ("ownerReferences",)
"""Metadata that the server adds."""


async def diff_job(client: Client, job: JobDocument, server: ServerTarget, *, gang: bool) -> list[str]:
    """Lines that compare a job and its planned objects with the server; see `diff_lines`. Raises `InputError`."""
    target = PlanTarget(server.flag_namespace, server.object_namespace, gangs=GangMode.ALL if gang else GangMode.NONE)
    body, objects = planned_objects(job, target)
    selector = Selector(body["metadata"]["namespace"], f"{JOB_NAME}={body['metadata']['name']}")
    services = tuple((await client.list(Service, selector)).items)
    # On a local plane addresses are annotations of the services, and part of the pods' environment.
    addresses = [
        service.metadata.annotations[ADDRESSES_ANNOTATION]
        for service in services
        if ADDRESSES_ANNOTATION in service.metadata.annotations
    ]
    if addresses:
        names = {service.metadata.name for service in services}
        planned = [planned for planned in objects if planned["kind"] == "Service"]
        missing = [service for service in planned if service["metadata"]["name"] not in names]
        services += tuple(_with_addresses(service, addresses[0]) for service in missing)
        objects = [*planned, *planned_objects(job, target._replace(services=services))[1]]
    return await diff_lines(client, body, objects)


def _with_addresses(body: JSON, addresses: str) -> Service:
    """A service that does not exist yet, with the addresses of another: without any, its pods could not be planned."""
    service = msgspec.convert(body, Service)
    annotations = {**service.metadata.annotations, ADDRESSES_ANNOTATION: addresses}
    metadata = msgspec.structs.replace(service.metadata, annotations=annotations)
    return msgspec.structs.replace(service, metadata=metadata)


async def diff_lines(client: Client, job: JSON, bodies: Sequence[JSON]) -> list[str]:
    """One line per object: `+` does not exist, `~` differs (with lines that say where), two spaces: as planned."""
    from gangline.operator.engine import OPERATOR_SCHEME

    lines = []
    for body in (job, *bodies):
        resource = client.unstructured(OPERATOR_SCHEME.kind(body["apiVersion"], body["kind"]))
        key = Key(job["metadata"]["namespace"], body["metadata"]["name"])
        name = formats.object_name(body)
        try:
            existing = await client.get(resource, key)
        except NotFound:
            lines.append(f"+ {name}")
            continue
        changes = list(differences(body, existing))
        lines.append(f"{'~' if changes else ' '} {name}")
        lines += [f"~   {line}" for line in changes]
    return lines


def differences(planned: Any, existing: Any, path: str = "") -> Iterator[str]:
    """A line for each planned value that the existing object has not. Fields that the server adds are ignored."""
    if isinstance(planned, dict) and isinstance(existing, dict):
        for name, value in planned.items():
            if name in SERVER_FIELDS or (not path and name == "status"):
                continue
            yield from differences(value, existing.get(name), f"{path}.{name}" if path else name)
    elif isinstance(planned, list) and isinstance(existing, list) and len(planned) <= len(existing):
        for number, value in enumerate(planned):
            label = value.get("name", number) if isinstance(value, dict) else number
            yield from differences(value, existing[number], f"{path}[{label}]")
    elif planned != existing and not (planned in ({}, [], "", None) and existing is None):
        yield f"{path}: {_json_excerpt(existing)} -> {_json_excerpt(planned)}"


def _json_excerpt(value: Any) -> str:
    return tables.clipped_text(msgspec.json.encode(value).decode(), 60)
