"""Where a job stands: one of a few closed cases."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import (
    Failure,
    JobStatus,
    ReplicaSpec,
    RestartLedger,
    RestartPolicy,
    RestartScope,
)
from gangline.api.scheduling import PodGroupState
from gangline.jobs.defaults import is_managed_here
from gangline.jobs.framework import ConditionText, Framework, J, JobOutcome, Verdict
from gangline.jobs.plan.gang_state import expired_wait, stranded_state
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import (
    PEER_VERDICT_DELAY,
    PORT_CLASH,
    VERDICT_DELAY,
    any_terminating,
    blames_peer,
    exceeds_backoff_limit,
    failed_pods,
    failure_record,
    failure_time,
    first_failed,
    is_permanent,
    most_restarted_failure,
    restart_scope,
    with_kubelet_restarts,
)
from gangline.jobs.pods.replicas import Member, terminated_state

BACKOFF_LIMIT_REACHED = "it has reached the specified backoff limit"


class ManagedElsewhere(msgspec.Struct, frozen=True):
    """Somebody else's to run."""


class AlreadyFinished(msgspec.Struct, frozen=True):
    """The verdict is written down."""


class JobSuspended(msgspec.Struct, frozen=True):
    """Nothing may run."""


class JobSucceeding(msgspec.Struct, frozen=True):
    message: str


class JobFailing(msgspec.Struct, frozen=True):
    text: ConditionText
    # A limit was reached: every pod goes.
    deletes_all_pods: bool = False
    cause: Failure | None = None
    # Replicas failed, by the framework's own rule.
    by_framework: bool = False


class JobActive(msgspec.Struct, frozen=True):
    """To be kept going."""

    verdict: Verdict
    # Failed pods to be replaced one by one.
    pods_to_replace: tuple[Pod, ...] = ()
    # The whole team is to be started anew; and with new addresses.
    restarts_all: bool = False
    renews_addresses: bool = False
    # Nobody failed: there is no room for all who are missing.
    stranded_state: PodGroupState | None = None
    # The replica type to blame for it, and what happened.
    replica_type: str = ""
    cause: Failure | None = None
    # A verdict waits so long for an earlier failure to be told.
    verdict_delay: timedelta | None = None


Assessment: TypeAlias = ManagedElsewhere | AlreadyFinished | JobSuspended | JobSucceeding | JobFailing | JobActive


class RestartTally(msgspec.Struct, frozen=True):
    """The restarts so far, and the ledger they are in: with what kubelets did meanwhile."""

    restarts: int
    ledger: RestartLedger


def restart_tally(status: JobStatus, seen: ObservedJob[J], replicas: Mapping[str, ReplicaSpec]) -> RestartTally:
    # We write down which generation we saw, and v1 does not.
    taken_over = status.start_time is not None and not status.observed_generation
    ledger = with_kubelet_restarts(status.ledger, seen.gang, replicas, taken_over=taken_over)
    return RestartTally(status.restarts + ledger.in_place - status.ledger.in_place, ledger)


def assess(framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally) -> Assessment:
    """Judge what is seen. Success comes first, then failures for good, then limits."""
    job = seen.job
    policy = framework.run_policy(job)
    if not is_managed_here(policy):
        return ManagedElsewhere()
    if job.status.finished:
        return AlreadyFinished()
    if seen.problems:
        told = "; ".join(map(str, seen.problems))
        return JobFailing(
            ConditionText(f"{job.KIND}FailedValidation", f"{job.KIND} {job.metadata.name} cannot run: {told}")
        )
    if policy.suspend:
        return JobSuspended()
    verdict = framework.verdict(job, seen.gang)
    if verdict.outcome is JobOutcome.SUCCEEDED:
        return JobSucceeding(verdict.message)
    if policy.backoff_limit == 0 and failed_pods(seen.gang):
        # As in v1: with no restart allowed, any failure is one too many, whatever the restart policy.
        found = first_failed(failed_pods(seen.gang), framework.facts.container, seen.children.log_tails)
        assert found is not None
        cause = failure_record(*found, framework.facts.container, seen.children.log_tails)
        return _limit_failure(job, BACKOFF_LIMIT_REACHED, cause)
    standing = _assess_replicas(framework, seen, so_far, verdict)
    if not isinstance(standing, JobActive):
        return standing
    if not standing.restarts_all and not standing.pods_to_replace:
        state = stranded_state(framework, seen, so_far.ledger)
        standing = JobActive(verdict, restarts_all=True, stranded_state=state) if state is not None else standing
    return _with_limits(framework, seen, so_far, standing)


def _assess_replicas(
    framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally, verdict: Verdict
) -> JobActive | JobFailing:
    container = framework.facts.container
    failures = {
        seat: pod for seat, pod in failed_pods(seen.gang).items() if not _is_tolerated(framework, seen.job, seat, pod)
    }
    clashed = {seat: pod for seat, pod in failures.items() if _has_port_clash(pod, container)}
    if clashed:
        seat, pod = next(iter(clashed.items()))
        cause = failure_record(seat, pod, container, seen.children.log_tails)
        return JobActive(verdict, restarts_all=True, renews_addresses=True, replica_type=seat.type, cause=cause)
    if restart_scope(seen.job, framework.run_policy(seen.job)) is RestartScope.JOB:
        return _assess_whole_job(framework, seen, so_far.ledger, failures, verdict)
    return _assess_one_by_one(framework, seen, failures, verdict)


def _is_tolerated(framework: Framework[J], job: J, seat: Member, pod: Pod) -> bool:
    policy = framework.replicas(job)[seat.type].restart_policy
    return policy == RestartPolicy.NEVER and framework.tolerates(job, seat.type)


