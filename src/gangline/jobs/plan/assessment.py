"""Where a job stands: one of a few closed cases."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import (
    Failure,
    JobStatus,
    Ledger,
    ReplicaSpec,
    RestartPolicy,
    RestartScope,
)
from gangline.api.scheduling import PodGroupState
from gangline.jobs.defaults import ours
from gangline.jobs.framework import Framework, J, Outcome, Told, Verdict
from gangline.jobs.plan.gang_state import gives_up, stranded
from gangline.jobs.plan.observed import Observed
from gangline.jobs.plan.restarts import (
    PORT_CLASH,
    SETTLES,
    SETTLES_LATE,
    blames_peer,
    counted,
    exhausted,
    failed,
    failed_at,
    failure,
    first,
    lost,
    permanent,
    scope,
    worn_out,
)
from gangline.jobs.pods.replicas import Member, terminated

BUDGET_SPENT = "it has reached the specified backoff limit"


class Foreign(msgspec.Struct, frozen=True):
    """Somebody else's to run."""


class Over(msgspec.Struct, frozen=True):
    """The verdict is written down."""


class Suspended(msgspec.Struct, frozen=True):
    """Nothing may run."""


class Succeeding(msgspec.Struct, frozen=True):
    message: str


class Failing(msgspec.Struct, frozen=True):
    told: Told
    # A limit was reached: every pod goes.
    clear: bool = False
    cause: Failure | None = None
    # Replicas failed, by the framework's own rule.
    judged: bool = False


class Active(msgspec.Struct, frozen=True):
    """To be kept going."""

    verdict: Verdict
    # Failed pods to be replaced one by one.
    replace: tuple[Pod, ...] = ()
    # The whole team is to be started anew; and with new addresses.
    team: bool = False
    renew: bool = False
    # Nobody failed: there is no room for all who are missing.
    stranded: PodGroupState | None = None
    # The replica type to blame for it, and what happened.
    kind: str = ""
    cause: Failure | None = None
    # A verdict waits so long for an earlier failure to be told.
    settles: timedelta | None = None


Standing: TypeAlias = Foreign | Over | Suspended | Succeeding | Failing | Active


class Tally(msgspec.Struct, frozen=True):
    """The restarts so far, and the ledger they are in: with what kubelets did meanwhile."""

    restarts: int
    ledger: Ledger


def tally(status: JobStatus, seen: Observed[J], replicas: Mapping[str, ReplicaSpec]) -> Tally:
    # We write down which generation we saw, and v1 does not.
    taken_over = status.start_time is not None and not status.observed_generation
    ledger = counted(status.ledger, seen.gang, replicas, taken_over=taken_over)
    return Tally(status.restarts + ledger.in_place - status.ledger.in_place, ledger)


def assess(framework: Framework[J], seen: Observed[J], so_far: Tally) -> Standing:
    """Judge what is seen. Success comes first, then failures for good, then limits."""
    job = seen.job
    policy = framework.run_policy(job)
    if not ours(policy):
        return Foreign()
    if job.status.finished:
        return Over()
    if seen.problems:
        told = "; ".join(map(str, seen.problems))
        return Failing(
            Told(f"{job.KIND}FailedValidation", f"{job.KIND} {job.metadata.name} cannot run: {told}")
        )
    if policy.suspend:
        return Suspended()
    verdict = framework.verdict(job, seen.gang)
    if verdict.outcome is Outcome.SUCCEEDED:
        return Succeeding(verdict.message)
    if policy.backoff_limit == 0 and failed(seen.gang):
        # As in v1: with no restart allowed, any failure is one too many, whatever the restart policy.
        found = first(failed(seen.gang), framework.facts.container, seen.children.logs)
        assert found is not None
        cause = failure(*found, framework.facts.container, seen.children.logs)
        return _limit(job, BUDGET_SPENT, cause)
    standing = _unfinished(framework, seen, so_far, verdict)
    if not isinstance(standing, Active):
        return standing
    if not standing.team and not standing.replace:
        state = stranded(framework, seen, so_far.ledger)
        standing = Active(verdict, team=True, stranded=state) if state is not None else standing
    return _limited(framework, seen, so_far, standing)


def _unfinished(
    framework: Framework[J], seen: Observed[J], so_far: Tally, verdict: Verdict
) -> Active | Failing:
    container = framework.facts.container
    failures = {
        seat: pod for seat, pod in failed(seen.gang).items() if not _tolerated(framework, seen.job, seat, pod)
    }
    clashed = {seat: pod for seat, pod in failures.items() if _clashed(pod, container)}
    if clashed:
        seat, pod = next(iter(clashed.items()))
        cause = failure(seat, pod, container, seen.children.logs)
        return Active(verdict, team=True, renew=True, kind=seat.type, cause=cause)
    if scope(seen.job, framework.run_policy(seen.job)) is RestartScope.JOB:
        return _team(framework, seen, so_far.ledger, failures, verdict)
    return _each(framework, seen, failures, verdict)


