"""Observed jobs as input of the planner, and readers of the plans it returns."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod, Service, ServiceSpec
from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import ObjectMeta
from gangline.jobs.framework import Framework
from gangline.jobs.plan.actions import Create, Delete, JobAction, JobPlan
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.pods.replicas import Gang, member_name
from gangline.jobs.site import Site

OBSERVED_AT = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def job_services(framework: Framework[Any], job: Any) -> tuple[Service, ...]:
    """All the services a job should have."""
    gang = Gang.of(job.metadata.name, framework.replicas(framework.default(job)), ())
    return tuple(
        Service(
            metadata=ObjectMeta(name=member_name(job.metadata.name, seat), namespace="default", uid=f"svc-{seat}"),
            spec=ServiceSpec(),
        )
        for seat in gang.seats
    )


def observed_job(
    framework: Framework[Any],
    job: Any,
    *pods: Pod,
    services: Iterable[Service] | None = None,
    after: timedelta = timedelta(),
    site: Site = Site(),  # noqa: B008 - frozen
    **more: Any,
) -> ObservedJob[Any]:
    """A job with these pods and, by default, all its services, observed `after` OBSERVED_AT."""
    there = job_services(framework, job) if services is None else tuple(services)
    children = JobChildren(pods=pods, services=there, **more)
    return ObservedJob.of(framework, job, OBSERVED_AT + after, children, site)


def job_plan(framework: Framework[Any], job: Any, *pods: Pod, **more: Any) -> JobPlan:
    return reconcile_plan(framework, observed_job(framework, job, *pods, **more))


def with_status(job: Any, status: JobStatus, **metadata: Any) -> Any:
    """The job with that status stored."""
    changed = msgspec.structs.replace(job.metadata, **metadata)
    return msgspec.structs.replace(job, status=status, metadata=changed)


def plan_actions(intent: JobPlan) -> list[JobAction]:
    return [action for stage in intent.stages for action in stage]


def created_names(intent: JobPlan, resource: str = "pods") -> list[str]:
    """Names of the objects the plan creates, in order."""
    return [a.name for a in plan_actions(intent) if isinstance(a, Create) and a.resource == resource]


def deleted_names(intent: JobPlan, resource: str = "pods") -> list[str]:
    """Names of the objects the plan deletes, in order."""
    return [a.name for a in plan_actions(intent) if isinstance(a, Delete) and a.resource == resource]


def created_body(intent: JobPlan, name: str, resource: str = "pods") -> Any:
    """The body the plan creates an object with."""
    return next(
        a.body for a in plan_actions(intent) if isinstance(a, Create) and (a.resource, a.name) == (resource, name)
    )


def condition_pairs(status: JobStatus) -> list[tuple[str, str]]:
    return [(found.type, found.status) for found in status.conditions]
