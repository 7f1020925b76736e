"""Which replicas failed, which one failed first, and which failures are consequences of a lost peer."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import ContainerStateTerminated, ContainerStatus, PodPhase
from gangline.api.in_place import IN_PLACE_REASONS
from gangline.api.kubeflow.training import Failure
from gangline.frameworks.ranks import rank_of
from gangline.jobs.plan.causes import FailedRun, is_consequence
from gangline.jobs.plan.failures.ends import PEER_FAILURE_PATTERN, ReplicaEnd, blames_peer, blames_somebody_else
from gangline.jobs.plan.failures.first import first_end
from gangline.jobs.plan.failures.last_error import last_error
from gangline.why.diagnosis.case import EventFact, JobFacts, JobSnapshot, ReplicaFacts

RESTART_LOOP_COUNT = 3
"""This many restarts, the last of them recent, are a crash loop even if the container runs right now."""
SIGTERM_EXIT_CODE, SIGKILL_EXIT_CODE = 143, 137
TRACEBACK_HEADER = "Traceback (most recent call last)"
LAST_OUTPUT_LINES = 20
MAX_LINE_LENGTH = 1000
"""A longer line is looked at without its middle: patterns take a time that grows with the square of its length."""
_CHAINED_TRACEBACK = re.compile(r"During handling of the above exception|the direct cause of the following exception")
CLOCK_TOLERANCE = timedelta(seconds=2)
_CONSEQUENCE_WINDOW = timedelta(seconds=5)
"""A replica that fails this soon after a peer was killed from outside failed because of that, whatever its log says."""
_EXCEPTION_NAME = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit|NotFound|Timeout)\b")
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""torch writes it before every line of a traceback."""
_PROBE_FAILED = re.compile(r"(?:liveness|startup) probe failed", re.IGNORECASE)
_EXITED_EVENT = re.compile(r"Pod: (?P<pod>\S+) exited with code (?P<code>\d+)")


class ReplicaFailure(msgspec.Struct, frozen=True):
    """How a container ended, or a pod whose containers never started."""

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
    # The container ended and waits for its restart.
    in_backoff: bool = False
    is_init: bool = False
    # Known only from the job's status: the pod has been deleted.
    from_record: bool = False
    # The event by which the node says that it ended the container, because a probe of its own failed.
    probe_event: str = ""
    # When it began to fail, if that is known better than from its end: its error message, or its failed probe.
    began_at: datetime | None = None

    @property
    def output(self) -> tuple[str, ...]:
        return (*self.log, *map(clipped_line, self.message.splitlines()))

    @property
    def last_output(self) -> tuple[str, ...]:
        """The last output: the final traceback with the tracebacks that led to it, else the last lines.

        An earlier complaint that the program survived is not why it ended.
        """
        start = last_traceback_index(self.log)
        last = self.log[-LAST_OUTPUT_LINES:] if start is None else self.log[start:]
        return (*(_RANK_PREFIX.sub("", line) for line in last), *map(clipped_line, self.message.splitlines()))

    @property
    def blames_peer(self) -> bool:
        """Whether the replica failed by itself, and its last output blames a peer."""
        if _ended_externally(self) or not any(PEER_FAILURE_PATTERN.search(line) for line in self.last_output):
            return False
        return not blames_somebody_else(last_error(self.last_output))


def clipped_line(line: str) -> str:
    """The line, without its middle if it is long."""
    half = MAX_LINE_LENGTH // 2
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:half]}…{line[1 - half :]}"


def last_traceback_index(log: Sequence[str]) -> int | None:
    """Where the final traceback begins, with the tracebacks that led to it; None if there is none."""
    start = _last_traceback(log, len(log))
    while start is not None and any(_CHAINED_TRACEBACK.search(line) for line in log[max(0, start - 3) : start]):
        earlier = _last_traceback(log, start)
        if earlier is None:
            break
        start = earlier
    return start


def _last_traceback(log: Sequence[str], before: int) -> int | None:
    found = (index for index in range(before - 1, -1, -1) if TRACEBACK_HEADER in log[index])
    return next(found, None)


