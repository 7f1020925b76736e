"""Binds pods of `default-scheduler` to a node that fits, so that plain pods run.

It filters only: no scores, no preemption, no affinity. Gangs have their own scheduler.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import msgspec

from gangline.api.core import Node, Pod, Taint, Toleration, is_terminal_phase
from gangline.api.meta import JSON, Key, timestamp
from gangline.api.quantity import ZERO, Quantity, add_resources, fits, parse_resources
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.options import PatchType
from gangline.kube.pods import PodSubresources
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Delta, Informer

SCHEDULER_NAME = "default-scheduler"
EARLIEST_TIME = datetime.min.replace(tzinfo=UTC)
POD_SLOT = parse_resources({"pods": "1"})


class DefaultScheduler:
    """A reconciler: binds an unbound pod to a node, or writes the condition that says why no node fits.

    A pod that fits no node is not retried by time: `FreedCapacity` and changes of nodes enqueue it again.
    """

    def __init__(self, pods: Cache[Pod], nodes: Cache[Node], client: Client, clock: Clock) -> None:
        self._pods, self._nodes, self._client, self._clock = pods, nodes, client, clock
        self._pod_api = PodSubresources(client)
        # Pods by uid that were bound here but are unbound in the cache: their capacity must not be used again.
        self._assumed: dict[str, Pod] = {}

    async def reconcile(self, key: Key) -> None:
        pod, pods = self._pods.get(key), self._pods_with_assumed()
        if pod is None or not needs_binding(pod) or pod.metadata.uid in self._assumed:
            return
        node, problem = select_node(pod, self._nodes, pods)
        if node:
            await self._pod_api.bind(key, node, uid=pod.metadata.uid)
            spec = msgspec.structs.replace(pod.spec, node_name=node)
            self._assumed[pod.metadata.uid] = msgspec.structs.replace(pod, spec=spec)
            return
        if not _has_message(pod, problem):
            condition = _unschedulable_condition(problem, self._clock)
            await self._client.patch(
                Pod, key, {"status": {"conditions": [condition]}}, form=PatchType.STRATEGIC, subresource="status"
            )

    def _pods_with_assumed(self) -> list[Pod]:
        """All pods; those that were bound here have their node, even if the cache does not know it yet."""
        unbound = {pod.metadata.uid for pod in self._pods if not pod.spec.node_name}
        self._assumed = {uid: pod for uid, pod in self._assumed.items() if uid in unbound}
        return [self._assumed.get(pod.metadata.uid, pod) for pod in self._pods]


class FreedCapacity:
    """A source: enqueues all unbound pods when a pod frees its capacity on a node."""

    def __init__(self, pods: Informer[Pod]) -> None:
        self._pods = pods

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        def on_change(delta: Delta[Pod]) -> None:
            before, after = delta.before, delta.after
            if before is not None and occupies_node(before) and (after is None or not occupies_node(after)):
                for key in unbound_pods(self._pods.cache):
                    add(key)

        return self._pods.subscribe(on_change)

    async def wait_for_sync(self) -> None:
        await self._pods.wait_for_sync()


def unbound_pods(pods: Iterable[Pod]) -> list[Key]:
    """The pods that this scheduler binds, oldest first: the pod that waited longest gets capacity first."""
    unbound = [pod.metadata for pod in pods if needs_binding(pod)]
    unbound.sort(key=lambda metadata: (metadata.creation_timestamp or EARLIEST_TIME, metadata.key))
    return [metadata.key for metadata in unbound]


def occupies_node(pod: Pod) -> bool:
    """Whether a pod uses capacity of a node: it is bound and has not finished."""
    return bool(pod.spec.node_name) and not is_terminal_phase(pod.status.phase)


def needs_binding(pod: Pod) -> bool:
    """Whether this scheduler should bind the pod now."""
    spec = pod.spec
    return (
        not spec.node_name
        and spec.scheduler_name in ("", SCHEDULER_NAME)
        and not spec.scheduling_gates
        and pod.metadata.deletion_timestamp is None
    )


def select_node(pod: Pod, nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[str, str]:
    """The name of a node for the pod; or an empty name and kube-scheduler's message why no node fits."""
    reasons: Counter[str] = Counter()
    used = node_usage(pods)
    requests = pod_requests(pod)
    total = 0
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        total += 1
        problem = _filter_failure(pod, node, requests, used.get(node.metadata.name, {}))
        if not problem:
            return node.metadata.name, ""
        reasons[problem] += 1
    summary = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return "", f"0/{total} nodes are available: {summary or 'no nodes'}."


def _filter_failure(pod: Pod, node: Node, requests: Mapping[str, Quantity], used: Mapping[str, Quantity]) -> str:
    """Why the node does not fit the pod; empty if it fits."""
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerates(pod.spec.tolerations, taint):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    allocatable = parse_resources(node.status.allocatable)
    total = add_resources(used, requests)
    for name in requests:
        if requests[name] > ZERO and not fits({name: total[name]}, {name: allocatable.get(name, ZERO)}):
            return f"Insufficient {name}"
    return ""


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers a taint."""
    return any(
        (not toleration.key or toleration.key == taint.key)
        and (not toleration.effect or toleration.effect == taint.effect)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations
    )


def pod_requests(pod: Pod) -> dict[str, Quantity]:
    """The most that a pod requests at a time, with its overhead and one `pods`.

    That is while all main containers and sidecars run, or while an init container runs beside the sidecars before it.
    """
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for container in pod.spec.init_containers:
        requests = add_resources(sidecars, parse_resources(container.resources.requests))
        if container.restart_policy == "Always":
            sidecars = requests
        for name, amount in requests.items():
            starting[name] = max(starting.get(name, ZERO), amount)
    total = add_resources(sidecars, POD_SLOT)
    for container in pod.spec.containers:
        total = add_resources(total, parse_resources(container.resources.requests))
    for name, amount in starting.items():
        total[name] = max(total.get(name, ZERO), amount)
    return add_resources(total, parse_resources(pod.spec.overhead))


def node_usage(pods: Iterable[Pod]) -> dict[str, dict[str, Quantity]]:
    """The requests of all unfinished pods, by node."""
    usage: dict[str, dict[str, Quantity]] = {}
    for pod in pods:
        if occupies_node(pod):
            usage[pod.spec.node_name] = add_resources(usage.get(pod.spec.node_name, {}), pod_requests(pod))
    return usage


def _has_message(pod: Pod, message: str) -> bool:
    return any(
        condition.type == "PodScheduled" and condition.status == "False" and condition.message == message
        for condition in pod.status.conditions
    )


def _unschedulable_condition(message: str, clock: Clock) -> JSON:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": timestamp(clock.now()),
    }
