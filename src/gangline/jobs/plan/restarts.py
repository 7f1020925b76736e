"""Rules about restarts: which exit codes allow them, and how many there may be.

`assessment` decides that a replica or the whole gang restarts; `plan._restart_plan` plans it.
"""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import ContainerStatus, Pod, PodPhase
from gangline.api.in_place import IN_PLACE_ANNOTATION, IN_PLACE_REASONS
from gangline.api.kubeflow.training import (
    RESTART_SCOPE_ANNOTATION,
    JobStatus,
    ReplicaSpec,
    RestartLedger,
    RestartPolicy,
    RestartScope,
    RunPolicy,
    TrainingJob,
)
from gangline.jobs.pods.replicas import Gang, Member, all_pods, terminated_state, training_status

PORT_CLASH = "PortClash"
"""Reason of a failed pod on the local plane whose port was taken by another process. Its peers know that port only."""

MIN_RETRYABLE_CODE = 128
"""From this exit code on a container was ended from outside, or asked to be restarted."""

UNDELAYED_RESTARTS = {RestartScope.REPLICA: 5, RestartScope.JOB: 1}
"""Consecutive restarts without a delay: v1 never delays the restart of one replica."""
MIN_RESTART_DELAY, MAX_RESTART_DELAY = timedelta(seconds=10), timedelta(minutes=5)
STREAK_RESET_AFTER = timedelta(minutes=10)
"""If nothing fails for this long after a restart, the next one counts as the first of a new streak."""

VERDICT_DELAY, PEER_VERDICT_DELAY = timedelta(seconds=3), timedelta(seconds=60)
"""How long a verdict waits for an earlier failure to be reported; the longer one if the log blames a peer."""


class RestartTally(msgspec.Struct, frozen=True):
    """The restarts of a job up to now, those by kubelets included, and the ledger in which they are counted."""

    total: int
    ledger: RestartLedger


def restart_tally(status: JobStatus, gang: Gang, replicas: Mapping[str, ReplicaSpec]) -> RestartTally:
    """The restarts in the status, with those that kubelets have done since it was written."""
    # The v1 operator never sets observedGeneration: a started job without it was started by v1.
    taken_over = status.start_time is not None and not status.observed_generation
    ledger = with_kubelet_restarts(status.ledger, gang, replicas, taken_over=taken_over)
    return RestartTally(status.restarts + ledger.in_place - status.ledger.in_place, ledger)


def is_retryable(code: int | None) -> bool:
    """Whether policy ExitCode restarts: after a signal or an eviction (None), never after an error of the program."""
    return code is None or code >= MIN_RETRYABLE_CODE


def restart_scope(job: TrainingJob, policy: RunPolicy) -> RestartScope:
    """Whether a failure restarts one replica or all of them."""
    return requested_scope(job, policy) or RestartScope.REPLICA


def requested_scope(job: TrainingJob, policy: RunPolicy) -> RestartScope | None:
    """The restart scope that the job requests, if it does. The field wins over the annotation."""
    text = policy.restart_scope or job.metadata.annotations.get(RESTART_SCOPE_ANNOTATION, "")
    return RestartScope(text) if text in list(RestartScope) else None


def exit_code(pod: Pod, container: str) -> int | None:
    """The exit code of the training container; None if it is unknown (the pod was evicted, or its node lost)."""
    state = terminated_state(pod, container)
    return state.exit_code if state is not None else None


def is_permanent(pod: Pod, policy: str, container: str) -> bool:
    """Whether a failed pod is not restarted under the policy of its replica type."""
    if policy == RestartPolicy.EXIT_CODE:
        return not is_retryable(exit_code(pod, container))
    return policy == RestartPolicy.NEVER


def failed_pods(gang: Gang) -> dict[Member, Pod]:
    """The failed pods by replica. A pod that fails while it is being deleted is not one of them."""
    return {
        member: pod
        for member, pod in gang.pods.items()
        if pod.status.phase == PodPhase.FAILED and pod.metadata.deletion_timestamp is None
    }