class JobFailures(msgspec.Struct, frozen=True):
    """The failures that need an explanation, the first one first, and the failures that are consequences."""

    primary: tuple[ReplicaFailure, ...] = ()
    consequences: tuple[ReplicaFailure, ...] = ()
    # Replicas that failed in the same second as the first one, if nothing says which of them was first.
    in_same_second: tuple[str, ...] = ()


def job_failures(case: JobSnapshot) -> JobFailures:
    """The failures of a job, sorted. A job that has succeeded or that runs again has none."""
    if case.job.state in ("Succeeded", "Suspended"):
        return JobFailures()
    failures = list(_current_failures(case))
    recorded = _recorded_failure(case)
    if recorded is not None and not any(_is_same_failure(recorded, end) for end in failures):
        failures.append(recorded)
    if not failures:
        failures += _failures_from_events(case)
    if not failures:
        return JobFailures()
    first = _recorded_first(failures, recorded, case)
    order_known = case.job.first_failure is None or not case.job.first_failure.order_unknown
    if first is None:
        first, order_known = _first_failure(failures, case)
    others = [end for end in failures if end is not first]
    echoes = tuple(end for end in others if _is_consequence(end, first, case))
    rest = tuple(end for end in others if end not in echoes)
    unknown = () if order_known else tuple(end.replica for end in others if _is_same_second(end, first))
    return JobFailures((first, *sorted(rest, key=_failure_order)), echoes, unknown)


def _recorded_first(
    failures: Sequence[ReplicaFailure], recorded: ReplicaFailure | None, case: JobSnapshot
) -> ReplicaFailure | None:
    """The failure that the operator recorded as the first one: everybody says the same.

    It has also seen the failure of a replica that it has replaced since.
    """
    if recorded is None:
        return None
    same = next((end for end in failures if end is not recorded and _is_same_failure(recorded, end)), None)
    return same or (recorded if recorded in failures and case.job.state == "Failed" else None)


def _is_same_second(end: ReplicaFailure, first: ReplicaFailure) -> bool:
    if end.finished_at is None or first.finished_at is None:
        return False
    return end.finished_at.replace(microsecond=0) == first.finished_at.replace(microsecond=0)


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
    """Whether other pods have replaced the failed ones: a Kubernetes Job keeps both."""
    failed = sum(one.pod.status.phase == PodPhase.FAILED for one in case.replicas)
    up = sum(one.is_up for one in case.replicas)
    return not case.job.is_finished and failed < RESTART_LOOP_COUNT and 0 < case.job.desired_total <= up


def _container_failures(case: JobSnapshot, replica: ReplicaFacts, status: ContainerStatus) -> Iterator[ReplicaFailure]:
    now, before = _own_end(status.state.terminated), _own_end(status.last_state.terminated)
    looping = status.state.waiting is not None and before is not None
    if now is not None and now.exit_code:
        # A sidecar may end while its pod goes on.
        if replica.pod.status.phase == PodPhase.FAILED or _is_training_container(case.job, replica, status.name):
            yield _container_failure(replica, status, now, replica.logs.get(status.name, ()))
    elif looping and before is not None and before.exit_code:
        yield _container_failure(replica, status, before, replica.logs.get(status.name, ()), looping=True)
    elif before is not None and before.exit_code and _is_restart_loop(case, status, before):
        yield _container_failure(replica, status, before, replica.previous_logs.get(status.name, ()), looping=True)


def _own_end(state: ContainerStateTerminated | None) -> ContainerStateTerminated | None:
    """The end of a run; None if its node ended it for a restart in place: that is no failure."""
    return state if state is None or state.reason not in IN_PLACE_REASONS else None


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
    probe = _probe_event(replica.events, state)
    # The node's reason for the whole pod explains more than the exit code of a container.
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
        probe_event=probe.message if probe is not None else "",
        began_at=probe.time if probe is not None else _error_time(replica, status.name, state),
    )


