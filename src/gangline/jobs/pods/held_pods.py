"""Pods that restart in place, and whose program has ended while they have not: they wait for a decision."""

from collections.abc import Iterable

import msgspec

from gangline.api.core import ContainerStateTerminated, ContainerStatus, Pod, PodPhase
from gangline.api.in_place import HOLD_CONTAINER, in_place_order


def program_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """The statuses of a pod's own containers."""
    return tuple(status for status in pod.status.container_statuses if status.name != HOLD_CONTAINER)


def as_judged(pod: Pod) -> Pod | None:
    """The pod as if it had ended with its program; None if it does not wait for a decision about that."""
    statuses, order = program_statuses(pod), in_place_order(pod.metadata.annotations)
    # A pod that was let go ends a moment after its program.
    is_let_go = order is None and len(statuses) < len(pod.status.container_statuses)
    if pod.status.phase != PodPhase.RUNNING or (order is None and not is_let_go):
        return None
    ends = [status.state.terminated for status in statuses]
    is_current = order is None or all(status.restart_count >= order.number for status in statuses)
    if not ends or not is_current or not all(end is not None for end in ends):
        return None
    phase = PodPhase.FAILED if any(map(_has_failed, ends)) else PodPhase.SUCCEEDED
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase.value))


def _has_failed(end: ContainerStateTerminated | None) -> bool:
    return end is not None and end.exit_code != 0


def judged_pods(pods: Iterable[Pod]) -> tuple[tuple[Pod, ...], frozenset[str]]:
    """The pods as they are judged, and the uids of those that wait for a decision."""
    judged, held = list[Pod](), set[str]()
    for pod in pods:
        ended = as_judged(pod)
        judged.append(ended or pod)
        if ended is not None:
            held.add(pod.metadata.uid)
    return tuple(judged), frozenset(held)
