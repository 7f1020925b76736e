"""What a pod's spec wants of nodes and of other pods, as values that compare and hash."""

from collections.abc import Iterable
from typing import Final

from gangline.api.scheduler_views import (
    Affinity,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorExpression,
    TopologySpreadConstraint,
)
from gangline.api.scheduler_views import LabelSelectorSpec as SelectorBody
from gangline.api.selectors import LabelSelector, Requirement, SelectorError, SelectorOperator
from gangline.scheduler.pods.shape import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    AffinityTerm,
    NodeConstraints,
    NodeTerm,
    PodConstraints,
    PodToleration,
    SpreadConstraint,
)

_OPERATORS: Final = {
    "In": SelectorOperator.IN,
    "NotIn": SelectorOperator.NOT_IN,
    "Exists": SelectorOperator.EXISTS,
    "DoesNotExist": SelectorOperator.DOES_NOT_EXIST,
    "Gt": SelectorOperator.GREATER_THAN,
    "Lt": SelectorOperator.LESS_THAN,
}


def node_constraints_of(pod: Pod) -> NodeConstraints:
    """What a pod wants of a node itself. Raises `SelectorError`."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    where = NodeConstraints(
        selector=tuple(sorted(spec.node_selector.items())),
        required=None if required is None else tuple(node_term(each) for each in required.node_selector_terms),
        preferred=tuple((each.weight, node_term(each.preference)) for each in affinity.preferred) if affinity else (),
        tolerations=tuple(
            sorted(
                (
                    PodToleration(each.key, each.operator or "Equal", each.value, each.effect)
                    for each in spec.tolerations
                ),
                key=lambda each: (each.key, each.operator, each.value, each.effect),
            )
        ),
    )
    return NO_NODE_CONSTRAINTS if where == NO_NODE_CONSTRAINTS else where


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    """Raises `SelectorError`."""
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(expressions: Iterable[SelectorExpression]) -> tuple[Requirement, ...]:
    return tuple(_requirement(each) for each in expressions)


def _requirement(expression: SelectorExpression) -> Requirement:
    operator = _OPERATORS.get(expression.operator)
    if operator is None:
        raise SelectorError(f"operator {expression.operator!r} is not known; write one of {', '.join(_OPERATORS)}")
    return Requirement(expression.key, operator, tuple(sorted(expression.values)))


def pod_constraints_of(pod: Pod) -> PodConstraints:
    """What a pod wants of pods around it. Raises `SelectorError`."""
    affinity = pod.spec.affinity or Affinity()
    if pod.spec.affinity is None and not pod.spec.topology_spread_constraints:
        return NO_POD_CONSTRAINTS
    peers = PodConstraints(
        affinity=_affinity_terms(pod, affinity.pod_affinity),
        anti_affinity=_affinity_terms(pod, affinity.pod_anti_affinity),
        spread=tuple(
            _spread_constraint(pod, each)
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
    )
    return NO_POD_CONSTRAINTS if peers == NO_POD_CONSTRAINTS else peers


def _affinity_terms(pod: Pod, rules: PodAffinity | None) -> tuple[AffinityTerm, ...]:
    return tuple(_affinity_term(pod, each) for each in rules.required) if rules else ()


def _affinity_term(pod: Pod, term: PodAffinityTerm) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        topology_key=term.topology_key,
        selector=_pod_selector(pod, term.label_selector, term.match_label_keys, term.mismatch_label_keys),
        namespaces=frozenset((pod.metadata.namespace,) if own else term.namespaces),
        namespace_selector=None if term.namespace_selector is None else label_selector(term.namespace_selector),
    )


def _spread_constraint(pod: Pod, rule: TopologySpreadConstraint) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=rule.topology_key,
        selector=_pod_selector(pod, rule.label_selector, rule.match_label_keys),
        max_skew=rule.max_skew,
        min_domains=rule.min_domains or 1,
        honor_affinity=rule.node_affinity_policy != "Ignore",
        honor_taints=rule.node_taints_policy == "Honor",
    )


def _pod_selector(pod: Pod, body: SelectorBody | None, same: Iterable[str], other: Iterable[str] = ()) -> LabelSelector:
    """A selector with the pod's own values of some labels added: pods with the same, or with another, value.

    The server adds them itself when it makes the pod; what is there twice changes nothing.
    """
    if body is None:
        return LabelSelector(never=True)
    labels = pod.metadata.labels
    added = [Requirement(key, SelectorOperator.IN, (labels[key],)) for key in same if key in labels]
    added += [Requirement(key, SelectorOperator.NOT_IN, (labels[key],)) for key in other if key in labels]
    written = label_selector(body).requirements
    return LabelSelector((*written, *(each for each in added if each not in written)))


def label_selector(body: SelectorBody) -> LabelSelector:
    """As it is written. Raises `SelectorError`."""
    equal = (Requirement(key, SelectorOperator.EQUALS, (value,)) for key, value in body.match_labels.items())
    return LabelSelector((*equal, *_requirements(body.match_expressions)))


def selector_keys(peers: PodConstraints) -> frozenset[str]:
    """The labels that rules between pods ask for."""
    selectors = [rule.selector for rule in (*peers.affinity, *peers.anti_affinity)]
    selectors += [rule.selector for rule in peers.spread]
    return frozenset(each.key for selector in selectors for each in selector.requirements)