def _error_time(replica: ReplicaFacts, container: str, state: ContainerStateTerminated) -> datetime | None:
    """When a container that ended by itself wrote its error, else its last line. Ends are known to the second only."""
    error_at, last_line_at = replica.error_times.get(container, (None, None))
    if state.finished_at is None or last_line_at is None or last_line_at < state.finished_at:
        return error_at
    return error_at or last_line_at


def _probe_event(events: Sequence[EventFact], state: ContainerStateTerminated) -> EventFact | None:
    """The last event about a failed liveness or startup probe while the container ran, if there is one."""
    if state.reason == "OOMKilled":
        return None
    for event in reversed(events):
        is_later = event.time and state.finished_at and event.time > state.finished_at + CLOCK_TOLERANCE
        is_earlier = event.time and state.started_at and event.time < state.started_at - CLOCK_TOLERANCE
        if _PROBE_FAILED.search(event.message) and not is_later and not is_earlier and state.exit_code:
            return event
    return None


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
    """The failure recorded in the job's status, as long as it is relevant."""
    job, failure = case.job, case.job.first_failure
    if failure is None or not (job.state == "Failed" or _is_relevant(case, failure)):
        return None
    probe = _recorded_probe_event(case, failure)
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
        probe_event=probe.message if probe is not None else "",
    )


def _recorded_probe_event(case: JobSnapshot, failure: Failure) -> EventFact | None:
    """The event about the failed liveness or startup probe by which a pod that is gone was ended, if there is one.

    Its container may have been started again since, and the probe may have failed again.
    """
    if failure.exit_code not in (SIGTERM_EXIT_CODE, SIGKILL_EXIT_CODE) or failure.reason == "OOMKilled":
        return None
    for event in case.first_failure_events:
        is_later = event.first_seen and failure.time and event.first_seen > failure.time + CLOCK_TOLERANCE
        if _PROBE_FAILED.search(event.message) and not is_later:
            return event
    return None


def _is_relevant(case: JobSnapshot, failure: Failure) -> bool:
    if case.elapsed_since(case.job.last_restart_at or failure.time) >= case.timeouts.recovered_after:
        return False
    up = sum(one.is_up for one in case.replicas)
    return case.job.restart_streak >= RESTART_LOOP_COUNT or up < case.job.desired_total


