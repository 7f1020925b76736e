"""Who failed, who failed first, and who only died of a lost peer."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import ContainerStateTerminated, ContainerStatus, PodPhase
from gangline.api.kubeflow.training import Failure
from gangline.jobs.plan.restarts import BLAMES_PEER
from gangline.why.model.case import Case, Job, Replica

OFTEN = 3
"""So many restarts, the last of them lately, are a loop even if the container runs right now."""
TERMINATED, KILLED = 143, 137
TRACEBACK = "Traceback (most recent call last)"
LAST_WORDS = 20
_CHAINED = re.compile(r"During handling of the above exception|the direct cause of the following exception")
_SOON = timedelta(seconds=2)
_MOMENT = timedelta(seconds=5)
"""Who fails by itself so soon after a peer was ended from outside fails because of it, whatever it says."""
_EXITED = re.compile(r"Pod: (?P<pod>\S+) exited with code (?P<code>\d+)")


class End(msgspec.Struct, frozen=True):
    """How a container ended, or a pod that never had one."""

    replica: str
    pod: str
    container: str = ""
    code: int | None = None
    reason: str = ""
    message: str = ""
    at: datetime | None = None
    started: datetime | None = None
    log: tuple[str, ...] = ()
    restarts: int = 0
    # It ended, and is held back before the next start.
    looping: bool = False
    init: bool = False
    # Told by the job's status: the pod is gone.
    recorded: bool = False

    @property
    def said(self) -> tuple[str, ...]:
        return (*self.log, *self.message.splitlines())

    @property
    def final(self) -> tuple[str, ...]:
        """What it said as it ended: its last traceback with those that led to it, else its last lines.

        What a program complained of earlier, and lived with, is not why it ended.
        """
        log = self.log
        start = _last_traceback(log, len(log))
        if start is None:
            return (*log[-LAST_WORDS:], *self.message.splitlines())
        while any(_CHAINED.search(line) for line in log[max(0, start - 3) : start]):
            earlier = _last_traceback(log, start)
            if earlier is None:
                break
            start = earlier
        return (*log[start:], *self.message.splitlines())

    @property
    def blames_peer(self) -> bool:
        """Whether it ended by itself, and its last words say that it was a peer who went."""
        return not _from_outside(self) and any(BLAMES_PEER.search(line) for line in self.final)


def _last_traceback(log: tuple[str, ...], before: int) -> int | None:
    found = (index for index in range(before - 1, -1, -1) if TRACEBACK in log[index])
    return next(found, None)


class Team(msgspec.Struct, frozen=True):
    """Failures that need an explanation, the first one first; and those that are its consequences."""

    ends: tuple[End, ...] = ()
    echoes: tuple[End, ...] = ()


def team(case: Case) -> Team:
    """Sort out the failures of a job. A job that has succeeded has none; one that runs again has none."""
    if case.job.state in ("Succeeded", "Suspended"):
        return Team()
    found = list(_ends(case))
    recorded = _recorded(case)
    if recorded is not None and not any(_same(recorded, end) for end in found):
        found.append(recorded)
    if not found:
        found += _told_of(case)
    if not found:
        return Team()
    first = _first(found, case)
    others = [end for end in found if end is not first]
    echoes = tuple(end for end in others if _echo(end, first, case))
    rest = tuple(end for end in others if end not in echoes)
    return Team((first, *sorted(rest, key=_order)), echoes)


# Which ends count


def _ends(case: Case) -> Iterator[End]:
    forgiven = _made_good(case)
    for replica in case.replicas:
        failed = replica.pod.status.phase == PodPhase.FAILED
        if replica.pod.metadata.deletion_timestamp is not None or (failed and forgiven):
            continue
        ended = [end for status in replica.statuses for end in _of_container(case, replica, status)]
        yield from ended
        if not ended and replica.pod.status.phase == PodPhase.FAILED:
            yield _of_pod(replica)


def _made_good(case: Case) -> bool:
    """Whether others have taken the places of those that failed: a Job of Kubernetes' own keeps both."""
    failed = sum(one.pod.status.phase == PodPhase.FAILED for one in case.replicas)
    up = sum(one.up for one in case.replicas)
    return not case.job.finished and failed < OFTEN and 0 < case.job.asked <= up


def _of_container(case: Case, replica: Replica, status: ContainerStatus) -> Iterator[End]:
    now, before = status.state.terminated, status.last_state.terminated
    looping = status.state.waiting is not None and before is not None
    if now is not None and now.exit_code:
        # A sidecar may end as it likes while its pod goes on.
        if replica.pod.status.phase == PodPhase.FAILED or _trains(case.job, replica, status.name):
            yield _end(replica, status, now, replica.logs.get(status.name, ()))
    elif looping and before is not None and before.exit_code:
        yield _end(replica, status, before, replica.logs.get(status.name, ()), looping=True)
    elif before is not None and before.exit_code and _recurs(case, status, before):
        yield _end(replica, status, before, replica.earlier.get(status.name, ()), looping=True)


