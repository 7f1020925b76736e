"""Pods of gangs and their groups, as the scheduler reads them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GROUP_NAME_ANNOTATION, PINNED_NODE_ANNOTATION, SCHEDULER_NAME, PodGroup
from support.builders.scheduler_inputs import make_scheduler_pod

START_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def make_gang_pod(
    name: str,
    group: str = "",
    *,
    uid: str = "",
    node: str = "",
    phase: str = "Pending",
    role: str = "",
    index: int | None = None,
    cpu: str = "1",
    leaving: bool = False,
    scheduler: str = SCHEDULER_NAME,
    gates: Sequence[str] = (),
    scheduled: datetime | None = None,
    namespace: str = "ns",
    age: int = 0,
    condition: tuple[str, str] | None = None,
    exit_code: int | None = None,
    pinned_to: str = "",
    owner: str = "",
    **spec: Any,
) -> Pod:
    """A pod of a gang.

    `age` is in seconds before START_TIME, `condition` is the status and reason of PodScheduled, `owner` is `Job/j uid`.
    """
    labels = {**({REPLICA_TYPE: role} if role else {})}
    if index is not None:
        labels[REPLICA_INDEX] = str(index)
    conditions: list[dict[str, Any]] = []
    if scheduled is not None:
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled})
    if condition is not None:
        status, reason = condition
        conditions.append({"type": "PodScheduled", "status": status, "reason": reason})
    annotations = {GROUP_NAME_ANNOTATION: group, PINNED_NODE_ANNOTATION: pinned_to}
    ended = [{"name": "main", "state": {"terminated": {"exitCode": exit_code}}}]
    return make_scheduler_pod(
        name,
        namespace=namespace,
        labels=labels,
        metadata={
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            "annotations": {key: value for key, value in annotations.items() if value},
            "creationTimestamp": START_TIME - timedelta(seconds=age),
            **({"deletionTimestamp": START_TIME} if leaving else {}),
            "ownerReferences": owner_references(owner),
        },
        spec={
            "nodeName": node,
            "schedulerName": scheduler,
            "schedulingGates": [{"name": gate} for gate in gates],
            **spec,
        },
        status={
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": ended if exit_code is not None else [],
        },
        cpu=cpu,
    )


def make_pod_group(
    name: str,
    least: int,
    *,
    phase: str = "",
    uid: str = "",
    version: str = "1",
    since: datetime | None = None,
    age: int = 0,
    owner: str = "",
    **spec: Any,
) -> PodGroup:
    since = since or START_TIME
    times = {"lastProbeTime": since, "lastTransitionTime": since} if phase else {}
    body = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            "creationTimestamp": START_TIME - timedelta(seconds=age),
            "ownerReferences": owner_references(owner),
        },
        "spec": {"minMember": least, **spec},
        "status": {"state": {"phase": phase, **times}},
    }
    return msgspec.convert(body, PodGroup)


def owner_references(owner: str) -> list[dict[str, Any]]:
    """The controller reference written as `Job/j uid`; no references for an empty string."""
    if not owner:
        return []
    named, _, uid = owner.partition(" ")
    kind, _, name = named.partition("/")
    return [{"kind": kind, "name": name, "uid": uid, "controller": True}]