def most_restarted(
    gang: Gang, container: str, known: Container[str] = ()
) -> tuple[Member, Pod, ContainerStatus] | None:
    """The replica whose training container its kubelet restarted most often, with the status of that container.

    Among equals, one whose pod's uid is in `known`.
    """
    restarted = [
        (status.restart_count, pod.metadata.uid in known, member, pod, status)
        for member, pod in gang.pods.items()
        if (end := (status := training_status(pod, container)).last_state.terminated) is not None
        and end.reason not in IN_PLACE_REASONS
    ]
    if not restarted:
        return None
    *_, member, pod, status = max(restarted, key=lambda item: item[:3])
    return member, pod, status


def with_kubelet_restarts(
    ledger: RestartLedger, gang: Gang, replicas: Mapping[str, ReplicaSpec], *, taken_over: bool = False
) -> RestartLedger:
    """The ledger with the restarts by kubelets, each counted once, and without pods that are gone.

    Pods that restart in place do so by request, which is counted when it is made. `taken_over`: the job was started by v1. Then only restarts of running pods are counted, as v1 does; else a job
    within its limit would exceed it by a change of the operator.
    """
    restarts = {
        pod.metadata.uid: _kubelet_restarts(pod)
        for member, pod in gang.pods.items()
        if replicas[member.type].restart_policy != RestartPolicy.NEVER
        and IN_PLACE_ANNOTATION not in pod.metadata.annotations
    }
    ignored = {pod.metadata.uid for pod in gang.pods.values() if taken_over and pod.status.phase != PodPhase.RUNNING}
    increase = sum(max(0, count - ledger.counted.get(uid, 0)) for uid, count in restarts.items() if uid not in ignored)
    existing = {pod.metadata.uid for pod in all_pods(gang)}
    # A surplus pod that still exists may become a replica's pod again.
    counted = {uid: count for uid, count in ledger.counted.items() if uid in existing}
    counted |= {uid: max(count, ledger.counted.get(uid, 0)) for uid, count in restarts.items()}
    if gang.missing():
        # A pod that is not observed is surely gone only if every replica has a pod: it may have lost its labels.
        existing.update(ledger.replaced)
        counted = {**ledger.counted, **counted}
    return msgspec.structs.replace(
        ledger,
        counted={uid: count for uid, count in sorted(counted.items()) if count},
        in_place=ledger.in_place + increase,
        replaced=tuple(uid for uid in ledger.replaced if uid in existing),
    )


def _kubelet_restarts(pod: Pod) -> int:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return sum(status.restart_count for status in statuses)


def exceeds_backoff_limit(limit: int | None, restarts: int, ledger: RestartLedger, requested: int) -> bool:
    """Whether `requested` more restarts exceed the limit. As in v1, also if kubelets alone have used it up."""
    if limit is None:
        return False
    return ledger.in_place >= max(limit, 1) or restarts + requested > limit


def with_backoff(ledger: RestartLedger, scope: RestartScope, now: datetime) -> RestartLedger:
    """The ledger after one more restart: the length of the streak, and when new pods may be created."""
    starts_streak = ledger.not_before is None or now - ledger.not_before >= STREAK_RESET_AFTER
    streak = 1 if starts_streak else ledger.streak + 1
    delayed = streak - UNDELAYED_RESTARTS[scope]
    delay = min(MIN_RESTART_DELAY * 2 ** (min(delayed, 10) - 1), MAX_RESTART_DELAY) if delayed > 0 else timedelta()
    # In whole seconds, and not too early: a time between two seconds is written as the next one.
    begin = now - timedelta.resolution + timedelta(seconds=1) if delay else now
    return msgspec.structs.replace(ledger, streak=streak, not_before=begin.replace(microsecond=0) + delay)


def any_terminating(pods: Iterable[Pod]) -> bool:
    """Whether one of the pods is being deleted."""
    return any(pod.metadata.deletion_timestamp is not None for pod in pods)
