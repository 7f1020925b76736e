"""Node affinity by which new pods keep away from nodes. Every scheduler knows it."""

from collections.abc import Collection, Mapping

import msgspec

from gangline.api.meta import JSON

EXCLUDED_NODES_ANNOTATION = "training.gangline.dev/excluded-nodes"
"""Annotation of a pod: the nodes that it must not run on, with commas, because of failures there."""
AVOIDANCE_WEIGHT = 100
"""The weight of a node that should be avoided: the highest there is."""


class NodeAvoidance(msgspec.Struct, frozen=True):
    """The nodes that a new pod must not run on, and those that it should not run on."""

    excluded: tuple[str, ...] = ()
    disliked: tuple[str, ...] = ()
    # Why nodes are avoided on which this job itself did not fail.
    reasons: Mapping[str, str] = {}


NO_AVOIDANCE = NodeAvoidance()


def keep_away(pod_spec: JSON, avoidance: NodeAvoidance) -> None:
    """Add the affinity to the spec of a pod, together with the user's own.

    Required terms are alternatives, so the exclusion goes into each of them. A term without any requirement matches no
    node, and stays as it is.
    """
    if not avoidance.excluded and not avoidance.disliked:
        return
    affinity = dict(pod_spec.get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    if avoidance.excluded:
        required = dict(node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
        terms = required.get("nodeSelectorTerms")
        others = _other_names(avoidance.excluded)
        required["nodeSelectorTerms"] = (
            [_narrowed(term, others) for term in terms] if terms else [{"matchFields": others}]
        )
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
    if avoidance.disliked:
        preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        # One term for each node: of a term with several, a pod on any of them would satisfy none.
        others = _other_names(avoidance.disliked)
        terms = [{"weight": AVOIDANCE_WEIGHT, "preference": {"matchFields": [other]}} for other in others]
        node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, *terms]
    pod_spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}


def _narrowed(term: JSON, requirements: list[JSON]) -> JSON:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term
    return {**term, "matchFields": [*(term.get("matchFields") or []), *requirements]}


def _other_names(nodes: Collection[str]) -> list[JSON]:
    """Requirements that hold for all other nodes. The server takes one name in each."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
