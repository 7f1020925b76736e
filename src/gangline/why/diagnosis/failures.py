"""Who failed, who failed first, and who only died of a lost peer."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import ContainerStateTerminated, ContainerStatus, PodPhase
from gangline.api.kubeflow.training import Failure
from gangline.jobs.plan.restarts import PEER_FAILURE_PATTERN
from gangline.why.diagnosis.case import JobFacts, JobSnapshot, ReplicaFacts

RESTART_LOOP_COUNT = 3
"""So many restarts, the last of them lately, are a loop even if the container runs right now."""
SIGTERM_EXIT_CODE, SIGKILL_EXIT_CODE = 143, 137
TRACEBACK_HEADER = "Traceback (most recent call last)"
LAST_OUTPUT_LINES = 20
_CHAINED_TRACEBACK = re.compile(r"During handling of the above exception|the direct cause of the following exception")
_CLOCK_TOLERANCE = timedelta(seconds=2)
_CONSEQUENCE_WINDOW = timedelta(seconds=5)
"""Who fails by itself so soon after a peer was ended from outside fails because of it, whatever it says."""
_EXITED_EVENT = re.compile(r"Pod: (?P<pod>\S+) exited with code (?P<code>\d+)")


class ReplicaFailure(msgspec.Struct, frozen=True):
    """How a container ended, or a pod that never had one."""

    replica: str
    pod: str
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None
    started_at: datetime | None = None
    log: tuple[str, ...] = ()
    restarts: int = 0
    # It ended, and is held back before the next start.
    in_backoff: bool = False
    is_init: bool = False
    # Told by the job's status: the pod is gone.
    from_record: bool = False

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.log, *self.message.splitlines())

    @property
    def last_output(self) -> tuple[str, ...]:
        """What it said as it ended: its last traceback with those that led to it, else its last lines.

        What a program complained of earlier, and lived with, is not why it ended.
        """
        log = self.log
        start = _last_traceback(log, len(log))
        if start is None:
            return (*log[-LAST_OUTPUT_LINES:], *self.message.splitlines())
        while any(_CHAINED_TRACEBACK.search(line) for line in log[max(0, start - 3) : start]):
            earlier = _last_traceback(log, start)
            if earlier is None:
                break
            start = earlier
        return (*log[start:], *self.message.splitlines())

    @property
    def blames_peer(self) -> bool:
        """Whether it ended by itself, and its last words say that it was a peer who went."""
        return not _ended_externally(self) and any(PEER_FAILURE_PATTERN.search(line) for line in self.last_output)


def _last_traceback(log: tuple[str, ...], before: int) -> int | None:
    found = (index for index in range(before - 1, -1, -1) if TRACEBACK_HEADER in log[index])
    return next(found, None)


class JobFailures(msgspec.Struct, frozen=True):
    """Failures that need an explanation, the first one first; and those that are its consequences."""

    primary: tuple[ReplicaFailure, ...] = ()
    consequences: tuple[ReplicaFailure, ...] = ()


def job_failures(case: JobSnapshot) -> JobFailures:
    """Sort out the failures of a job. A job that has succeeded has none; one that runs again has none."""
    if case.job.state in ("Succeeded", "Suspended"):
        return JobFailures()
    found = list(_current_failures(case))
    recorded = _recorded_failure(case)
    if recorded is not None and not any(_is_same_failure(recorded, end) for end in found):
        found.append(recorded)
    if not found:
        found += _failures_from_events(case)
    if not found:
        return JobFailures()
    first = _first_failure(found, case)
    others = [end for end in found if end is not first]
    echoes = tuple(end for end in others if _is_consequence(end, first, case))
    rest = tuple(end for end in others if end not in echoes)
    return JobFailures((first, *sorted(rest, key=_failure_order)), echoes)


# Which ends count


def _current_failures(case: JobSnapshot) -> Iterator[ReplicaFailure]:
    forgiven = _failures_replaced(case)
    for replica in case.replicas:
        failed = replica.pod.status.phase == PodPhase.FAILED
        if replica.pod.metadata.deletion_timestamp is not None or (failed and forgiven):
            continue
        ended = [end for status in replica.container_statuses for end in _container_failures(case, replica, status)]
        yield from ended
        if not ended and replica.pod.status.phase == PodPhase.FAILED:
            yield _pod_failure(replica)


def _failures_replaced(case: JobSnapshot) -> bool:
    """Whether others have taken the places of those that failed: a Job of Kubernetes' own keeps both."""
    failed = sum(one.pod.status.phase == PodPhase.FAILED for one in case.replicas)
    up = sum(one.is_up for one in case.replicas)
    return not case.job.is_finished and failed < RESTART_LOOP_COUNT and 0 < case.job.desired_total <= up


