"""Decides whether a job succeeds, fails, restarts, is suspended or goes on: one of a few closed cases."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import (
    ALL_REPLICAS,
    SUCCESS_POLICY_ANNOTATION,
    ConditionType,
    Failure,
    RestartLedger,
    RestartPolicy,
    RestartScope,
)
from gangline.api.scheduling import PodGroupState
from gangline.jobs.defaults import is_managed_here
from gangline.jobs.framework import ConditionText, Framework, J, JobOutcome, Verdict
from gangline.jobs.plan.causes import root_cause
from gangline.jobs.plan.conditions import time_left, wait_left
from gangline.jobs.plan.failures.ends import is_conclusive
from gangline.jobs.plan.failures.ranks import replica_ranks
from gangline.jobs.plan.failures.records import (
    FailedPod,
    blames_peer,
    ended_pods,
    failure_record,
    failure_time,
    first_failed,
    has_written_error,
    last_restarted_failure,
    replica_end,
    revised_failure,
)
from gangline.jobs.plan.gang_state import expired_wait, stranded_state
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.recovery.decision import RecoveryStep
from gangline.jobs.plan.recovery.in_place import InPlaceProgress, in_place_progress
from gangline.jobs.plan.recovery.policy import RecoveryAction
from gangline.jobs.plan.recovery.question import (
    NO_RECOVERY,
    answer,
    decisive_failures,
    has_port_clash,
    recovery_question,
    stall_question,
)
from gangline.jobs.plan.restarts import (
    PEER_VERDICT_DELAY,
    VERDICT_DELAY,
    RestartTally,
    any_terminating,
    exceeds_backoff_limit,
    failed_pods,
    is_permanent,
    restart_scope,
)
from gangline.jobs.pods.replicas import Member, is_active

SETTLING_TIME, MAX_SETTLING_TIME = timedelta(seconds=1.5), timedelta(seconds=10)
"""How long replicas that run may take to end after the last end, and after the first one, before there is a verdict."""
BACKOFF_LIMIT_REACHED = "it has reached the specified backoff limit"


class ManagedElsewhere(msgspec.Struct, frozen=True):
    """`managedBy` names another controller."""


class AlreadyFinished(msgspec.Struct, frozen=True):
    """The verdict is in the status."""


class JobSuspended(msgspec.Struct, frozen=True):
    """No pod may run."""


class JobSucceeding(msgspec.Struct, frozen=True):
    """The job has succeeded, and the status does not say so yet."""

    message: str


class JobFailing(msgspec.Struct, frozen=True):
    """The job has failed, and the status does not say so yet."""

    text: ConditionText
    # A limit was reached: every pod is deleted.
    deletes_all_pods: bool = False
    cause: Failure | None = None
    # Replicas failed, by the framework's own rule.
    by_framework: bool = False
    # The step of the recovery policy that ends the job.
    recovery: RecoveryStep | None = None


class JobActive(msgspec.Struct, frozen=True):
    """The job goes on: replicas are created, and restarted where necessary."""

    verdict: Verdict
    # Failed pods to be replaced one by one.
    pods_to_replace: tuple[Pod, ...] = ()
    # All replicas restart; and with new addresses.
    restarts_all: bool = False
    renews_addresses: bool = False
    # No replica failed: there is no room for the missing ones.
    stranded_state: PodGroupState | None = None
    # The replica type that caused the restart, and its failure.
    replica_type: str = ""
    cause: Failure | None = None
    # How long the verdict waits for an earlier failure to be reported.
    verdict_delay: timedelta | None = None
    # The step of the recovery policy that restarts the replicas.
    recovery: RecoveryStep | None = None
    # How far a restart in place is, while one is under way.
    in_place: InPlaceProgress | None = None


Assessment: TypeAlias = ManagedElsewhere | AlreadyFinished | JobSuspended | JobSucceeding | JobFailing | JobActive


def assess(framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally) -> Assessment:
    """Assess an observed job. Success comes before permanent failures, and those before limits.

    The cause of a failure or restart is the failure that it follows from, even if that replica was replaced since.
    """
    assessment = _assess_job(framework, observed, restarts)
    if not isinstance(assessment, JobFailing | JobActive) or assessment.cause is None:
        return assessment
    if isinstance(assessment, JobFailing) and (delay := _settling_time(framework, observed)) > timedelta():
        return JobActive(_judge(framework, observed), verdict_delay=delay)
    status, container, ranks = observed.job.status, framework.facts.container, replica_ranks(framework, observed)
    logs, cause = observed.children.log_tails, assessment.cause
    if assessment.recovery is None:
        cause = revised_failure(cause, ended_pods(observed.gang), container, logs, ranks)
    root = root_cause(cause, status, observed.gang, container, logs, ranks)
    return msgspec.structs.replace(assessment, cause=root)


def _settling_time(framework: Framework[J], observed: ObservedJob[J]) -> timedelta:
    """How long a verdict waits for replicas that run: one of them may have failed before, and take a moment to end.

    On one machine only, where ends are reported at once. In a cluster a verdict comes when it comes in v1.
    """
    failures, container = failed_pods(observed.gang), framework.facts.container
    first = _first_of(framework, observed, failures) if observed.site.shared_host else None
    if first is None or not any(is_active(pod) for pod in observed.gang.pods.values()):
        return timedelta()
    if is_past_deadline(framework, observed) or expired_wait(observed) is not None:
        # No time is left.
        return timedelta()
    logs, ranks = observed.children.log_tails, replica_ranks(framework, observed)
    if is_conclusive(replica_end(first.member, first.pod, container, logs, ranks)):
        return timedelta()
    times = [replica_end(member, pod, container, logs).ended_at for member, pod in failures.items()]
    ended = [time for time in times if time is not None]
    if not ended:
        return timedelta()
    # On a busy machine ends come one after the other, and who has written its error may take a while to end.
    until = min(ended) + MAX_SETTLING_TIME
    active = [(member, pod) for member, pod in observed.gang.pods.items() if is_active(pod)]
    if not any(has_written_error(member, pod, logs, ranks) for member, pod in active):
        until = min(until, max(ended) + SETTLING_TIME)
    return until - observed.now


def _assess_job(framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally) -> Assessment:
    job = observed.job
    policy = framework.run_policy(job)
    if not is_managed_here(policy):
        return ManagedElsewhere()
    if job.status.finished:
        return AlreadyFinished()
    if observed.problems:
        problems = "; ".join(map(str, observed.problems))
        message = f"{job.KIND} {job.metadata.name} cannot run: {problems}"
        return JobFailing(ConditionText(f"{job.KIND}FailedValidation", message))
    if policy.suspend:
        return JobSuspended()
    verdict = _judge(framework, observed)
    if verdict.outcome is JobOutcome.SUCCEEDED:
        return JobSucceeding(verdict.message)
    progress = in_place_progress(framework, observed, restarts.ledger)
    if progress is not None:
        # Until it has succeeded or failed, nothing is decided about its replicas.
        return _with_limits(framework, observed, restarts, JobActive(verdict, in_place=progress))
    decided = _assess_recovery(framework, observed, verdict)
    if isinstance(decided, JobFailing):
        return decided
    if decided is not None:
        return _with_limits(framework, observed, restarts, decided)
    if policy.backoff_limit == 0 and (failures := failed_pods(observed.gang)):
        # As in v1: if no restart is allowed, any failure ends the job, whatever the restart policy.
        return _limit_failure(job, BACKOFF_LIMIT_REACHED, _first_failure(framework, observed, failures))
    assessment = _assess_replicas(framework, observed, restarts, verdict)
    if not isinstance(assessment, JobActive):
        return assessment
    if not assessment.restarts_all and not assessment.pods_to_replace:
        state = stranded_state(framework, observed, restarts.ledger)
        assessment = JobActive(verdict, restarts_all=True, stranded_state=state) if state is not None else assessment
    return _with_limits(framework, observed, restarts, assessment)


def _judge(framework: Framework[J], observed: ObservedJob[J]) -> Verdict:
    """The framework's verdict; a success waits for the other replicas if the job asks for that."""
    job, gang = observed.job, observed.gang
    verdict = framework.verdict(job, gang)
    if (
        verdict.outcome is not JobOutcome.SUCCEEDED
        or job.metadata.annotations.get(SUCCESS_POLICY_ANNOTATION) != ALL_REPLICAS
        or sum(counts.succeeded for counts in gang.counts.values()) >= len(gang.seats)
    ):
        return verdict
    return Verdict(JobOutcome.PENDING)


