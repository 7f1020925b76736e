"""Exit codes, who failed first, and the budget of restarts."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import ContainerStateTerminated, Pod, PodPhase
from gangline.api.kubeflow.training import (
    RESTART_SCOPE_ANNOTATION,
    Failure,
    ReplicaSpec,
    RestartLedger,
    RestartPolicy,
    RestartScope,
    RunPolicy,
    TrainingJob,
)
from gangline.jobs.pods.replicas import Gang, Member, terminated_state, training_container_name

PORT_CLASH = "PortClash"
"""Why a pod of the local plane failed whose port somebody else took: its peers were told that port."""

MIN_RETRYABLE_CODE = 128
"""From this exit code on a container was ended from outside, or asked to be tried again."""

UNDELAYED_RESTARTS = {RestartScope.REPLICA: 5, RestartScope.JOB: 1}
"""Restarts in a row that are not delayed: v1 never delays the restart of one replica."""
MIN_RESTART_DELAY, MAX_RESTART_DELAY = timedelta(seconds=10), timedelta(minutes=5)
STREAK_RESET_AFTER = timedelta(minutes=10)
"""A restart after which this long nothing failed ends the row."""

VERDICT_DELAY, PEER_VERDICT_DELAY = timedelta(seconds=3), timedelta(seconds=60)
"""How long a team's verdict waits for an earlier failure to be told; the longer one if the log blames a peer."""

FAILURE_LOG_LINES = 20

# What frameworks say when it was a peer that went: gloo, NCCL, gRPC, Rabit, LightGBM, MPI, sockets.
PEER_FAILURE_PATTERN = re.compile(
    r"connection (reset|closed|refused|aborted)|closed by (the )?(remote )?peer|broken pipe|socket closed"
    r"|remote (end|host|process) (closed|has)|peer (closed|left|is (gone|down))|ncclremoteerror|nccl.*remote"
    r"|unavailableerror|cancellederror|deadline_?exceeded|failed to connect to (all|remote)|heartbeat.*(timeout|lost)"
    r"|collective[/.]result\.cc|rendezvousconnectionerror|another (process|worker|task) (died|failed)|worker .* (lost|disconnected)",
    re.IGNORECASE,
)


def is_retryable(code: int | None) -> bool:
    """Whether ExitCode tries again: after a signal or an eviction, never after an error of the program's own."""
    return code is None or code >= MIN_RETRYABLE_CODE


def restart_scope(job: TrainingJob, policy: RunPolicy) -> RestartScope:
    """Whether one replica restarts or the whole team."""
    return requested_scope(job, policy) or RestartScope.REPLICA


def requested_scope(job: TrainingJob, policy: RunPolicy) -> RestartScope | None:
    """The same, if the job says so; the field wins over the annotation."""
    written = policy.restart_scope or job.metadata.annotations.get(RESTART_SCOPE_ANNOTATION, "")
    return RestartScope(written) if written in list(RestartScope) else None


def exit_code(pod: Pod, container: str) -> int | None:
    """With what the training container ended; None when nobody can say (evicted, lost)."""
    state = terminated_state(pod, container)
    return state.exit_code if state is not None else None


def is_permanent(pod: Pod, policy: str, container: str) -> bool:
    """Whether a failed pod stays failed under its replica type's policy."""
    if policy == RestartPolicy.EXIT_CODE:
        return not is_retryable(exit_code(pod, container))
    return policy == RestartPolicy.NEVER


def failed_pods(gang: Gang) -> dict[Member, Pod]:
    """Who failed. A pod that somebody sent away dies of that, and it is nobody's failure."""
    return {
        seat: pod
        for seat, pod in gang.pods.items()
        if pod.status.phase == PodPhase.FAILED and pod.metadata.deletion_timestamp is None
    }


def first_failed(
    pods: Mapping[Member, Pod], container: str, logs: Mapping[str, tuple[str, ...]]
) -> tuple[Member, Pod] | None:
    """Who failed first: by time; within one second whoever was ended from outside, then whose log blames no peer."""

    def order(found: tuple[Member, Pod]) -> tuple[float, bool, bool, Member]:
        seat, pod = found
        at = failure_time(pod, container)
        code = exit_code(pod, container)
        return (
            at.timestamp() if at is not None else float("inf"),
            not is_retryable(code),
            blames_peer(pod, container, logs),
            seat,
        )

    return min(pods.items(), key=order, default=None)


def failure_time(pod: Pod, container: str) -> datetime | None:
    """When a failed pod failed: its training container's end, else the last end of any, else its last transition."""
    state = terminated_state(pod, container)
    if state is not None and state.finished_at is not None:
        return state.finished_at
    ends = [
        found.state.terminated.finished_at
        for found in pod.status.container_statuses
        if found.state.terminated is not None and found.state.terminated.finished_at is not None
    ]
    changes = [found.last_transition_time for found in pod.status.conditions if found.last_transition_time]
    return max(ends or changes, default=None)


