"""Pods that wait for a place and keep away from a node that is forgiven meanwhile.

The affinity of a pod cannot be changed: such a pod is deleted, and its replica gets a new one.
"""

import re
from collections.abc import Collection, Iterator
from datetime import timedelta

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import JobStatus
from gangline.jobs.framework import J
from gangline.jobs.plan.actions import JobEvent
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.recovery.affinity import EXCLUDED_NODES_ANNOTATION
from gangline.jobs.plan.recovery.decision import excluded_nodes

BAD_NODES_CHECK = timedelta(minutes=1)
"""How often to look whether a node that all jobs avoid is forgiven, while pods wait."""


def outdated_pods(observed: ObservedJob[J]) -> tuple[Pod, ...]:
    """The pods without a node that keep away from more nodes than new pods do now."""
    excluded = set(observed.avoidance.excluded)
    return tuple(pod for pod, nodes in _waiting_pods(observed) if not nodes <= excluded)


def forgiveness_in(observed: ObservedJob[J]) -> timedelta | None:
    """When the next node is forgiven for which pods of the job wait; None if none waits."""
    waiting = {name for _, nodes in _waiting_pods(observed) for name in nodes}
    if not waiting:
        return None
    own = {node.name: node.until - observed.now for node in excluded_nodes(observed.job.status.recovery, observed.now)}
    return min(own.get(name, BAD_NODES_CHECK) for name in waiting)


def with_early_forgiveness(observed: ObservedJob[J], status: JobStatus) -> tuple[JobStatus, tuple[JobEvent, ...]]:
    """The status without nodes that are left out, and an event, if a scheduler says that there are no other nodes."""
    own = [node.name for node in excluded_nodes(status.recovery, observed.now)]
    if (
        status.recovery is None
        or not own
        or not any(_has_no_other_node(pod, own) for pod, _ in _waiting_pods(observed))
    ):
        return status, ()
    names = ", ".join(own)
    message = f"node{'s' if len(own) > 1 else ''} {names} may be used again before the time: there is no other node"
    recovery = msgspec.structs.replace(status.recovery, excluded_nodes=())
    return msgspec.structs.replace(status, recovery=recovery), (JobEvent("NodeForgiven", message, warning=True),)


def _has_no_other_node(pod: Pod, excluded: Collection[str]) -> bool:
    """Whether the scheduler has looked at no more nodes than are left out."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            counted = _NODES_COUNTED.match(condition.message)
            return counted is not None and 0 < int(counted[1]) <= len(excluded)
    return False


# The words of kube-scheduler and of our scheduler: `0/1 nodes are available: ...`, `0/1 nodes: ...`.
_NODES_COUNTED = re.compile(r"0/(\d{1,6}) nodes\b")


def _waiting_pods(observed: ObservedJob[J]) -> Iterator[tuple[Pod, set[str]]]:
    """The pods that are not placed and keep away from nodes, with the names of these."""
    if observed.recovery is None:
        return
    for pod in observed.gang.pods.values():
        nodes = pod.metadata.annotations.get(EXCLUDED_NODES_ANNOTATION, "")
        waits = not pod.spec.node_name and pod.status.phase == PodPhase.PENDING and not observed.is_being_deleted(pod)
        if nodes and waits:
            yield pod, set(nodes.split(","))