def _assess_recovery(
    framework: Framework[J], observed: ObservedJob[J], verdict: Verdict
) -> JobActive | JobFailing | None:
    """What the recovery policy of the job says about its failures; None: it says nothing, and restartPolicy decides."""
    if observed.recovery is None:
        return None
    failures = decisive_failures(framework, observed)
    question = recovery_question(framework, observed) if failures else stall_question(observed)
    if question is None:
        if not failures or any(has_port_clash(pod, framework.facts.container) for pod in failures.values()):
            return None
        # Failures that were decided about: their pods are still being deleted.
        return JobActive(verdict, pods_to_replace=tuple(failures.values()), replica_type=next(iter(failures)).type)
    if question.remaining > timedelta():
        return JobActive(verdict, verdict_delay=question.remaining)
    step = answer(framework, observed, question)
    if step is None:
        return None
    cause = question.failure
    if step.is_final:
        text = ConditionText(
            f"{observed.job.KIND}Failed", f"{observed.job.KIND} {observed.job.metadata.name} {step.message}"
        )
        return JobFailing(text, deletes_all_pods=step.action is RecoveryAction.STOP, cause=cause, recovery=step)
    if step.scope is RestartScope.JOB:
        return JobActive(verdict, restarts_all=True, replica_type=question.member.type, cause=cause, recovery=step)
    pods = tuple(question.failures.values())
    return JobActive(verdict, pods_to_replace=pods, replica_type=question.member.type, cause=cause, recovery=step)


