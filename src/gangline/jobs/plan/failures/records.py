"""The ends of a team's pods as values to compare, and the first of them as it is written in the job's status."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from gangline.api.core import ContainerStateTerminated, ContainerStatus, Pod, PodPhase
from gangline.api.in_place import IN_PLACE_REASONS
from gangline.api.kubeflow.training import ENDED_AT_ANNOTATION, ConditionType, Failure, JobStatus
from gangline.jobs.plan.failures.ends import (
    KILL_SIGNAL,
    MIN_SIGNAL_CODE,
    TERM_SIGNAL,
    EndKind,
    ReplicaEnd,
    end_kind,
    end_signal,
    error_kind,
    is_reaction_to_stop,
)
from gangline.jobs.plan.failures.first import first_end
from gangline.jobs.plan.failures.last_error import last_error, plain_lines
from gangline.jobs.pods.replicas import Gang, Member, round_number, terminated_state, training_status

FAILURE_LOG_LINES = 20
MAX_MESSAGE_LENGTH = 1000
SAME_TROUBLE_SECONDS = 60.0
"""Ends so close to each other belong to the same trouble."""

LogTails = Mapping[str, tuple[str, ...]]
"""The last log lines of failed pods by uid, as the API returns them: with times, if they were asked for."""
Ranks = Mapping[str, int]
"""The rank of each replica that has exactly one."""
NO_RANKS: Ranks = MappingProxyType({})


REVISION_TIME = timedelta(seconds=60)
"""How long after the end of a job its first failure is corrected by what nodes report late."""


class FailedPod(NamedTuple):
    """The replica that failed first, its pod, and whether the order is known."""

    member: Member
    pod: Pod
    order_known: bool = True


def first_failed(
    pods: Mapping[Member, Pod], container: str, logs: LogTails, ranks: Ranks = NO_RANKS
) -> FailedPod | None:
    """The replica of these failed ones that failed first, with its pod."""
    members = list(pods.items())
    first = first_end([replica_end(member, pod, container, logs, ranks) for member, pod in members])
    return FailedPod(*members[first.index], first.order_known) if first is not None else None


def replica_end(
    member: Member,
    pod: Pod,
    container: str,
    logs: LogTails,
    ranks: Ranks = NO_RANKS,
    stopped_since: datetime | None = None,
) -> ReplicaEnd:
    """How a failed pod ended. `stopped_since`: when the clean-up of its job began."""
    state = terminated_state(pod, container) or _failed_container_state(pod)
    end = state or ContainerStateTerminated()
    exact = exact_end(pod, end)
    return ReplicaEnd(
        replica=str(member),
        exit_code=end.exit_code if state is not None else None,
        signal=end.signal,
        reason=pod.status.reason or end.reason,
        message=pod.status.message or end.message,
        started_at=end.started_at or pod.status.start_time,
        ended_at=exact or failure_time(pod, container),
        is_exact=exact is not None,
        log=tuple(logs.get(pod.metadata.uid, ())),
        rank=ranks.get(str(member)),
        was_stopped=pod.metadata.deletion_timestamp is not None and not ended_by_itself(pod, container, stopped_since),
    )


def exact_end(pod: Pod, state: ContainerStateTerminated) -> datetime | None:
    """When the process of a container ended, as exactly as our own node saw it; other nodes report whole seconds."""
    annotation = pod.metadata.annotations.get(ENDED_AT_ANNOTATION, "")
    if not annotation or not state.container_id:
        return None
    try:
        ends = msgspec.json.decode(annotation, type=dict[str, datetime])
    except msgspec.DecodeError:
        return None
    return ends.get(state.container_id)


def failure_time(pod: Pod, container: str) -> datetime | None:
    """When a failed pod failed.

    The end of its training container, else that of its last container, else the last change of a condition.
    """
    state = terminated_state(pod, container)
    if state is not None and state.finished_at is not None:
        return state.finished_at
    ends = [
        status.state.terminated.finished_at
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at is not None
    ]
    transitions = [
        condition.last_transition_time for condition in pod.status.conditions if condition.last_transition_time
    ]
    return max(ends or transitions, default=None)


def blames_peer(pod: Pod, container: str, logs: LogTails) -> bool:
    """Whether the end of a failed pod says that a peer failed before."""
    return end_kind(replica_end(Member("", 0), pod, container, logs)) is EndKind.COMPLAINT


def failure_record(
    member: Member, pod: Pod, container: str, logs: LogTails, *, ranks: Ranks = NO_RANKS, order_known: bool = True
) -> Failure:
    """The failure of a pod as it is written in the job's status."""
    state = terminated_state(pod, container) or _failed_container_state(pod)
    end = state or ContainerStateTerminated()
    return Failure(
        replica=str(member),
        rank=ranks.get(str(member)),
        pod=pod.metadata.name,
        exit_code=end.exit_code if state is not None else None,
        signal=end.signal or (end.exit_code - 128 if MIN_SIGNAL_CODE <= end.exit_code < 160 else 0),
        reason=pod.status.reason or end.reason,
        message=(pod.status.message or end.message)[:MAX_MESSAGE_LENGTH],
        time=failure_time(pod, container),
        began=_began(replica_end(member, pod, container, logs, ranks)),
        order_unknown=not order_known,
        log=plain_lines(logs.get(pod.metadata.uid, ()))[-FAILURE_LOG_LINES:],
    )


