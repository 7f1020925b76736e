"""Restart in place: the same pods, new processes. When that may be, and how far it is. Pure.

A pod that restarts in place has an annotation, and does not fail when its program does: it waits for a decision. If the
team restarts in place, all of its pods are asked to stop, and when no process of the old team is left, to start. So no
process of the new team can meet one of the old. If that takes too long, or a pod is lost meanwhile, the replicas get new
pods.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.in_place import IN_PLACE_ANNOTATION, InPlaceOrder, in_place_order
from gangline.api.kubeflow.training import InPlaceRestart, RestartLedger
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.actions import PODS, Patch
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.pods.held_pods import program_statuses
from gangline.jobs.pods.replicas import Gang, Member, training_status

IN_PLACE_PATIENCE = timedelta(seconds=60)
"""How long a restart in place may take beyond the grace period of its pods."""


# Whether it may be


def in_place_obstacle(
    observed: ObservedJob[J], container: str, failures: Collection[Member], *, together: bool
) -> str | None:
    """Why the replicas cannot restart in place; empty if they can, None if the policy does not ask for it.

    `failures` are the replicas that restart if not all of them restart `together`.
    """
    if observed.recovery is None or not observed.recovery.in_place:
        return None
    if not observed.site.restarts_in_place:
        return "this cluster does not restart pods in place"
    gang = observed.gang
    members: Iterable[Member] = gang.seats if together else failures
    if together and (gang.stale or gang.extra):
        return "pods of an earlier start are still there"
    if together and len({in_place_order(pod.metadata.annotations) for pod in gang.pods.values()}) > 1:
        return "its replicas have restarted in place one by one before"
    return next((text for member in members if (text := _pod_obstacle(observed, container, member))), "")


def _pod_obstacle(observed: ObservedJob[J], container: str, member: Member) -> str:
    pod = observed.gang.pods.get(member)
    if pod is None or observed.is_being_deleted(pod):
        return f"{member} has lost its pod"
    if in_place_order(pod.metadata.annotations) is None:
        return f"the pod of {member} was not created for it"
    if pod.status.phase != PodPhase.RUNNING and not _is_held_failure(observed, pod):
        return f"the pod of {member} has ended" if _has_ended(pod) else f"the pod of {member} does not run"
    if pod.spec.node_name in observed.avoidance.excluded or _is_disrupted(pod):
        return f"node {pod.spec.node_name} of {member} is to be left"
    state = training_status(pod, container).state
    return "" if state.running is not None or state.terminated is not None else f"{member} has not started"


def _is_held_failure(observed: ObservedJob[J], pod: Pod) -> bool:
    """Whether a replica has failed and its pod waits. One that has succeeded is not started again in place."""
    return pod.metadata.uid in observed.held and pod.status.phase == PodPhase.FAILED


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _is_disrupted(pod: Pod) -> bool:
    return any(one.type == "DisruptionTarget" and one.status == "True" for one in pod.status.conditions)


def new_restart(gang: Gang, members: Collection[Member], now: datetime, *, together: bool) -> InPlaceRestart:
    """The restart in place of these replicas, with a number that none of their pods has had."""
    orders = (in_place_order(gang.pods[member].metadata.annotations) for member in members if member in gang.pods)
    number = max((order.number for order in orders if order is not None), default=0) + 1
    replicas = () if together else tuple(str(member) for member in members)
    return InPlaceRestart(number=number, since=now.replace(microsecond=0), replicas=replicas)


# How far it is


class InPlaceProgress(msgspec.Struct, frozen=True):
    """How far a restart in place is: the next orders, or that it is done, or why it is not going to be."""

    restart: InPlaceRestart
    members: tuple[Member, ...]
    orders: tuple[Patch, ...] = ()
    done: bool = False
    problem: str = ""
    # When to look again although nothing changes.
    remaining: timedelta = timedelta()


def in_place_progress(
    framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger
) -> InPlaceProgress | None:
    """How far the restart in place is that the ledger has; None if none is under way."""
    restart = ledger.restarting_in_place
    if restart is None:
        return None
    gang, container = observed.gang, framework.facts.container
    members = tuple(seat for seat in gang.seats if not restart.replicas or str(seat) in restart.replicas)
    progress = InPlaceProgress(restart, members)
    problem = next((text for member in members if (text := _loss(observed, container, member, restart.number))), "")
    if problem:
        return msgspec.structs.replace(progress, problem=problem)
    pods = {member: gang.pods[member] for member in members}
    if all(_has_restarted(pod, container, restart.number) for pod in pods.values()):
        return msgspec.structs.replace(progress, done=True)
    begin = max(restart.since, ledger.not_before or restart.since)
    grace = max((pod.spec.termination_grace_period_seconds for pod in pods.values()), default=0)
    remaining = begin + IN_PLACE_PATIENCE + timedelta(seconds=grace) - observed.now
    if remaining <= timedelta():
        late = [str(member) for member, pod in pods.items() if not _has_restarted(pod, container, restart.number)]
        return msgspec.structs.replace(progress, problem=f"{late[0]} has not restarted in time")
    wait = (ledger.not_before or observed.now) - observed.now
    starts = wait <= timedelta() and all(_may_start(pod, restart.number) for pod in pods.values())
    order = InPlaceOrder(restart.number, starts)
    return msgspec.structs.replace(
        progress,
        orders=tuple(_order(pod, order) for pod in pods.values() if _needs_order(pod, order)),
        remaining=min(remaining, wait) if wait > timedelta() else remaining,
    )


def _loss(observed: ObservedJob[J], container: str, member: Member, number: int) -> str:
    """Why a replica cannot finish a restart in place any more. One that has may have ended since."""
    pod = observed.gang.pods.get(member)
    if pod is None or observed.is_being_deleted(pod):
        return f"{member} has lost its pod"
    if _has_ended(pod) and pod.metadata.uid not in observed.held and not _has_restarted(pod, container, number):
        return f"the pod of {member} has ended" + (f" ({pod.status.reason})" if pod.status.reason else "")
    return ""


def _has_restarted(pod: Pod, container: str, number: int) -> bool:
    status = training_status(pod, container)
    is_there = status.state.running is not None or status.state.terminated is not None
    order = in_place_order(pod.metadata.annotations)
    return is_there and status.restart_count >= number and order == InPlaceOrder(number)


def _may_start(pod: Pod, number: int) -> bool:
    """Whether no process of the team before is left in the pod, and its node has seen the order."""
    order = in_place_order(pod.metadata.annotations)
    return order is not None and order.number == number and not _runs_old_process(pod, number)


def _runs_old_process(pod: Pod, number: int) -> bool:
    return any(status.state.running is not None and status.restart_count < number for status in program_statuses(pod))


def _needs_order(pod: Pod, order: InPlaceOrder) -> bool:
    before = in_place_order(pod.metadata.annotations)
    # A pod that may start is not stopped again: its peers wait for it.
    return before is None or before.number < order.number or (order.starts and not before.starts)


def _order(pod: Pod, order: InPlaceOrder) -> Patch:
    body = {"metadata": {"annotations": {IN_PLACE_ANNOTATION: str(order)}}}
    return Patch(PODS, pod.metadata.name, body, pod.metadata.uid)


def releases(pods: Iterable[Pod], deleted: Collection[str] = ()) -> tuple[Patch, ...]:
    """Let these pods end with their programs, except for those that are `deleted`: nobody asks for a restart any more."""
    return tuple(
        Patch(PODS, pod.metadata.name, {"metadata": {"annotations": {IN_PLACE_ANNOTATION: None}}}, pod.metadata.uid)
        for pod in pods
        if IN_PLACE_ANNOTATION in pod.metadata.annotations
        and pod.metadata.uid not in deleted
        and pod.metadata.deletion_timestamp is None
    )
