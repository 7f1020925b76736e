"""What a pod's spec wants of nodes and of other pods, as values that compare and hash."""

from collections.abc import Iterable
from typing import Final

from gangline.api.scheduler_views import (
    Affinity,
    Expression,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpread,
)
from gangline.api.scheduler_views import LabelSelector as SelectorBody
from gangline.api.selectors import LabelSelector, Operator, Requirement, SelectorError
from gangline.scheduler.pods.shape import ANYWHERE, NO_PEERS, NodeTerm, Peers, Spread, Term, Toleration, Where

_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
    "Gt": Operator.GREATER_THAN,
    "Lt": Operator.LESS_THAN,
}


def where_of(pod: Pod) -> Where:
    """What a pod wants of a node itself. Raises `SelectorError`."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    where = Where(
        selector=tuple(sorted(spec.node_selector.items())),
        required=None
        if required is None
        else tuple(node_term(each) for each in required.node_selector_terms),
        preferred=tuple((each.weight, node_term(each.preference)) for each in affinity.preferred)
        if affinity
        else (),
        tolerations=tuple(
            sorted(
                (
                    Toleration(each.key, each.operator or "Equal", each.value, each.effect)
                    for each in spec.tolerations
                ),
                key=lambda each: (each.key, each.operator, each.value, each.effect),
            )
        ),
    )
    return ANYWHERE if where == ANYWHERE else where


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    """Raises `SelectorError`."""
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(expressions: Iterable[Expression]) -> tuple[Requirement, ...]:
    return tuple(_requirement(each) for each in expressions)


def _requirement(expression: Expression) -> Requirement:
    operator = _OPERATORS.get(expression.operator)
    if operator is None:
        raise SelectorError(
            f"operator {expression.operator!r} is not known; write one of {', '.join(_OPERATORS)}"
        )
    return Requirement(expression.key, operator, tuple(sorted(expression.values)))


def peers_of(pod: Pod) -> Peers:
    """What a pod wants of pods around it. Raises `SelectorError`."""
    affinity = pod.spec.affinity or Affinity()
    if pod.spec.affinity is None and not pod.spec.topology_spread_constraints:
        return NO_PEERS
    peers = Peers(
        affinity=_terms(pod, affinity.pod_affinity),
        anti=_terms(pod, affinity.pod_anti_affinity),
        spread=tuple(
            _spread(pod, each)
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
    )
    return NO_PEERS if peers == NO_PEERS else peers


def _terms(pod: Pod, rules: PodAffinity | None) -> tuple[Term, ...]:
    return tuple(_term(pod, each) for each in rules.required) if rules else ()


def _term(pod: Pod, term: PodAffinityTerm) -> Term:
    own = not term.namespaces and term.namespace_selector is None
    return Term(
        key=term.topology_key,
        selector=_selector(pod, term.label_selector, term.match_label_keys, term.mismatch_label_keys),
        namespaces=frozenset((pod.metadata.namespace,) if own else term.namespaces),
        namespace_selector=None if term.namespace_selector is None else plain(term.namespace_selector),
    )


def _spread(pod: Pod, rule: TopologySpread) -> Spread:
    return Spread(
        key=rule.topology_key,
        selector=_selector(pod, rule.label_selector, rule.match_label_keys),
        skew=rule.max_skew,
        domains=rule.min_domains or 1,
        honor_affinity=rule.node_affinity_policy != "Ignore",
        honor_taints=rule.node_taints_policy == "Honor",
    )


def _selector(
    pod: Pod, body: SelectorBody | None, same: Iterable[str], other: Iterable[str] = ()
) -> LabelSelector:
    """A selector with the pod's own values of some labels added: pods with the same, or with another, value.

    The server adds them itself when it makes the pod; what is there twice changes nothing.
    """
    if body is None:
        return LabelSelector(never=True)
    labels = pod.metadata.labels
    added = [Requirement(key, Operator.IN, (labels[key],)) for key in same if key in labels]
    added += [Requirement(key, Operator.NOT_IN, (labels[key],)) for key in other if key in labels]
    written = plain(body).requirements
    return LabelSelector((*written, *(each for each in added if each not in written)))


def plain(body: SelectorBody) -> LabelSelector:
    """As it is written. Raises `SelectorError`."""
    equal = (Requirement(key, Operator.EQUALS, (value,)) for key, value in body.match_labels.items())
    return LabelSelector((*equal, *_requirements(body.match_expressions)))


def keys_of(peers: Peers) -> frozenset[str]:
    """The labels that rules between pods ask for."""
    selectors = [rule.selector for rule in (*peers.affinity, *peers.anti)]
    selectors += [rule.selector for rule in peers.spread]
    return frozenset(each.key for selector in selectors for each in selector.requirements)