def in_place_failure(
    member: Member, pod: Pod, state: ContainerStateTerminated, logs: LogTails, ranks: Ranks = NO_RANKS
) -> Failure:
    """The failure of a run after which the kubelet restarted the container."""
    return Failure(
        replica=str(member),
        rank=ranks.get(str(member)),
        pod=pod.metadata.name,
        exit_code=state.exit_code,
        signal=state.signal,
        reason=state.reason,
        message=state.message[:MAX_MESSAGE_LENGTH],
        time=state.finished_at,
        began=_began(in_place_end(member, pod, state, logs, ranks)),
        log=plain_lines(logs.get(pod.metadata.uid, ()))[-FAILURE_LOG_LINES:],
    )


def in_place_end(
    member: Member, pod: Pod, state: ContainerStateTerminated, logs: LogTails, ranks: Ranks = NO_RANKS
) -> ReplicaEnd:
    """The end of a run after which the kubelet restarted the container."""
    exact = exact_end(pod, state)
    return ReplicaEnd(
        replica=str(member),
        exit_code=state.exit_code,
        signal=state.signal,
        reason=state.reason,
        message=state.message,
        started_at=state.started_at,
        ended_at=exact or state.finished_at,
        is_exact=exact is not None,
        log=tuple(logs.get(pod.metadata.uid, ())),
        rank=ranks.get(str(member)),
    )


def recorded_end(failure: Failure) -> ReplicaEnd:
    """The end behind a failure in the job's status."""
    return ReplicaEnd(
        replica=failure.replica,
        exit_code=failure.exit_code,
        signal=failure.signal,
        reason=failure.reason,
        message=failure.message,
        ended_at=failure.time,
        began_at=failure.began,
        log=failure.log,
        rank=failure.rank,
    )


def supersedes(newer: Failure | None, recorded: Failure | None) -> bool:
    """Whether a failure that was reported later came before the one in the status, and belongs to the same trouble."""
    if newer is None or recorded is None or newer.time is None or recorded.time is None:
        return False
    if newer.replica == recorded.replica or abs((newer.time - recorded.time).total_seconds()) > SAME_TROUBLE_SECONDS:
        return False
    first = first_end([recorded_end(recorded), recorded_end(newer)])
    return first is not None and first.index == 1 and first.order_known


def may_be_revised(status: JobStatus, now: datetime) -> bool:
    """Whether the first failure of a job may still be corrected although the job has ended."""
    if not status.holds(ConditionType.FAILED) or status.first_failure is None or status.completion_time is None:
        return False
    return now - status.completion_time <= REVISION_TIME


def revised_failure(
    recorded: Failure,
    pods: Mapping[Member, Pod],
    container: str,
    logs: LogTails,
    ranks: Ranks = NO_RANKS,
    stopped_since: datetime | None = None,
) -> Failure:
    """The first failure of a team by all that is known of its ends: the recorded one, or one that was reported after it.

    Kubelets report the ends of containers seconds apart, and that a pod has failed only after the end of its container.
    `stopped_since`: when the clean-up of the job began. What it stopped counts by its log: it may have been failing.
    """
    if recorded.time is None:
        return recorded
    own, ends, records = recorded_end(recorded), list[ReplicaEnd](), list[Failure]()
    for member, pod in pods.items():
        end = replica_end(member, pod, container, logs, ranks, stopped_since)
        if pod.metadata.name == recorded.pod:
            is_recorded = failure_time(pod, container) == recorded.time and end.exit_code == recorded.exit_code
            own = end if is_recorded and end.log else own
        elif has_failed(pod, container) and _is_evidence(end) and _is_close(end.ended_at, recorded.time):
            ends.append(end)
            records.append(failure_record(member, pod, container, logs, ranks=ranks))
    first = first_end([own, *ends]) if ends else None
    if first is None:
        return recorded
    chosen = (recorded, *records)[first.index]
    return msgspec.structs.replace(chosen, order_unknown=not first.order_known)