def _failures_from_events(case: JobSnapshot) -> list[ReplicaFailure]:
    """Failures of replaced pods, from events: operators that record no failure in the status still emit these."""
    up = sum(one.is_up for one in case.replicas)
    if case.job.state != "Failed" and up >= case.job.desired_total:
        return []
    ends = []
    for event in case.events:
        match = _EXITED_EVENT.search(event.message) if event.reason == "ExitedWithCode" else None
        if match is None or int(match["code"]) == 0 or case.elapsed_since(event.time) >= case.timeouts.recovered_after:
            continue
        name = match["pod"].removeprefix(f"{case.job.namespace}.")
        ends.append(
            ReplicaFailure(
                replica=name.removeprefix(f"{case.job.name}-"),
                pod=name,
                container=case.job.container,
                exit_code=int(match["code"]),
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


def _first_failure(ends: Sequence[ReplicaFailure], case: JobSnapshot) -> tuple[ReplicaFailure, bool]:
    """The failure that came first, and whether the order is known: as the operator decides it, from the same facts."""
    first = first_end([_replica_end(end, case) for end in ends])
    assert first is not None
    found = ends[first.index]
    if blames_peer(_replica_end(found, case)):
        # Every failure blames a peer: the status recorded the failure of a pod that no longer exists.
        found = next((end for end in ends if end.from_record), found)
    return found, first.order_known


def _replica_end(end: ReplicaFailure, case: JobSnapshot) -> ReplicaEnd:
    ended_by_node = bool(end.probe_event)
    return ReplicaEnd(
        replica=end.replica,
        exit_code=end.exit_code,
        reason="OOMKilled" if ended_by_node else end.reason,
        message=end.message,
        started_at=end.started_at,
        ended_at=end.finished_at,
        is_exact=end.finished_at is not None and end.finished_at.microsecond > 0,
        began_at=end.began_at,
        log=end.log,
        rank=rank_of(case.job.kind, case.job.desired_replicas, end.replica),
        was_stopped=_was_terminated(end),
    )


def _failure_order(end: ReplicaFailure) -> tuple[float, bool, bool, str]:
    return _onset(end), end.blames_peer, end.exit_code is not None and end.exit_code < 128, end.replica


def _onset(end: ReplicaFailure) -> float:
    """When the failure began, as a number to sort by.

    Ends are known to the second. A replica that was killed may have ended at the beginning of it, and its peers notice
    afterwards; one that ended by itself has ended at any time in it.
    """
    if end.began_at is not None:
        return end.began_at.timestamp()
    if end.finished_at is None:
        return float("inf")
    is_exact = end.finished_at.microsecond or _ended_externally(end)
    return end.finished_at.timestamp() + (0.0 if is_exact else 0.999)


def _was_terminated(end: ReplicaFailure) -> bool:
    return end.exit_code == SIGTERM_EXIT_CODE and end.reason in ("", "Error") and not end.probe_event


def _is_consequence(end: ReplicaFailure, first: ReplicaFailure, case: JobSnapshot) -> bool:
    """Whether a failure is the consequence of an earlier one."""
    is_earlier = _onset(end) < _onset(first) - CLOCK_TOLERANCE.total_seconds()
    if is_earlier and first.finished_at is not None and not end.blames_peer:
        return False
    if end.replica == first.replica:
        return False
    run = FailedRun(end.replica, end.started_at, end.finished_at, end.exit_code, end.reason, end.blames_peer)
    replaced_at = _latest_start(case, first.replica)
    if first.from_record and is_consequence(run, first.replica, first.finished_at, replaced_at):
        return True
    killed = (
        end.exit_code == SIGKILL_EXIT_CODE
        and end.reason in ("", "Error")
        and not end.probe_event
        and case.job.is_finished
    )
    at_once = (
        not _ended_externally(end)
        and (_ended_externally(first) or not _is_same_trouble(first, end))
        and _delay_after(first, end) <= _CONSEQUENCE_WINDOW
    )
    return end.blames_peer or _was_terminated(end) or killed or at_once


def _latest_start(case: JobSnapshot, replica: str) -> datetime | None:
    """When a container of a replica was last started."""
    states = (status.state for one in case.replicas if one.name == replica for status in one.container_statuses)
    runs = (state.running or state.terminated for state in states)
    return max((run.started_at for run in runs if run is not None and run.started_at is not None), default=None)


def _ended_externally(end: ReplicaFailure) -> bool:
    """Whether the container was ended from outside instead of failing by itself."""
    return (
        end.exit_code is None
        or end.exit_code in (SIGKILL_EXIT_CODE, SIGTERM_EXIT_CODE)
        or end.reason in ("OOMKilled", "Evicted")
        or bool(end.probe_event)
    )


def _delay_after(first: ReplicaFailure, end: ReplicaFailure) -> timedelta:
    """The time from the end of the first failure to the beginning of this one."""
    if end.finished_at is None or first.finished_at is None:
        return timedelta.max
    return timedelta(seconds=_onset(end) - max(_onset(first), first.finished_at.timestamp()))


def _is_same_trouble(first: ReplicaFailure, end: ReplicaFailure) -> bool:
    """Whether two replicas ended with the same words, apart from numbers: each of them has the trouble itself."""
    return first.exit_code == end.exit_code and _last_words(first) == _last_words(end)


def _last_words(end: ReplicaFailure) -> str:
    """The error at the end of the output: the name of the exception, or the last line without its numbers."""
    line = next((line.strip() for line in reversed(end.last_output) if line.strip()), "")
    exception = _EXCEPTION_NAME.match(line)
    return exception[0] if exception else re.sub(r"[\d.:]+", "", line)