def _trains(job: Job, replica: Replica, container: str) -> bool:
    named = [one.name for one in replica.pod.spec.containers]
    inits = [one.name for one in replica.pod.spec.init_containers]
    wanted = job.container if job.container in named else (named[0] if named else container)
    return container == wanted or container in inits


def _recurs(case: Case, status: ContainerStatus, ended: ContainerStateTerminated) -> bool:
    return status.restart_count >= OFTEN and case.since(ended.finished_at) < case.patience.holds


def _end(
    replica: Replica,
    status: ContainerStatus,
    state: ContainerStateTerminated,
    log: tuple[str, ...],
    *,
    looping: bool = False,
) -> End:
    pod = replica.pod
    # What the node says of the pod as a whole goes before what a container ended with because of it.
    overruled = pod.status.phase == PodPhase.FAILED and pod.status.reason
    return End(
        replica=replica.name,
        pod=pod.metadata.name,
        container=status.name,
        code=state.exit_code,
        reason=pod.status.reason if overruled else state.reason,
        message=pod.status.message if overruled else state.message,
        at=state.finished_at,
        started=state.started_at,
        log=log,
        restarts=status.restart_count,
        looping=looping,
        init=any(one.name == status.name for one in pod.status.init_container_statuses),
    )


def _of_pod(replica: Replica) -> End:
    status = replica.pod.status
    changes = [one.last_transition_time for one in status.conditions if one.last_transition_time is not None]
    return End(
        replica=replica.name,
        pod=replica.pod.metadata.name,
        reason=status.reason,
        message=status.message,
        at=max(changes, default=None),
    )


def _recorded(case: Case) -> End | None:
    """What the status remembers of a failure, as long as it matters."""
    job, failure = case.job, case.job.first_failure
    if failure is None or not (job.state == "Failed" or _matters(case, failure)):
        return None
    return End(
        replica=failure.replica,
        pod=failure.pod,
        container=job.container,
        code=failure.exit_code,
        reason=failure.reason,
        message=failure.message,
        at=failure.time,
        log=failure.log,
        restarts=job.restarts,
        looping=job.state != "Failed" and job.streak >= OFTEN,
        recorded=True,
    )


def _matters(case: Case, failure: Failure) -> bool:
    if case.since(case.job.restarted or failure.time) >= case.patience.holds:
        return False
    up = sum(one.up for one in case.replicas)
    return case.job.streak >= OFTEN or up < case.job.asked


def _told_of(case: Case) -> list[End]:
    """What events tell of pods that were replaced: an operator that keeps no record in the status says so much."""
    up = sum(one.up for one in case.replicas)
    if case.job.state != "Failed" and up >= case.job.asked:
        return []
    ends = []
    for event in case.events:
        found = _EXITED.search(event.message) if event.reason == "ExitedWithCode" else None
        if found is None or int(found["code"]) == 0 or case.since(event.at) >= case.patience.holds:
            continue
        name = found["pod"].removeprefix(f"{case.job.namespace}.")
        ends.append(
            End(
                replica=name.removeprefix(f"{case.job.name}-"),
                pod=name,
                container=case.job.container,
                code=int(found["code"]),
                at=event.at,
                restarts=event.count,
                recorded=True,
            )
        )
    return ends


def _same(recorded: End, end: End) -> bool:
    return recorded.pod == end.pod and (recorded.code, recorded.at) == (end.code, end.at)


# Who was first


def _first(ends: Iterable[End], case: Case) -> End:
    """By time; but whoever blames a peer or was sent away was not first if anybody else was there in time."""
    ordered = sorted(ends, key=_order)
    earliest = ordered[0].at
    for end in ordered:
        late = (
            earliest is not None and end.at is not None and end.at - earliest > case.patience.echo
        ) or end.at is None
        if not late and not end.blames_peer and not _sent_away(end):
            return end
    # Nobody is without excuse: the status knows what pods that are gone said.
    return next((end for end in ordered if end.recorded), ordered[0])


def _order(end: End) -> tuple[float, bool, bool, str]:
    at = end.at.timestamp() if end.at is not None else float("inf")
    return at, end.blames_peer, end.code is not None and end.code < 128, end.replica


def _sent_away(end: End) -> bool:
    return end.code == TERMINATED and end.reason in ("", "Error")


def _echo(end: End, first: End, case: Case) -> bool:
    """Whether a failure is the consequence of an earlier one."""
    if end.at is not None and first.at is not None and end.at < first.at - _SOON and not end.blames_peer:
        return False
    if end.replica == first.replica:
        return False
    killed = end.code == KILLED and end.reason in ("", "Error") and case.job.finished
    at_once = _from_outside(first) and not _from_outside(end) and _moments(first, end) <= _MOMENT
    return end.blames_peer or _sent_away(end) or killed or at_once


def _from_outside(end: End) -> bool:
    """Whether it was ended, and did not fail by itself."""
    return end.code is None or end.code in (KILLED, TERMINATED) or end.reason in ("OOMKilled", "Evicted")


def _moments(first: End, end: End) -> timedelta:
    """How long after the first."""
    return end.at - first.at if end.at is not None and first.at is not None else timedelta.max
