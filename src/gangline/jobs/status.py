"""Conditions and counts: how a job's state is written down."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.meta import Condition
from gangline.api.training import ConditionType, JobStatus, ReplicaStatus
from gangline.jobs.framework import Member


def with_condition(
    conditions: Iterable[Condition], kind: ConditionType, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """The condition True and last; the same condition with the same reason is left as it is."""
    kept = tuple(conditions)
    if any(found.type == kind and found.status == "True" and found.reason == reason for found in kept):
        return kept
    fresh = Condition(
        type=kind,
        status="True",
        reason=reason,
        message=message,
        last_update_time=now,
        last_transition_time=now,
    )
    others = (found for found in kept if found.type != kind)
    if kind in (ConditionType.SUCCEEDED, ConditionType.FAILED):
        others = (_ended(found, now) for found in others)
    return (*others, fresh)


def _ended(found: Condition, now: datetime) -> Condition:
    if found.type == ConditionType.RUNNING and found.status == "True":
        return msgspec.structs.replace(found, status="False", last_update_time=now, last_transition_time=now)
    return found


def replica_statuses(pods: Mapping[Member, Pod], types: Iterable[str]) -> dict[str, ReplicaStatus]:
    def count(kind: str, phase: PodPhase) -> int:
        return sum(member.type == kind and pod.status.phase == phase for member, pod in pods.items())

    return {
        kind: ReplicaStatus(
            active=count(kind, PodPhase.RUNNING),
            succeeded=count(kind, PodPhase.SUCCEEDED),
            failed=count(kind, PodPhase.FAILED),
        )
        for kind in types
    }


def newest(status: JobStatus) -> str:
    """The state in one word: the newest condition that is True."""
    return next((found.type for found in reversed(status.conditions) if found.status == "True"), "Pending")
