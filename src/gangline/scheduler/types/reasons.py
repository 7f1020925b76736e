"""Why nodes cannot take a pod, in words, with the number of nodes for each reason."""

from collections.abc import Mapping
from enum import IntEnum


class FilterReason(IntEnum):
    """Reasons in the order in which kube-scheduler checks them; lacking resources come last, by name."""

    FITS = 0
    NOT_READY = 1
    CORDONED = 2
    TAINTED = 3
    SELECTOR = 4
    PORT = 5
    DOMAIN = 6
    VOLUME = 7
    AFFINITY = 8
    ANTI_AFFINITY = 9
    SPREAD = 10
    ATTACH_LIMIT = 11
    # From this number on: one for each lacking resource.
    RESOURCE = 20


REASON_TEXTS: Mapping[int, str] = {
    FilterReason.NOT_READY: "not ready",
    FilterReason.CORDONED: "cordoned",
    FilterReason.TAINTED: "tainted",
    FilterReason.SELECTOR: "do not match the node selector",
    FilterReason.PORT: "have the host port in use",
    FilterReason.DOMAIN: "outside the topology domain",
    FilterReason.VOLUME: "cannot reach the volume",
    FilterReason.ATTACH_LIMIT: "at their limit of volumes",
    FilterReason.AFFINITY: "do not match the pod affinity",
    FilterReason.ANTI_AFFINITY: "excluded by pod anti-affinity",
    FilterReason.SPREAD: "would break the topology spread",
}


def resource_text(resource: str) -> str:
    return "at their limit of pods" if resource == "pods" else f"lack {resource}"


def nodes_message(nodes: Mapping[str, int], total: int) -> str:
    """`0/12 nodes: 8 lack nvidia.com/gpu, 4 tainted`: the most frequent reason first."""
    if not total:
        return "0/0 nodes: there are none"
    order = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
    return f"0/{total} nodes: " + ", ".join(f"{count} {word}" for word, count in order)