def _has_port_clash(pod: Pod, container: str) -> bool:
    state = terminated_state(pod, container)
    return pod.status.reason == PORT_CLASH or (state is not None and state.reason == PORT_CLASH)


def _assess_one_by_one(
    framework: Framework[J], seen: ObservedJob[J], failures: Mapping[Member, Pod], verdict: Verdict
) -> JobActive | JobFailing:
    """As v1: every replica by itself."""
    if not failures:
        return JobActive(verdict)
    container, replicas = framework.facts.container, framework.replicas(seen.job)
    for_good = {
        seat: pod for seat, pod in failures.items() if is_permanent(pod, replicas[seat.type].restart_policy, container)
    }
    if for_good:
        return _replica_failure(framework, seen, next(iter(for_good)), for_good)
    found = first_failed(failures, container, seen.children.log_tails)
    assert found is not None
    return JobActive(
        verdict,
        pods_to_replace=tuple(failures.values()),
        replica_type=found[0].type,
        cause=failure_record(*found, container, seen.children.log_tails),
    )


def _assess_whole_job(
    framework: Framework[J],
    seen: ObservedJob[J],
    ledger: RestartLedger,
    failures: Mapping[Member, Pod],
    verdict: Verdict,
) -> JobActive | JobFailing:
    """All for one: whoever failed first decides, and the others' failures are its consequences."""
    gang, container = seen.gang, framework.facts.container
    settled = ledger.complete and seen.job.metadata.generation == seen.job.status.observed_generation
    gone = [seat for seat in gang.seats if seat not in gang.pods] if settled else []
    leaving = [seat for seat, pod in gang.pods.items() if any_terminating((pod,))] if settled else []
    if gone or leaving:
        seat = (gone or leaving)[0]
        return JobActive(
            verdict,
            restarts_all=True,
            replica_type=seat.type,
            cause=Failure(replica=str(seat), reason="Lost"),
        )
    found = first_failed(failures, container, seen.children.log_tails)
    if found is None:
        return JobActive(verdict)
    seat, pod = found
    policy = framework.replicas(seen.job)[seat.type].restart_policy
    again = JobActive(
        verdict,
        restarts_all=True,
        replica_type=seat.type,
        cause=failure_record(seat, pod, container, seen.children.log_tails),
    )
    if not is_permanent(pod, policy, container):
        return again
    if policy == RestartPolicy.EXIT_CODE:
        # Its exit code may be the echo of a failure that is not told yet, such as that of a lost node.
        echo = blames_peer(pod, container, seen.children.log_tails)
        left = _remaining(failure_time(pod, container), PEER_VERDICT_DELAY if echo else VERDICT_DELAY, seen.now)
        if left > timedelta():
            return JobActive(verdict, verdict_delay=left)
        if echo:
            return again
    return _replica_failure(framework, seen, seat, failures)


def _remaining(since: datetime | None, wait: timedelta, now: datetime) -> timedelta:
    return wait - (now - since) if since is not None else timedelta()


def _replica_failure(
    framework: Framework[J], seen: ObservedJob[J], seat: Member, failures: Mapping[Member, Pod]
) -> JobFailing:
    job, container = seen.job, framework.facts.container
    found = first_failed(failures, container, seen.children.log_tails)
    cause = failure_record(*found, container, seen.children.log_tails) if found is not None else None
    if framework.replicas(job)[seat.type].restart_policy == RestartPolicy.EXIT_CODE:
        told = ConditionText(
            f"{job.KIND}Failed",
            f'job "{job.metadata.name}" is failing because "{seat.type}" replica(s) failed.',
        )
        return JobFailing(told, cause=cause)
    told = framework.failure(job, seat.type, seen.gang.counts[seat.type].failed)
    return JobFailing(told, cause=cause, by_framework=True)


def _with_limits(
    framework: Framework[J], seen: ObservedJob[J], so_far: RestartTally, standing: JobActive
) -> JobActive | JobFailing:
    job, policy = seen.job, framework.run_policy(seen.job)
    known = so_far.ledger.replaced
    # A port that somebody else took is no fault of the job's, nor is a lack of room.
    own = standing.restarts_all and not standing.renews_addresses and standing.stranded_state is None
    wanted = int(own) or sum(pod.metadata.uid not in known for pod in standing.pods_to_replace)
    if exceeds_backoff_limit(policy.backoff_limit, so_far.restarts, so_far.ledger, wanted):
        cause = standing.cause or most_restarted_failure(seen.gang, framework.facts.container, seen.children.log_tails)
        return _limit_failure(job, BACKOFF_LIMIT_REACHED, cause)
    started = None if is_marked_suspended(job.status) else job.status.start_time
    deadline = policy.active_deadline_seconds
    if started is not None and deadline is not None and seen.now - started >= timedelta(seconds=deadline):
        return _limit_failure(job, "it was active longer than specified deadline", standing.cause)
    late = expired_wait(seen)
    if late is not None:
        return _limit_failure(job, late.timeout_message, standing.cause)
    return standing


def _limit_failure(job: J, why: str, cause: Failure | None) -> JobFailing:
    told = ConditionText(f"{job.KIND}Failed", f"Job {job.metadata.name} has failed because {why}")
    return JobFailing(told, deletes_all_pods=True, cause=cause)


def is_marked_suspended(status: JobStatus) -> bool:
    """Whether the status still says suspended."""
    return any(found.type == "Suspended" and found.status == "True" for found in status.conditions)
