"""The properties of a node that do not depend on its usage, and which taints a pod tolerates."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gangline.api.core import Taint
from gangline.api.scheduler_views import Node
from gangline.scheduler.types.shape import PodToleration

UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
NOT_READY_TAINT: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""The node label by which a pod is pinned to its node."""
HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
SOFT_EFFECT: Final = "PreferNoSchedule"


class NodeInfo(NamedTuple):
    """What filters read of a node, apart from its resources."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True


def node_info(node: Node) -> NodeInfo:
    """The `NodeInfo` of a node. Without a Ready condition it counts as ready: such a node reports no allocatable yet."""
    ready = all(each.status == "True" for each in node.status.conditions if each.type == "Ready")
    return NodeInfo(node.metadata.labels, node.spec.taints, node.spec.unschedulable, ready)


def tolerates(tolerations: Iterable[PodToleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and _tolerates_value(toleration, taint.value)
        for toleration in tolerations
    )


def _tolerates_value(toleration: PodToleration, value: str) -> bool:
    match toleration.operator:
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _tolerates_number(toleration, value)
        case _:
            return toleration.value == value


def _tolerates_number(toleration: PodToleration, value: str) -> bool:
    """Numeric comparison of a taint's value: a toleration of Gt 5 covers a taint of 6."""
    try:
        number, limit = int(value), int(toleration.value)
    except ValueError:
        return False
    return number > limit if toleration.operator == "Gt" else number < limit
