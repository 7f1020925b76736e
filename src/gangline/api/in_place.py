"""The annotation by which a pod is asked to start its processes again, in the same pod.

A pod that has it does not fail when its program does: it waits for the operator's decision. `0` is the first start;
`1 stop` asks for the end of all processes that are older than restart 1, and `1` for restart 1 itself. So all pods of a
team can be stopped before the first one starts.
"""

import re
from collections.abc import Mapping

import msgspec

IN_PLACE_ANNOTATION = "training.gangline.dev/in-place"
"""Annotation of a pod that restarts in place: the number of the restart that is asked for, and maybe ` stop`."""
IN_PLACE_REASON = "RestartedInPlace"
"""Reason of a process that our node ended for a restart in place: it has not failed."""
IN_PLACE_REASONS = (IN_PLACE_REASON, "RestartingAllContainers")
"""The same with that of the kubelet of Kubernetes."""
HOLD_CONTAINER = "gangline-hold"
"""The container that keeps a pod of a real kubelet from ending with its program."""

_ORDER = re.compile(r"(\d{1,9})( stop)?")


class InPlaceOrder(msgspec.Struct, frozen=True):
    """Which restart of a pod is asked for, and whether its processes may start."""

    number: int = 0
    starts: bool = True

    def __str__(self) -> str:
        return str(self.number) if self.starts else f"{self.number} stop"


def in_place_order(annotations: Mapping[str, str]) -> InPlaceOrder | None:
    """The order in the annotations of a pod; None if it does not restart in place, or nobody can read it."""
    text = annotations.get(IN_PLACE_ANNOTATION)
    order = _ORDER.fullmatch(text) if text else None
    return InPlaceOrder(int(order[1]), order[2] is None) if order is not None else None
