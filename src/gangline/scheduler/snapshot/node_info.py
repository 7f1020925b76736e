"""What a node is, apart from how full it is; and which taints a pod does not mind."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gangline.api.core import Taint
from gangline.api.scheduler_views import Node
from gangline.scheduler.pods.shape import Toleration

CORDONED: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
HARD: Final = ("NoSchedule", "NoExecute")
SOFT: Final = "PreferNoSchedule"


class Site(NamedTuple):
    """What predicates ask of a node itself."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True


def site_of(node: Node) -> Site:
    """A node that has not yet said whether it is ready counts as ready: then it has no room either."""
    ready = all(each.status == "True" for each in node.status.conditions if each.type == "Ready")
    return Site(node.metadata.labels, node.spec.taints, node.spec.unschedulable, ready)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers a taint."""
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and _covers(each, taint.value)
        for each in tolerations
    )


def _covers(toleration: Toleration, value: str) -> bool:
    match toleration.operator:
        case "Exists":
            return True
        case "Gt" | "Lt":
            return _compares(toleration, value)
        case _:
            return toleration.value == value


def _compares(toleration: Toleration, value: str) -> bool:
    """Taints with numbers: a toleration of Gt 5 covers a taint of 6."""
    try:
        found, limit = int(value), int(toleration.value)
    except ValueError:
        return False
    return found > limit if toleration.operator == "Gt" else found < limit
