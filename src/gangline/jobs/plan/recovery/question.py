"""The question that a failure puts to a recovery policy: which failure, where, and whether it is time to answer."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import ConditionType, Failure, RecoveryStatus, RestartPolicy, RestartScope
from gangline.api.quantity import Quantity, QuantityError
from gangline.jobs.defaults import is_managed_here
from gangline.jobs.framework import Collective, Elastic, Framework, J, JobOutcome
from gangline.jobs.plan.causes import root_cause
from gangline.jobs.plan.conditions import wait_left
from gangline.jobs.plan.failures.ranks import replica_ranks
from gangline.jobs.plan.failures.records import (
    MAX_MESSAGE_LENGTH,
    blames_peer,
    failure_record,
    failure_time,
    first_failed,
)
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.recovery.classes import STALLED
from gangline.jobs.plan.recovery.decision import FailureCause, FailureFacts, RecoveryStep, recovery_step
from gangline.jobs.plan.recovery.in_place import in_place_obstacle, in_place_progress
from gangline.jobs.plan.render import training_container
from gangline.jobs.plan.restarts import PEER_VERDICT_DELAY, PORT_CLASH, VERDICT_DELAY, failed_pods, requested_scope
from gangline.jobs.pods.replicas import Member, is_active, terminated_state

NO_RECOVERY = RecoveryStatus()
STALL_REASON = "Stalled"
"""Reason of the recorded failure of a job that hangs."""


class RecoveryQuestion(msgspec.Struct, frozen=True):
    """A failure that is not counted yet, and how long to wait for an earlier one to be reported."""

    failure: Failure
    member: Member
    # All failed pods by replica; of a job that hangs, those that hold the others up.
    failures: Mapping[Member, Pod]
    remaining: timedelta
    # The cause, where it needs no diagnosis; and whether the node of the replica may have to do with it.
    cause: FailureCause | None = None
    at_node: bool = True


def recovery_question(framework: Framework[J], observed: ObservedJob[J]) -> RecoveryQuestion | None:
    """The question; None if the job has no policy, or no failure that the policy should decide about."""
    if observed.recovery is None:
        return None
    container, log_tails = framework.facts.container, observed.children.log_tails
    failures = decisive_failures(framework, observed)
    if any(has_port_clash(pod, container) for pod in failures.values()):
        # Another process has the port: the engine gives the replicas new ones, whatever the policy.
        return None
    replaced = observed.job.status.ledger.replaced
    fresh = {member: pod for member, pod in failures.items() if pod.metadata.uid not in replaced}
    ranks = replica_ranks(framework, observed)
    first = first_failed(fresh, container, log_tails, ranks)
    if first is None:
        return None
    member, pod, order_known = first
    record = failure_record(member, pod, container, log_tails, ranks=ranks, order_known=order_known)
    failure = root_cause(record, observed.job.status, observed.gang, container, log_tails, ranks) or record
    by_name = {str(seat): seat for seat in observed.gang.seats}
    by_peer = failure == record and blames_peer(pod, container, log_tails)
    delay = PEER_VERDICT_DELAY if by_peer else VERDICT_DELAY
    remaining = wait_left(failure_time(pod, container), delay, observed.now)
    return RecoveryQuestion(failure, by_name.get(failure.replica, member), failures, remaining)


def stall_question(observed: ObservedJob[J]) -> RecoveryQuestion | None:
    """The question of a job that hangs; None if it does not, or if what hung was replaced since."""
    stall, gang, record = observed.stall, observed.gang, observed.job.status.recovery or NO_RECOVERY
    if observed.recovery is None or stall is None or not observed.job.status.holds(ConditionType.RUNNING):
        return None
    running = [pod for pod in gang.pods.values() if is_active(pod)]
    ended = sum(pod.status.phase == PodPhase.SUCCEEDED for pod in gang.pods.values())
    created = [pod.metadata.creation_timestamp for pod in running]
    if len(running) + ended < len(gang.seats) or any(time is None or time > stall.since for time in created):
        return None
    if record.time is not None and stall.since <= record.time:
        return None
    stalled = {seat: gang.pods[seat] for seat in gang.seats if str(seat) in stall.replicas}
    member = next(iter(stalled or gang.pods))
    failure = Failure(
        replica=str(member),
        pod=gang.names[member],
        reason=STALL_REASON,
        message=stall.message[:MAX_MESSAGE_LENGTH],
        time=stall.since.replace(microsecond=0),
    )
    cause = FailureCause(STALLED, f"it hangs: {stall.message}")
    return RecoveryQuestion(failure, member, stalled or gang.pods, timedelta(), cause, at_node=len(stalled) == 1)


def needs_cause(framework: Framework[J], observed: ObservedJob[J]) -> bool:
    """Whether the plan for a job depends on the cause of a failure, which takes requests to find."""
    status = observed.job.status
    if observed.recovery is None or observed.problems or status.finished:
        return False
    progress = in_place_progress(framework, observed, status.ledger)
    if progress is not None and not progress.done:
        return False
    policy = framework.run_policy(observed.job)
    if policy.suspend or not is_managed_here(policy):
        return False
    if framework.verdict(observed.job, observed.gang).outcome is JobOutcome.SUCCEEDED:
        return False
    question = recovery_question(framework, observed)
    return question is not None and not question.remaining


def answer(framework: Framework[J], observed: ObservedJob[J], question: RecoveryQuestion) -> RecoveryStep | None:
    """What the policy of the job does about a failure; None: its restartPolicy decides."""
    assert observed.recovery is not None
    failure, member, history = question.failure, question.member, observed.job.status.recovery or NO_RECOVERY
    pod = question.failures.get(member)
    # A pod of that name may be the replacement of the one that failed.
    is_there = pod is not None and pod.metadata.name == failure.pod
    has_other_nodes, container = not observed.site.shared_host, framework.facts.container
    facts = FailureFacts(
        failure=failure,
        replica_type=member.type,
        cause=question.cause or observed.children.cause,
        node=pod.spec.node_name if pod is not None and is_there and has_other_nodes and question.at_node else "",
        has_other_nodes=has_other_nodes,
        is_handled=not is_there,
        memory_limit=_memory_limit(framework, observed, member.type),
        together=restarts_together(framework, observed),
        team_obstacle=in_place_obstacle(observed, container, question.failures, together=True),
        replica_obstacle=in_place_obstacle(observed, container, question.failures, together=False),
    )
    return recovery_step(observed.recovery, facts, history, observed.now)


def decisive_failures(framework: Framework[J], observed: ObservedJob[J]) -> dict[Member, Pod]:
    """The failed pods of replicas without which the job cannot succeed."""
    return {
        member: pod
        for member, pod in failed_pods(observed.gang).items()
        if not _is_tolerated(framework, observed.job, member)
    }


def _is_tolerated(framework: Framework[J], job: J, member: Member) -> bool:
    policy = framework.replicas(job)[member.type].restart_policy
    return policy == RestartPolicy.NEVER and framework.tolerates(job, member.type)


def has_port_clash(pod: Pod, container: str) -> bool:
    """Whether a pod failed because another process of its machine had its port."""
    state = terminated_state(pod, container)
    return pod.status.reason == PORT_CLASH or (state is not None and state.reason == PORT_CLASH)


def restarts_together(framework: Framework[J], observed: ObservedJob[J]) -> bool:
    """Whether all replicas restart under a policy: as the job says, else where they train by collectives of a fixed size."""
    scope = requested_scope(observed.job, framework.run_policy(observed.job))
    if scope is not None:
        return scope is RestartScope.JOB
    if isinstance(framework, Elastic) and framework.min_members(observed.job) is not None:
        return False
    return isinstance(framework, Collective) and framework.collective


def _memory_limit(framework: Framework[J], observed: ObservedJob[J], kind: str) -> Quantity | None:
    """The memory limit of the training container in new pods of a replica type, as it was raised last."""
    raised = (observed.job.status.recovery or NO_RECOVERY).memory.get(kind)
    template = framework.replicas(observed.job)[kind].template
    limits = (training_container(template, framework.facts).get("resources") or {}).get("limits") or {}
    try:
        return Quantity.of(raised or limits["memory"])
    except (KeyError, QuantityError):
        return None