def has_failed(pod: Pod, container: str) -> bool:
    """Whether the program of a pod has failed, even if its kubelet has not reported that of the pod yet."""
    state = terminated_state(pod, container)
    if state is None or state.reason in IN_PLACE_REASONS:
        return pod.status.phase == PodPhase.FAILED
    return pod.status.phase == PodPhase.FAILED or state.exit_code != 0


def ended_pods(gang: Gang, departed: Iterable[Pod] = ()) -> dict[Member, Pod]:
    """The pods of a team by replica, with the last states of those that are gone and have no successor."""
    by_name = {name: member for member, name in gang.names.items()}
    newest = max((round_number(pod.metadata) for pod in gang.pods.values()), default=0)
    gone = {
        by_name[pod.metadata.name]: pod
        for pod in departed
        if pod.metadata.name in by_name and round_number(pod.metadata) >= newest
    }
    return {**gone, **gang.pods}


def ended_by_itself(pod: Pod, container: str, stopped_since: datetime | None = None) -> bool:
    """Whether the program of a pod that is being deleted ended by itself, and not because of that.

    Its exit code or signal says so, or that it ended before the clean-up began.
    """
    state = terminated_state(pod, container)
    if state is None:
        return False
    if state.reason == "OOMKilled":
        return True
    ended = state.finished_at
    is_earlier = stopped_since is not None and ended is not None and ended < stopped_since
    is_later = stopped_since is not None and ended is not None and ended > stopped_since
    if end_signal(ReplicaEnd("", state.exit_code, state.signal)) in (TERM_SIGNAL, KILL_SIGNAL):
        return is_earlier
    return state.exit_code > 0 and not is_later


def _is_evidence(end: ReplicaEnd) -> bool:
    """Whether an end may be the first one: one that the clean-up made says nothing, but for an error before it."""
    return not end.was_stopped or (bool(end.error.frames) and not is_reaction_to_stop(end.error))


def _is_close(time: datetime | None, other: datetime) -> bool:
    return time is not None and abs((time - other).total_seconds()) <= SAME_TROUBLE_SECONDS


def has_written_error(member: Member, pod: Pod, logs: LogTails, ranks: Ranks = NO_RANKS) -> bool:
    """Whether the log of a replica that runs ends with an error that complains about nobody: it is about to end."""
    error = last_error(logs.get(pod.metadata.uid, ()))
    return bool(error.frames) and error_kind(error, str(member), ranks.get(str(member))) is not EndKind.COMPLAINT


def last_restarted_failure(gang: Gang, container: str, logs: LogTails, ranks: Ranks = NO_RANKS) -> Failure | None:
    """The first end of the last time that kubelets restarted containers: these restarts used up the backoff limit."""
    ends: list[tuple[int, Member, Pod, ContainerStateTerminated]] = []
    for member, pod in gang.pods.items():
        status = training_status(pod, container)
        state = status.last_state.terminated
        if state is not None and status.restart_count and state.reason not in IN_PLACE_REASONS:
            ends.append((status.restart_count, member, pod, state))
    if not ends:
        return None
    most = max(ends, key=lambda item: (item[0], item[2].metadata.uid in logs, item[1]))
    last = [item for item in ends if item is most or _is_same_trouble(item, most)]
    first = first_end([in_place_end(*item[1:], logs, ranks) for item in last])
    _, member, pod, state = last[first.index] if first is not None else most
    return in_place_failure(member, pod, state, logs, ranks)


def _is_same_trouble(
    item: tuple[int, Member, Pod, ContainerStateTerminated], most: tuple[int, Member, Pod, ContainerStateTerminated]
) -> bool:
    """Whether a container was restarted as often as the one that was restarted most often, and ended when it did."""
    mine, other = item[3].finished_at, most[3].finished_at
    if item[0] != most[0] or mine is None or other is None or not item[3].exit_code:
        return False
    return abs((mine - other).total_seconds()) <= SAME_TROUBLE_SECONDS


def _began(end: ReplicaEnd) -> datetime | None:
    """When a replica began to fail, if that is known better than to the second."""
    return end.error.at or (end.ended_at if end.is_exact else None)


def _failed_container_state(pod: Pod) -> ContainerStateTerminated | None:
    statuses: Iterable[ContainerStatus] = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    states = (status.state.terminated for status in statuses)
    return next((state for state in states if state is not None and state.exit_code), None)