def _assess_replicas(
    framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally, verdict: Verdict
) -> JobActive | JobFailing:
    container = framework.facts.container
    failures = decisive_failures(framework, observed)
    clashed = {member: pod for member, pod in failures.items() if has_port_clash(pod, container)}
    if clashed:
        member, pod = next(iter(clashed.items()))
        cause = _failure_of(framework, observed, FailedPod(member, pod))
        return JobActive(verdict, restarts_all=True, renews_addresses=True, replica_type=member.type, cause=cause)
    if restart_scope(observed.job, framework.run_policy(observed.job)) is RestartScope.JOB:
        return _assess_whole_job(framework, observed, restarts.ledger, failures, verdict)
    return _assess_one_by_one(framework, observed, failures, verdict)


def _assess_one_by_one(
    framework: Framework[J], observed: ObservedJob[J], failures: Mapping[Member, Pod], verdict: Verdict
) -> JobActive | JobFailing:
    """As in v1, each replica restarts by itself."""
    if not failures:
        return JobActive(verdict)
    container, replicas = framework.facts.container, framework.replicas(observed.job)
    permanent = {
        member: pod
        for member, pod in failures.items()
        if is_permanent(pod, replicas[member.type].restart_policy, container)
    }
    if permanent:
        return _replica_failure(framework, observed, next(iter(permanent)), failures)
    first = _first_of(framework, observed, failures)
    assert first is not None
    return JobActive(
        verdict,
        pods_to_replace=tuple(failures.values()),
        replica_type=first.member.type,
        cause=_failure_of(framework, observed, first),
    )


def _assess_whole_job(
    framework: Framework[J],
    observed: ObservedJob[J],
    ledger: RestartLedger,
    failures: Mapping[Member, Pod],
    verdict: Verdict,
) -> JobActive | JobFailing:
    """All replicas restart together: the first failure decides, and the others are its consequences."""
    gang, container = observed.gang, framework.facts.container
    settled = ledger.complete and observed.job.metadata.generation == observed.job.status.observed_generation
    missing = [member for member in gang.seats if member not in gang.pods] if settled else []
    terminating = [member for member, pod in gang.pods.items() if any_terminating((pod,))] if settled else []
    if missing or terminating:
        member = (missing or terminating)[0]
        return JobActive(
            verdict, restarts_all=True, replica_type=member.type, cause=Failure(replica=str(member), reason="Lost")
        )
    first = _first_of(framework, observed, failures)
    if first is None:
        return JobActive(verdict)
    member, pod, _ = first
    policy = framework.replicas(observed.job)[member.type].restart_policy
    restart = JobActive(
        verdict,
        restarts_all=True,
        replica_type=member.type,
        cause=_failure_of(framework, observed, first),
    )
    if not is_permanent(pod, policy, container):
        return restart
    if policy == RestartPolicy.EXIT_CODE:
        # The exit code may be the consequence of a failure that is not reported yet, such as that of a lost node.
        by_peer = blames_peer(pod, container, observed.children.log_tails)
        delay = PEER_VERDICT_DELAY if by_peer else VERDICT_DELAY
        remaining = wait_left(failure_time(pod, container), delay, observed.now)
        if remaining > timedelta():
            return JobActive(verdict, verdict_delay=remaining)
        if by_peer:
            return restart
    return _replica_failure(framework, observed, member, failures)