def _tolerated(framework: Framework[J], job: J, seat: Member, pod: Pod) -> bool:
    policy = framework.replicas(job)[seat.type].restart_policy
    return policy == RestartPolicy.NEVER and framework.tolerates(job, seat.type)


def _clashed(pod: Pod, container: str) -> bool:
    state = terminated(pod, container)
    return pod.status.reason == PORT_CLASH or (state is not None and state.reason == PORT_CLASH)


def _each(
    framework: Framework[J], seen: Observed[J], failures: Mapping[Member, Pod], verdict: Verdict
) -> Active | Failing:
    """As v1: every replica by itself."""
    if not failures:
        return Active(verdict)
    container, replicas = framework.facts.container, framework.replicas(seen.job)
    for_good = {
        seat: pod
        for seat, pod in failures.items()
        if permanent(pod, replicas[seat.type].restart_policy, container)
    }
    if for_good:
        return _failing(framework, seen, next(iter(for_good)), for_good)
    found = first(failures, container, seen.children.logs)
    assert found is not None
    return Active(
        verdict,
        replace=tuple(failures.values()),
        kind=found[0].type,
        cause=failure(*found, container, seen.children.logs),
    )


def _team(
    framework: Framework[J],
    seen: Observed[J],
    ledger: Ledger,
    failures: Mapping[Member, Pod],
    verdict: Verdict,
) -> Active | Failing:
    """All for one: whoever failed first decides, and the others' failures are its consequences."""
    gang, container = seen.gang, framework.facts.container
    settled = ledger.complete and seen.job.metadata.generation == seen.job.status.observed_generation
    gone = [seat for seat in gang.seats if seat not in gang.pods] if settled else []
    leaving = [seat for seat, pod in gang.pods.items() if lost((pod,))] if settled else []
    if gone or leaving:
        seat = (gone or leaving)[0]
        return Active(verdict, team=True, kind=seat.type, cause=Failure(replica=str(seat), reason="Lost"))
    found = first(failures, container, seen.children.logs)
    if found is None:
        return Active(verdict)
    seat, pod = found
    policy = framework.replicas(seen.job)[seat.type].restart_policy
    again = Active(
        verdict, team=True, kind=seat.type, cause=failure(seat, pod, container, seen.children.logs)
    )
    if not permanent(pod, policy, container):
        return again
    if policy == RestartPolicy.EXIT_CODE:
        # Its exit code may be the echo of a failure that is not told yet, such as that of a lost node.
        echo = blames_peer(pod, container, seen.children.logs)
        left = _left(failed_at(pod, container), SETTLES_LATE if echo else SETTLES, seen.now)
        if left > timedelta():
            return Active(verdict, settles=left)
        if echo:
            return again
    return _failing(framework, seen, seat, failures)


def _left(since: datetime | None, wait: timedelta, now: datetime) -> timedelta:
    return wait - (now - since) if since is not None else timedelta()


def _failing(
    framework: Framework[J], seen: Observed[J], seat: Member, failures: Mapping[Member, Pod]
) -> Failing:
    job, container = seen.job, framework.facts.container
    found = first(failures, container, seen.children.logs)
    cause = failure(*found, container, seen.children.logs) if found is not None else None
    if framework.replicas(job)[seat.type].restart_policy == RestartPolicy.EXIT_CODE:
        told = Told(
            f"{job.KIND}Failed",
            f'job "{job.metadata.name}" is failing because "{seat.type}" replica(s) failed.',
        )
        return Failing(told, cause=cause)
    told = framework.failure(job, seat.type, seen.gang.counts[seat.type].failed)
    return Failing(told, cause=cause, judged=True)


def _limited(framework: Framework[J], seen: Observed[J], so_far: Tally, standing: Active) -> Active | Failing:
    job, policy = seen.job, framework.run_policy(seen.job)
    known = so_far.ledger.replaced
    # A port that somebody else took is no fault of the job's, nor is a lack of room.
    own = standing.team and not standing.renew and standing.stranded is None
    wanted = int(own) or sum(pod.metadata.uid not in known for pod in standing.replace)
    if exhausted(policy.backoff_limit, so_far.restarts, so_far.ledger, wanted):
        cause = standing.cause or worn_out(seen.gang, framework.facts.container, seen.children.logs)
        return _limit(job, BUDGET_SPENT, cause)
    started = None if resuming(job.status) else job.status.start_time
    deadline = policy.active_deadline_seconds
    if started is not None and deadline is not None and seen.now - started >= timedelta(seconds=deadline):
        return _limit(job, "it was active longer than specified deadline", standing.cause)
    late = gives_up(seen)
    if late is not None:
        return _limit(job, late.told, standing.cause)
    return standing


def _limit(job: J, why: str, cause: Failure | None) -> Failing:
    told = Told(f"{job.KIND}Failed", f"Job {job.metadata.name} has failed because {why}")
    return Failing(told, clear=True, cause=cause)


def resuming(status: JobStatus) -> bool:
    """Whether the status still says suspended."""
    return any(found.type == "Suspended" and found.status == "True" for found in status.conditions)
