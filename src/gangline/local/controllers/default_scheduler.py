"""Binds pods of `default-scheduler` to a node that fits, so that plain pods run.

Fit only: no preference, no preemption, no affinity. Gangs have a scheduler of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import msgspec

from gangline.api.core import Node, Pod, Taint, Toleration
from gangline.api.meta import JSON, Key
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
    """A reconciler: an unbound pod of ours gets a node, or a reason why not.

    One that fits nowhere is not looked at again by itself: `FreedCapacity`, and a change of a node, bring it back.
    """

    def __init__(self, pods: Cache[Pod], nodes: Cache[Node], client: Client, clock: Clock) -> None:
        self._pods, self._nodes, self._client, self._clock = pods, nodes, client, clock
        self._pod_api = PodSubresources(client)
        # Bound here, and not yet seen so in the cache: the next pod must not get the same room.
        self._assumed: dict[str, Pod] = {}

    async def reconcile(self, key: Key) -> None:
        pod, there = self._pods.get(key), self._pods_with_assumed()
        if pod is None or not needs_binding(pod) or pod.metadata.uid in self._assumed:
            return
        found, why = select_node(pod, self._nodes, there)
        if found:
            await self._pod_api.bind(key, found, uid=pod.metadata.uid)
            spec = msgspec.structs.replace(pod.spec, node_name=found)
            self._assumed[pod.metadata.uid] = msgspec.structs.replace(pod, spec=spec)
            return
        if not _has_message(pod, why):
            condition = _unschedulable_condition(why, self._clock)
            await self._client.patch(
                Pod,
                key,
                {"status": {"conditions": [condition]}},
                form=PatchType.STRATEGIC,
                subresource="status",
            )

    def _pods_with_assumed(self) -> list[Pod]:
        """Every pod, those that were bound here on their nodes."""
        late = {pod.metadata.uid for pod in self._pods if not pod.spec.node_name}
        self._assumed = {uid: pod for uid, pod in self._assumed.items() if uid in late}
        return [self._assumed.get(pod.metadata.uid, pod) for pod in self._pods]


class FreedCapacity:
    """A source: when a pod gives its room on a node back, all pods that wait for some are looked at."""

    def __init__(self, pods: Informer[Pod]) -> None:
        self._pods = pods

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        def tell(delta: Delta[Pod]) -> None:
            before, after = delta.before, delta.after
            if before is not None and occupies_node(before) and (after is None or not occupies_node(after)):
                for key in unbound_pods(self._pods.cache):
                    add(key)

        return self._pods.subscribe(tell)

    async def wait_for_sync(self) -> None:
        await self._pods.wait_for_sync()


def unbound_pods(pods: Iterable[Pod]) -> list[Key]:
    """The pods that are ours to bind, the oldest first: room goes to whoever waited longest."""
    found = [pod.metadata for pod in pods if needs_binding(pod)]
    return [each.key for each in sorted(found, key=lambda each: (each.creation_timestamp or EARLIEST_TIME, each.key))]


def occupies_node(pod: Pod) -> bool:
    """Whether a pod takes room on a node: until it has ended."""
    return bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed")


def needs_binding(pod: Pod) -> bool:
    """Whether a pod is ours to bind, now."""
    spec = pod.spec
    return (
        not spec.node_name
        and spec.scheduler_name in ("", SCHEDULER_NAME)
        and not spec.scheduling_gates
        and pod.metadata.deletion_timestamp is None
    )


def select_node(pod: Pod, nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[str, str]:
    """The node for a pod, or an empty name and the reason, as kube-scheduler words it."""
    reasons: Counter[str] = Counter()
    used = node_usage(pods)
    wanted = pod_requests(pod)
    total = 0
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        total += 1
        problem = _filter_failure(pod, node, wanted, used.get(node.metadata.name, {}))
        if not problem:
            return node.metadata.name, ""
        reasons[problem] += 1
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return "", f"0/{total} nodes are available: {told or 'no nodes'}."


def _filter_failure(pod: Pod, node: Node, wanted: Mapping[str, Quantity], used: Mapping[str, Quantity]) -> str:
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerates(pod.spec.tolerations, taint):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    offered = parse_resources(node.status.allocatable)
    after = add_resources(used, wanted)
    for name in wanted:
        if wanted[name] > ZERO and not fits({name: after[name]}, {name: offered.get(name, ZERO)}):
            return f"Insufficient {name}"
    return ""


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers a taint."""
    return any(
        (not found.key or found.key == taint.key)
        and (not found.effect or found.effect == taint.effect)
        and (found.operator == "Exists" or found.value == taint.value)
        for found in tolerations
    )


def pod_requests(pod: Pod) -> dict[str, Quantity]:
    """What a pod asks for at its hungriest moment, overhead included, and one pod.

    That is when everything runs, sidecars too, or while an init container runs beside the sidecars before it.
    """
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for container in pod.spec.init_containers:
        asked = add_resources(sidecars, parse_resources(container.resources.requests))
        if container.restart_policy == "Always":
            sidecars = asked
        for name, amount in asked.items():
            starting[name] = max(starting.get(name, ZERO), amount)
    total = add_resources(sidecars, POD_SLOT)
    for container in pod.spec.containers:
        total = add_resources(total, parse_resources(container.resources.requests))
    for name, amount in starting.items():
        total[name] = max(total.get(name, ZERO), amount)
    return add_resources(total, parse_resources(pod.spec.overhead))


def node_usage(pods: Iterable[Pod]) -> dict[str, dict[str, Quantity]]:
    """What is taken on each node, by pods that have not ended."""
    taken: dict[str, dict[str, Quantity]] = {}
    for pod in pods:
        if occupies_node(pod):
            taken[pod.spec.node_name] = add_resources(taken.get(pod.spec.node_name, {}), pod_requests(pod))
    return taken


def _has_message(pod: Pod, why: str) -> bool:
    return any(
        found.type == "PodScheduled" and found.status == "False" and found.message == why
        for found in pod.status.conditions
    )


def _unschedulable_condition(why: str, clock: Clock) -> JSON:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastTransitionTime": clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