def _first_failure(framework: Framework[J], observed: ObservedJob[J], failures: Mapping[Member, Pod]) -> Failure | None:
    """The record of the first of these failures."""
    first = _first_of(framework, observed, failures)
    return _failure_of(framework, observed, first) if first is not None else None


def _first_of(framework: Framework[J], observed: ObservedJob[J], failures: Mapping[Member, Pod]) -> FailedPod | None:
    ranks = replica_ranks(framework, observed)
    return first_failed(failures, framework.facts.container, observed.children.log_tails, ranks)


def _failure_of(framework: Framework[J], observed: ObservedJob[J], failed: FailedPod) -> Failure:
    container, logs, ranks = framework.facts.container, observed.children.log_tails, replica_ranks(framework, observed)
    return failure_record(failed.member, failed.pod, container, logs, ranks=ranks, order_known=failed.order_known)


def _replica_failure(
    framework: Framework[J], observed: ObservedJob[J], member: Member, failures: Mapping[Member, Pod]
) -> JobFailing:
    job, cause = observed.job, _first_failure(framework, observed, failures)
    if framework.replicas(job)[member.type].restart_policy == RestartPolicy.EXIT_CODE:
        message = f'job "{job.metadata.name}" is failing because "{member.type}" replica(s) failed.'
        return JobFailing(ConditionText(f"{job.KIND}Failed", message), cause=cause)
    text = framework.failure(job, member.type, observed.gang.counts[member.type].failed)
    return JobFailing(text, cause=cause, by_framework=True)


def _with_limits(
    framework: Framework[J], observed: ObservedJob[J], restarts: RestartTally, assessment: JobActive
) -> JobActive | JobFailing:
    """The assessment, or the failure of a job that exceeds its backoff limit, its deadline or its gang timeout."""
    job, policy = observed.job, framework.run_policy(observed.job)
    replaced = restarts.ledger.replaced
    # Neither a port taken by another process nor a lack of room is charged to the job.
    charged = assessment.restarts_all and not assessment.renews_addresses and assessment.stranded_state is None
    requested = int(charged) or sum(pod.metadata.uid not in replaced for pod in assessment.pods_to_replace)
    if assessment.recovery is not None and assessment.recovery.uncounted:
        requested = 0
    total = restarts.total - (job.status.recovery or NO_RECOVERY).uncounted
    expired = expired_wait(observed)
    if exceeds_backoff_limit(policy.backoff_limit, total, restarts.ledger, requested):
        reason = BACKOFF_LIMIT_REACHED
    elif is_past_deadline(framework, observed):
        reason = "it was active longer than specified deadline"
    elif expired is not None:
        reason = expired.timeout_message
    else:
        return assessment
    logs, ranks = observed.children.log_tails, replica_ranks(framework, observed)
    cause = assessment.cause or last_restarted_failure(observed.gang, framework.facts.container, logs, ranks)
    return _limit_failure(job, reason, cause)


def is_past_deadline(framework: Framework[J], observed: ObservedJob[J]) -> bool:
    """Whether a job was active longer than its runPolicy allows."""
    status, deadline = observed.job.status, framework.run_policy(observed.job).active_deadline_seconds
    started = None if status.holds(ConditionType.SUSPENDED) else status.start_time
    return started is not None and deadline is not None and time_left(started, deadline, observed.now) <= timedelta()


def _limit_failure(job: J, reason: str, cause: Failure | None) -> JobFailing:
    text = ConditionText(f"{job.KIND}Failed", f"Job {job.metadata.name} has failed because {reason}")
    return JobFailing(text, deletes_all_pods=True, cause=cause)