def blames_peer(pod: Pod, container: str, logs: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether the end of the log says that it was somebody else who went first."""
    state = terminated_state(pod, container)
    told = (*logs.get(pod.metadata.uid, ()), state.message if state is not None else "")
    return any(PEER_FAILURE_PATTERN.search(line) for line in told)


def failure_record(seat: Member, pod: Pod, container: str, logs: Mapping[str, tuple[str, ...]]) -> Failure:
    """What is written down of a failure."""
    state = terminated_state(pod, container) or _failed_container_state(pod) or ContainerStateTerminated()
    known = state != ContainerStateTerminated()
    return Failure(
        replica=str(seat),
        pod=pod.metadata.name,
        exit_code=state.exit_code if known else None,
        signal=state.signal
        or (state.exit_code - MIN_RETRYABLE_CODE if MIN_RETRYABLE_CODE < state.exit_code < 160 else 0),
        reason=pod.status.reason or state.reason,
        message=(pod.status.message or state.message)[:1000],
        time=failure_time(pod, container),
        log=logs.get(pod.metadata.uid, ())[-FAILURE_LOG_LINES:],
    )


def most_restarted_failure(gang: Gang, container: str, logs: Mapping[str, tuple[str, ...]]) -> Failure | None:
    """How the training container ended that its kubelet restarted most often: what wore the budget out."""
    tried = [
        (found.restart_count, seat, pod, found.last_state.terminated)
        for seat, pod in gang.pods.items()
        for found in pod.status.container_statuses
        if found.name == training_container_name(pod, container) and found.last_state.terminated is not None
    ]
    if not tried:
        return None
    _, seat, pod, ended = max(tried, key=lambda found: (found[0], found[1]))
    return Failure(
        replica=str(seat),
        pod=pod.metadata.name,
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
        message=ended.message[:1000],
        time=ended.finished_at,
        log=logs.get(pod.metadata.uid, ())[-FAILURE_LOG_LINES:],
    )


def _failed_container_state(pod: Pod) -> ContainerStateTerminated | None:
    states = (found.state.terminated for found in (*pod.status.init_container_statuses, *pod.status.container_statuses))
    return next((state for state in states if state is not None and state.exit_code), None)


def with_kubelet_restarts(
    ledger: RestartLedger, gang: Gang, replicas: Mapping[str, ReplicaSpec], *, taken_over: bool = False
) -> RestartLedger:
    """The ledger with the restarts that kubelets did, each counted once; pods that are gone are dropped.

    Of a job that v1 began, at the first look, only those that v1 counts: of pods that run. Else a job that is within
    its limit would be over it because another operator looks after it.
    """
    seen = {
        pod.metadata.uid: _kubelet_restarts(pod)
        for seat, pod in gang.pods.items()
        if replicas[seat.type].restart_policy != RestartPolicy.NEVER
    }
    over = {pod.metadata.uid for pod in gang.pods.values() if taken_over and pod.status.phase != PodPhase.RUNNING}
    more = sum(max(0, number - ledger.counted.get(uid, 0)) for uid, number in seen.items() if uid not in over)
    here = {pod.metadata.uid for pod in (*gang.pods.values(), *gang.stale, *gang.extra)}
    # One that was scaled away and is not gone yet may get its seat back.
    kept = {uid: number for uid, number in ledger.counted.items() if uid in here}
    kept |= {uid: max(number, ledger.counted.get(uid, 0)) for uid, number in seen.items()}
    if gang.missing():
        # Only when every seat has its pod is one that is not seen surely gone: it may just have lost its labels.
        here.update(ledger.replaced)
        kept = {**ledger.counted, **kept}
    return msgspec.structs.replace(
        ledger,
        counted={uid: number for uid, number in sorted(kept.items()) if number},
        in_place=ledger.in_place + more,
        replaced=tuple(uid for uid in ledger.replaced if uid in here),
    )


def _kubelet_restarts(pod: Pod) -> int:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return sum(found.restart_count for found in statuses)


def exceeds_backoff_limit(limit: int | None, restarts: int, ledger: RestartLedger, wanted: int) -> bool:
    """Whether the budget does not allow what is wanted.

    `limit` restarts are allowed. As in v1 the job also ends when the kubelets alone have used them up.
    """
    if limit is None:
        return False
    return ledger.in_place >= max(limit, 1) or restarts + wanted > limit


def with_backoff(ledger: RestartLedger, which: RestartScope, now: datetime) -> RestartLedger:
    """The ledger after one more restart: how many in a row, and when the next pods may come."""
    fresh = ledger.not_before is None or now - ledger.not_before >= STREAK_RESET_AFTER
    streak = 1 if fresh else ledger.streak + 1
    late = streak - UNDELAYED_RESTARTS[which]
    wait = min(MIN_RESTART_DELAY * 2 ** (min(late, 10) - 1), MAX_RESTART_DELAY) if late > 0 else timedelta()
    return msgspec.structs.replace(ledger, streak=streak, not_before=now.replace(microsecond=0) + wait)


def any_terminating(pods: Iterable[Pod]) -> bool:
    """Whether a pod of a team is on its way out, though nobody of us sent it."""
    return any(pod.metadata.deletion_timestamp is not None for pod in pods)
