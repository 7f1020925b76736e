"""Views of a job for tests of the planner: what is seen, and what follows from it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod, Service, ServiceSpec
from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import ObjectMeta
from gangline.jobs.framework import Framework
from gangline.jobs.plan.actions import Action, Create, Delete, Plan
from gangline.jobs.plan.observed import Children, Observed
from gangline.jobs.plan.plan import plan
from gangline.jobs.pods.addressing import Site
from gangline.jobs.pods.replicas import Gang, seat_name

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def services_of(framework: Framework[Any], job: Any) -> tuple[Service, ...]:
    """All the services a job should have."""
    gang = Gang.of(job.metadata.name, framework.replicas(framework.default(job)), ())
    return tuple(
        Service(
            metadata=ObjectMeta(
                name=seat_name(job.metadata.name, seat), namespace="default", uid=f"svc-{seat}"
            ),
            spec=ServiceSpec(),
        )
        for seat in gang.seats
    )


def seen(
    framework: Framework[Any],
    job: Any,
    *pods: Pod,
    services: Iterable[Service] | None = None,
    after: timedelta = timedelta(),
    site: Site = Site(),  # noqa: B008 - frozen
    **more: Any,
) -> Observed[Any]:
    """A job with these pods, and by default all its services, so long after NOW."""
    there = services_of(framework, job) if services is None else tuple(services)
    children = Children(pods=pods, services=there, **more)
    return Observed.of(framework, job, NOW + after, children, site)


def planned(framework: Framework[Any], job: Any, *pods: Pod, **more: Any) -> Plan:
    return plan(framework, seen(framework, job, *pods, **more))


def having(job: Any, status: JobStatus, **metadata: Any) -> Any:
    """The job with that status written down."""
    changed = msgspec.structs.replace(job.metadata, **metadata)
    return msgspec.structs.replace(job, status=status, metadata=changed)


def actions(intent: Plan) -> list[Action]:
    return [action for stage in intent.stages for action in stage]


def created(intent: Plan, resource: str = "pods") -> list[str]:
    """Names of what is made, in order."""
    return [a.name for a in actions(intent) if isinstance(a, Create) and a.resource == resource]


def deleted(intent: Plan, resource: str = "pods") -> list[str]:
    """Names of what is sent away, in order."""
    return [a.name for a in actions(intent) if isinstance(a, Delete) and a.resource == resource]


def body(intent: Plan, name: str, resource: str = "pods") -> Any:
    """What is sent to make an object."""
    return next(
        a.body for a in actions(intent) if isinstance(a, Create) and (a.resource, a.name) == (resource, name)
    )


def conditions(status: JobStatus) -> list[tuple[str, str]]:
    return [(found.type, found.status) for found in status.conditions]
