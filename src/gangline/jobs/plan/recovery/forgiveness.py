"""Pods that wait for a place and keep away from a node that is forgiven meanwhile.

The affinity of a pod cannot be changed: such a pod is deleted, and its replica gets a new one.
"""

from collections.abc import Iterator
from datetime import timedelta

from gangline.api.core import Pod, PodPhase
from gangline.jobs.framework import J
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


def _waiting_pods(observed: ObservedJob[J]) -> Iterator[tuple[Pod, set[str]]]:
    """The pods that are not placed and keep away from nodes, with the names of these."""
    if observed.recovery is None:
        return
    for pod in observed.gang.pods.values():
        nodes = pod.metadata.annotations.get(EXCLUDED_NODES_ANNOTATION, "")
        waits = not pod.spec.node_name and pod.status.phase == PodPhase.PENDING and not observed.is_being_deleted(pod)
        if nodes and waits:
            yield pod, set(nodes.split(","))