def _container_failures(case: JobSnapshot, replica: ReplicaFacts, status: ContainerStatus) -> Iterator[ReplicaFailure]:
    now, before = status.state.terminated, status.last_state.terminated
    looping = status.state.waiting is not None and before is not None
    if now is not None and now.exit_code:
        # A sidecar may end as it likes while its pod goes on.
        if replica.pod.status.phase == PodPhase.FAILED or _is_training_container(case.job, replica, status.name):
            yield _container_failure(replica, status, now, replica.logs.get(status.name, ()))
    elif looping and before is not None and before.exit_code:
        yield _container_failure(replica, status, before, replica.logs.get(status.name, ()), looping=True)
    elif before is not None and before.exit_code and _is_restart_loop(case, status, before):
        yield _container_failure(replica, status, before, replica.previous_logs.get(status.name, ()), looping=True)


def _is_training_container(job: JobFacts, replica: ReplicaFacts, container: str) -> bool:
    named = [one.name for one in replica.pod.spec.containers]
    inits = [one.name for one in replica.pod.spec.init_containers]
    wanted = job.container if job.container in named else (named[0] if named else container)
    return container == wanted or container in inits


def _is_restart_loop(case: JobSnapshot, status: ContainerStatus, ended: ContainerStateTerminated) -> bool:
    return (
        status.restart_count >= RESTART_LOOP_COUNT
        and case.elapsed_since(ended.finished_at) < case.timeouts.recovered_after
    )


def _container_failure(
    replica: ReplicaFacts,
    status: ContainerStatus,
    state: ContainerStateTerminated,
    log: tuple[str, ...],
    *,
    looping: bool = False,
) -> ReplicaFailure:
    pod = replica.pod
    # What the node says of the pod as a whole goes before what a container ended with because of it.
    overruled = pod.status.phase == PodPhase.FAILED and pod.status.reason
    return ReplicaFailure(
        replica=replica.name,
        pod=pod.metadata.name,
        container=status.name,
        exit_code=state.exit_code,
        reason=pod.status.reason if overruled else state.reason,
        message=pod.status.message if overruled else state.message,
        finished_at=state.finished_at,
        started_at=state.started_at,
        log=log,
        restarts=status.restart_count,
        in_backoff=looping,
        is_init=any(one.name == status.name for one in pod.status.init_container_statuses),
    )


def _pod_failure(replica: ReplicaFacts) -> ReplicaFailure:
    status = replica.pod.status
    changes = [one.last_transition_time for one in status.conditions if one.last_transition_time is not None]
    return ReplicaFailure(
        replica=replica.name,
        pod=replica.pod.metadata.name,
        reason=status.reason,
        message=status.message,
        finished_at=max(changes, default=None),
    )


def _recorded_failure(case: JobSnapshot) -> ReplicaFailure | None:
    """What the status remembers of a failure, as long as it matters."""
    job, failure = case.job, case.job.first_failure
    if failure is None or not (job.state == "Failed" or _is_relevant(case, failure)):
        return None
    return ReplicaFailure(
        replica=failure.replica,
        pod=failure.pod,
        container=job.container,
        exit_code=failure.exit_code,
        reason=failure.reason,
        message=failure.message,
        finished_at=failure.time,
        log=failure.log,
        restarts=job.restarts,
        in_backoff=job.state != "Failed" and job.restart_streak >= RESTART_LOOP_COUNT,
        from_record=True,
    )


