"""Why a node does not take a pod, in words, and how many nodes for each."""

from collections.abc import Mapping
from enum import IntEnum


class Reason(IntEnum):
    """In the order in which kube-scheduler looks; resources come after all of these, by name."""

    FITS = 0
    NOT_READY = 1
    CORDONED = 2
    TAINTED = 3
    SELECTOR = 4
    PORT = 5
    DOMAIN = 6
    VOLUME = 7
    AFFINITY = 8
    ANTI = 9
    SPREAD = 10
    ATTACHED = 11
    # From here on, one number for each resource that is short.
    LACK = 20


WORDS: Mapping[int, str] = {
    Reason.NOT_READY: "not ready",
    Reason.CORDONED: "cordoned",
    Reason.TAINTED: "tainted",
    Reason.SELECTOR: "do not match the node selector",
    Reason.PORT: "have the host port in use",
    Reason.DOMAIN: "outside the topology domain",
    Reason.VOLUME: "cannot reach the volume",
    Reason.ATTACHED: "at their limit of volumes",
    Reason.AFFINITY: "do not match the pod affinity",
    Reason.ANTI: "excluded by pod anti-affinity",
    Reason.SPREAD: "would break the topology spread",
}


def lack(resource: str) -> str:
    return "at their limit of pods" if resource == "pods" else f"lack {resource}"


def told(nodes: Mapping[str, int], total: int) -> str:
    """`0/12 nodes: 8 lack nvidia.com/gpu, 4 tainted`: the commonest first."""
    if not total:
        return "0/0 nodes: there are none"
    order = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
    return f"0/{total} nodes: " + ", ".join(f"{count} {word}" for word, count in order)
