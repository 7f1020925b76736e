"""Observed in, plan out. Decides everything, does nothing."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.training import CleanPodPolicy, ConditionType, JobStatus, ReplicaSpec
from gangline.jobs.actions import Action, CreatePod, CreateService, DeletePod
from gangline.jobs.framework import Addresses, Framework, J, Member, Outcome
from gangline.jobs.gang import Gang
from gangline.jobs.render import member_name, pod_body, service_body
from gangline.jobs.status import replica_statuses, with_condition


class Observed(msgspec.Struct, Generic[J], frozen=True):
    """Everything a decision may depend on, at one moment."""

    job: J
    pods: tuple[Pod, ...]
    services: tuple[Service, ...]
    addresses: Addresses
    now: datetime


class Plan(msgspec.Struct, frozen=True):
    """What to write down, and what to do then: stages in order, actions within a stage in any order."""

    status: JobStatus
    stages: tuple[tuple[Action, ...], ...] = ()
    wake_after: timedelta | None = None


def plan(framework: Framework[J], seen: Observed[J]) -> Plan:
    """Decide everything, do nothing. The same input gives the same plan."""
    replicas = framework.replicas(seen.job)
    gang = Gang.of(replicas, seen.pods)
    status = _status(framework, seen, gang, replicas)
    if status.finished:
        return Plan(status, (_clean_up(framework, seen, gang),))
    return Plan(status, (_services(framework, seen, gang, replicas), _pods(framework, seen, gang, replicas)))


def _status(
    framework: Framework[J], seen: Observed[J], gang: Gang, replicas: Mapping[str, ReplicaSpec]
) -> JobStatus:
    job, now = seen.job, seen.now
    if job.status.finished:
        return job.status
    name, kind = job.metadata.name, job.KIND
    conditions = with_condition(
        job.status.conditions, ConditionType.CREATED, f"{kind}Created", f"{kind} {name} is created.", now
    )
    verdict = framework.verdict(job, gang.pods)
    completed = None
    if verdict.outcome is not Outcome.PENDING:
        told = ConditionType(verdict.outcome.value)
        conditions = with_condition(conditions, told, f"{kind}{told}", verdict.message, now)
        completed = None if verdict.outcome is Outcome.RUNNING else now
    return JobStatus(
        conditions=conditions,
        replica_statuses=replica_statuses(gang.pods, replicas),
        start_time=job.status.start_time or now,
        completion_time=completed,
    )


def _services(
    framework: Framework[J], seen: Observed[J], gang: Gang, replicas: Mapping[str, ReplicaSpec]
) -> tuple[Action, ...]:
    there = {service.metadata.name for service in seen.services}
    return tuple(
        CreateService(service_body(seen.job, seat, replicas[seat.type].template, framework))
        for seat in gang.seats
        if member_name(seen.job, seat) not in there
    )


def _pods(
    framework: Framework[J], seen: Observed[J], gang: Gang, replicas: Mapping[str, ReplicaSpec]
) -> tuple[Action, ...]:
    # A member is told where all the others are, so none starts before every address is known.
    if not seen.addresses.covers(gang.seats):
        return ()
    return tuple(_pod(framework, seen, seat, replicas[seat.type]) for seat in gang.missing())


def _pod(framework: Framework[J], seen: Observed[J], seat: Member, spec: ReplicaSpec) -> CreatePod:
    edits = framework.wiring(seen.job, seat, seen.addresses)
    return CreatePod(pod_body(seen.job, seat, spec.template, spec.restart_policy, edits, framework))


def _clean_up(framework: Framework[Any], seen: Observed[Any], gang: Gang) -> tuple[Action, ...]:
    policy = framework.run_policy(seen.job).clean_pod_policy
    if policy == CleanPodPolicy.NONE:
        return ()
    alive = (PodPhase.RUNNING, PodPhase.PENDING)
    return tuple(
        DeletePod(pod.metadata.name, pod.metadata.uid)
        for pod in gang.pods.values()
        if pod.metadata.deletion_timestamp is None
        and (policy != CleanPodPolicy.RUNNING or pod.status.phase in alive)
    )