def _is_relevant(case: JobSnapshot, failure: Failure) -> bool:
    if case.elapsed_since(case.job.last_restart_at or failure.time) >= case.timeouts.recovered_after:
        return False
    up = sum(one.is_up for one in case.replicas)
    return case.job.restart_streak >= RESTART_LOOP_COUNT or up < case.job.desired_total


def _failures_from_events(case: JobSnapshot) -> list[ReplicaFailure]:
    """What events tell of pods that were replaced: an operator that keeps no record in the status says so much."""
    up = sum(one.is_up for one in case.replicas)
    if case.job.state != "Failed" and up >= case.job.desired_total:
        return []
    ends = []
    for event in case.events:
        found = _EXITED_EVENT.search(event.message) if event.reason == "ExitedWithCode" else None
        if found is None or int(found["code"]) == 0 or case.elapsed_since(event.time) >= case.timeouts.recovered_after:
            continue
        name = found["pod"].removeprefix(f"{case.job.namespace}.")
        ends.append(
            ReplicaFailure(
                replica=name.removeprefix(f"{case.job.name}-"),
                pod=name,
                container=case.job.container,
                exit_code=int(found["code"]),
                finished_at=event.time,
                restarts=event.count,
                from_record=True,
            )
        )
    return ends


def _is_same_failure(recorded: ReplicaFailure, end: ReplicaFailure) -> bool:
    return recorded.pod == end.pod and (recorded.exit_code, recorded.finished_at) == (
        end.exit_code,
        end.finished_at,
    )


# Who was first


def _first_failure(ends: Iterable[ReplicaFailure], case: JobSnapshot) -> ReplicaFailure:
    """By time; but whoever blames a peer or was sent away was not first if anybody else was there in time."""
    ordered = sorted(ends, key=_failure_order)
    earliest = ordered[0].finished_at
    for end in ordered:
        late = (
            earliest is not None
            and end.finished_at is not None
            and end.finished_at - earliest > case.timeouts.consequence_within
        ) or end.finished_at is None
        if not late and not end.blames_peer and not _was_terminated(end):
            return end
    # Nobody is without excuse: the status knows what pods that are gone said.
    return next((end for end in ordered if end.from_record), ordered[0])


def _failure_order(end: ReplicaFailure) -> tuple[float, bool, bool, str]:
    at = end.finished_at.timestamp() if end.finished_at is not None else float("inf")
    return at, end.blames_peer, end.exit_code is not None and end.exit_code < 128, end.replica


def _was_terminated(end: ReplicaFailure) -> bool:
    return end.exit_code == SIGTERM_EXIT_CODE and end.reason in ("", "Error")


def _is_consequence(end: ReplicaFailure, first: ReplicaFailure, case: JobSnapshot) -> bool:
    """Whether a failure is the consequence of an earlier one."""
    if (
        end.finished_at is not None
        and first.finished_at is not None
        and end.finished_at < first.finished_at - _CLOCK_TOLERANCE
        and not end.blames_peer
    ):
        return False
    if end.replica == first.replica:
        return False
    killed = end.exit_code == SIGKILL_EXIT_CODE and end.reason in ("", "Error") and case.job.is_finished
    at_once = (
        _ended_externally(first) and not _ended_externally(end) and _delay_after(first, end) <= _CONSEQUENCE_WINDOW
    )
    return end.blames_peer or _was_terminated(end) or killed or at_once


def _ended_externally(end: ReplicaFailure) -> bool:
    """Whether it was ended, and did not fail by itself."""
    return (
        end.exit_code is None
        or end.exit_code in (SIGKILL_EXIT_CODE, SIGTERM_EXIT_CODE)
        or end.reason in ("OOMKilled", "Evicted")
    )


def _delay_after(first: ReplicaFailure, end: ReplicaFailure) -> timedelta:
    """How long after the first."""
    return (
        end.finished_at - first.finished_at
        if end.finished_at is not None and first.finished_at is not None
        else timedelta.max
    )
