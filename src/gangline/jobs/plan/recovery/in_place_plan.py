"""The plan of a job while its replicas restart in place."""

from datetime import timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import ConditionType, JobPhase, JobStatus
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.actions import PODS, JobEvent, JobPlan
from gangline.jobs.plan.conditions import status_with_condition
from gangline.jobs.plan.creation import deletions
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.recovery.in_place import InPlaceProgress
from gangline.jobs.plan.recovery.question import has_port_clash
from gangline.jobs.plan.restarts import RestartTally
from gangline.jobs.plan.rounds import with_next_round
from gangline.jobs.plan.status import status_with_phase
from gangline.jobs.pods.replicas import all_pods

RESTARTED_IN_PLACE = "RestartedInPlace"
"""Reason of an event: all replicas that restart in place run again."""
IN_PLACE_ABANDONED = "InPlaceRestartFailed"
"""Reason of an event: a restart in place did not succeed, and the replicas get new pods."""


def in_place_plan(
    framework: Framework[J], observed: ObservedJob[J], status: JobStatus, progress: InPlaceProgress
) -> JobPlan:
    """Ask the pods for the next step of their restart, or give the replicas new pods if they cannot take it."""
    if progress.problem:
        return _new_pods_plan(framework, observed, status, progress)
    phase = JobPhase.RUNNING if progress.restart.replicas else JobPhase.CREATING
    status = status_with_phase(status, phase, observed.gang)
    return JobPlan(status, (progress.orders,) if progress.orders else (), (), progress.remaining)


def _new_pods_plan(
    framework: Framework[J], observed: ObservedJob[J], status: JobStatus, progress: InPlaceProgress
) -> JobPlan:
    job, gang, ledger = observed.job, observed.gang, status.ledger
    message = f"job {job.metadata.name} gets new pods, because its restart in place failed: {progress.problem}"
    ledger = msgspec.structs.replace(ledger, restarting_in_place=None)
    if progress.restart.replicas:
        pods: tuple[Pod, ...] = tuple(gang.pods[member] for member in progress.members if member in gang.pods)
        replaced = (*ledger.replaced, *(pod.metadata.uid for pod in pods))
        ledger, phase = msgspec.structs.replace(ledger, replaced=replaced), JobPhase.RUNNING
    else:
        # The restart is counted already.
        clash = any(has_port_clash(pod, framework.facts.container) for pod in gang.pods.values())
        ledger = with_next_round(ledger, renews_addresses=clash, charged=False)
        pods, phase = all_pods(gang), JobPhase.CREATING
    status = msgspec.structs.replace(status, ledger=ledger)
    status = status_with_condition(status, ConditionType.RESTARTING, f"{job.KIND}Restarting", message, observed.now)
    status = status_with_phase(status, phase, gang)
    event = JobEvent(IN_PLACE_ABANDONED, message, warning=True)
    return JobPlan(status, (deletions(observed, PODS, pods),), (event,))


def after_restart(
    observed: ObservedJob[J], restarts: RestartTally, progress: InPlaceProgress
) -> tuple[RestartTally, JobEvent]:
    """The tally when a restart in place is complete, and the event about it."""
    ledger = msgspec.structs.replace(restarts.ledger, restarting_in_place=None)
    took = max(observed.now - progress.restart.since, timedelta())
    count = len(progress.members)
    who = (
        f"all {count} replicas run"
        if not progress.restart.replicas
        else f"{', '.join(map(str, progress.members))} runs"
    )
    message = (
        f"job {observed.job.metadata.name} restarted in place: {who} again in the same pods after {took.seconds} s"
    )
    return msgspec.structs.replace(restarts, ledger=ledger), JobEvent(RESTARTED_IN_PLACE, message)
