"""Which failure the failure that ends or restarts a job follows from.

A replica that was killed is often replaced before its peers complain. Their complaint is then the failure that decides
about the job, and the replica that was replaced is its cause.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.in_place import IN_PLACE_REASONS
from gangline.api.kubeflow.training import Failure, JobStatus
from gangline.jobs.plan.failures.records import NO_RANKS, LogTails, Ranks, blames_peer, in_place_failure, supersedes
from gangline.jobs.pods.replicas import Gang, round_number, training_status

CONSEQUENCE_WINDOW = timedelta(seconds=60)
"""A replica that fails this soon after a peer failed, or after the peer's replacement started, failed because of that."""
PEER_CONSEQUENCE_WINDOW = timedelta(minutes=30)
"""The same for a replica whose log blames a peer: collective operations time out after up to 30 minutes."""
SIGKILL_CODE = 137
_OUTSIDE_REASONS = ("OOMKilled", "Evicted", "Preempting", "NodeLost", "DeadlineExceeded")


def is_outside_end(exit_code: int | None, reason: str) -> bool:
    """Whether a container was killed, is out of memory, or its pod was evicted or lost."""
    return exit_code in (None, SIGKILL_CODE) or reason in _OUTSIDE_REASONS


class FailedRun(msgspec.Struct, frozen=True):
    """One run of a replica's container that failed by itself or was ended from outside."""

    replica: str
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None = None
    reason: str = ""
    blames_peer: bool = False

    @property
    def ended_from_outside(self) -> bool:
        """Whether somebody else ended it: no failure of a peer does that."""
        return is_outside_end(self.exit_code, self.reason)


def is_consequence(
    run: FailedRun, replica: str, failed_at: datetime | None, replaced_at: datetime | None = None
) -> bool:
    """Whether a run failed because another replica had failed before.

    It was running when that replica failed, it ended by itself, and it blames a peer within 30 minutes, or it failed
    within 60 s of the failure or of the start of the replacement.
    """
    if run.replica == replica or run.ended_from_outside:
        return False
    if failed_at is None or run.started_at is None or run.ended_at is None:
        return False
    if not run.started_at <= failed_at <= run.ended_at:
        return False
    window = PEER_CONSEQUENCE_WINDOW if run.blames_peer else CONSEQUENCE_WINDOW
    since = max(failed_at, replaced_at) if replaced_at is not None and replaced_at <= run.ended_at else failed_at
    return run.ended_at - since <= window


def root_cause(
    cause: Failure | None, status: JobStatus, gang: Gang, container: str, logs: LogTails, ranks: Ranks = NO_RANKS
) -> Failure | None:
    """The failure that `cause`, the first of the pods that have failed, follows from; `cause` itself if there is none.

    Candidates are the failure in the status, if it is of this round, and runs that kubelets restarted in place.
    """
    found = _find_run(cause, gang, container, logs) if cause is not None else None
    if cause is None or found is None:
        return cause
    pod, run = found
    recorded = status.first_failure
    candidates = list(_ends_in_place(gang, container, logs, ranks))
    if recorded is not None and status.ledger.failed_round == round_number(pod.metadata):
        candidates.append(recorded)
    starts = {str(member): _latest_start(other, container) for member, other in gang.pods.items()}
    earlier = [
        one
        for one in candidates
        if is_consequence(run, one.replica, one.time, starts.get(one.replica)) and not supersedes(cause, one)
    ]
    return min(earlier, key=_time_of, default=cause)


def _time_of(failure: Failure) -> float:
    return failure.time.timestamp() if failure.time is not None else float("inf")


def _find_run(cause: Failure, gang: Gang, container: str, logs: LogTails) -> tuple[Pod, FailedRun] | None:
    """The run that ended in a failure, with its pod."""
    for member, pod in gang.pods.items():
        if pod.metadata.name != cause.pod:
            continue
        status = training_status(pod, container)
        for state in (status.state.terminated, status.last_state.terminated):
            if state is not None and (state.exit_code, state.finished_at) == (cause.exit_code, cause.time):
                blames = blames_peer(pod, container, logs)
                reason = pod.status.reason or state.reason
                times = (state.started_at or pod.status.start_time, state.finished_at)
                return pod, FailedRun(str(member), *times, state.exit_code, reason, blames)
    return None


def _ends_in_place(gang: Gang, container: str, logs: LogTails, ranks: Ranks) -> Iterator[Failure]:
    """The failures after which kubelets restarted the training container in the same pod."""
    for member, pod in gang.pods.items():
        state = training_status(pod, container).last_state.terminated
        if state is not None and state.exit_code and state.reason not in IN_PLACE_REASONS:
            yield in_place_failure(member, pod, state, logs, ranks)


def _latest_start(pod: Pod, container: str) -> datetime | None:
    """When the training container of a pod was last started."""
    state = training_status(pod, container).state
    run = state.running or state.terminated
    return run.started_at if run is not None else None
