"""Pods from the API server as shapes and bound pods."""

from collections.abc import Collection, Iterable, Mapping
from sys import intern
from typing import Final

import msgspec

from gangline.api.meta import Key
from gangline.api.scheduler_views import (
    POD_RESIZE_PENDING,
    Affinity,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorExpression,
    TopologySpreadConstraint,
)
from gangline.api.scheduler_views import LabelSelectorSpec as SelectorBody
from gangline.api.scheduling import COMMIT_ANNOTATION, COMMIT_PIN, GANG_GATE
from gangline.api.selectors import NODE_OPERATORS, LabelSelector, Requirement, SelectorError, SelectorOperator
from gangline.scheduler.pods.requests import pod_requests
from gangline.scheduler.types.cycle import BoundPod
from gangline.scheduler.types.shape import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    AffinityTerm,
    HostPort,
    NodeConstraints,
    NodeTerm,
    PodConstraints,
    PodShape,
    PodToleration,
    SpreadConstraint,
)


def node_constraints_of(pod: Pod) -> NodeConstraints:
    """The node selector, node affinity and tolerations of a pod. Raises `SelectorError`."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    node_constraints = NodeConstraints(
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
    return NO_NODE_CONSTRAINTS if node_constraints == NO_NODE_CONSTRAINTS else node_constraints


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    """A node selector term. Raises `SelectorError`."""
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _requirements(expressions: Iterable[SelectorExpression]) -> tuple[Requirement, ...]:
    return tuple(_requirement(each) for each in expressions)


def _requirement(expression: SelectorExpression) -> Requirement:
    operator = NODE_OPERATORS.get(expression.operator)
    if operator is None:
        raise SelectorError(f"operator {expression.operator!r} is not known; write one of {', '.join(NODE_OPERATORS)}")
    return Requirement(expression.key, operator, tuple(sorted(expression.values)))


def pod_constraints_of(pod: Pod) -> PodConstraints:
    """The pod affinity, anti-affinity and topology spread of a pod. Raises `SelectorError`."""
    affinity = pod.spec.affinity or Affinity()
    if pod.spec.affinity is None and not pod.spec.topology_spread_constraints:
        return NO_POD_CONSTRAINTS
    pod_constraints = PodConstraints(
        affinity=_affinity_terms(pod, affinity.pod_affinity),
        anti_affinity=_affinity_terms(pod, affinity.pod_anti_affinity),
        spread=tuple(
            _spread_constraint(pod, each)
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ),
    )
    return NO_POD_CONSTRAINTS if pod_constraints == NO_POD_CONSTRAINTS else pod_constraints


def _affinity_terms(pod: Pod, rules: PodAffinity | None) -> tuple[AffinityTerm, ...]:
    return tuple(_affinity_term(pod, each) for each in rules.required) if rules else ()


def _affinity_term(pod: Pod, term: PodAffinityTerm) -> AffinityTerm:
    own_namespace = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        topology_key=term.topology_key,
        selector=_pod_selector(pod, term.label_selector, term.match_label_keys, term.mismatch_label_keys),
        namespaces=frozenset((pod.metadata.namespace,) if own_namespace else term.namespaces),
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


def _pod_selector(
    pod: Pod, body: SelectorBody | None, match_keys: Iterable[str], mismatch_keys: Iterable[str] = ()
) -> LabelSelector:
    """A selector with the pod's own values of some labels added (matchLabelKeys, mismatchLabelKeys).

    The API server adds them itself when the pod is created; a requirement that is there already is not added again.
    """
    if body is None:
        return LabelSelector(never=True)
    labels = pod.metadata.labels
    added = [Requirement(key, SelectorOperator.IN, (labels[key],)) for key in match_keys if key in labels]
    added += [Requirement(key, SelectorOperator.NOT_IN, (labels[key],)) for key in mismatch_keys if key in labels]
    requirements = label_selector(body).requirements
    return LabelSelector((*requirements, *(each for each in added if each not in requirements)))


def label_selector(body: SelectorBody) -> LabelSelector:
    """A label selector as a value. Raises `SelectorError`."""
    equal = (Requirement(key, SelectorOperator.EQUALS, (value,)) for key, value in body.match_labels.items())
    return LabelSelector((*equal, *_requirements(body.match_expressions)))


def selector_keys(pod_constraints: PodConstraints) -> frozenset[str]:
    """The label keys that affinity, anti-affinity and spread selectors use."""
    selectors = [rule.selector for rule in (*pod_constraints.affinity, *pod_constraints.anti_affinity)]
    selectors += [rule.selector for rule in pod_constraints.spread]
    return frozenset(each.key for selector in selectors for each in selector.requirements)


IDENTITY_LABELS: Final = frozenset(
    (
        "training.kubeflow.org/replica-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-index",
    )
)
"""Labels that differ between the members of a set. They are part of a shape only if a selector uses them."""

PINNING_HINT: Final = f"annotate the job with {COMMIT_ANNOTATION}: {COMMIT_PIN}"
"""The remedy for features that only kube-scheduler has."""
_SORTED_IDENTITY_LABELS: Final = tuple(sorted(IDENTITY_LABELS))
TERMINAL_PHASES: Final = ("Succeeded", "Failed")
# To kube-scheduler and kubelets only this means all addresses; `::` is an address like any other.
_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 (compared, not bound)


def shape_of(pod: Pod, selected_labels: Collection[str] = ()) -> PodShape:
    """The shape of a pod.

    `selected_labels`: labels that selectors of other pods use; they are kept even if they identify one pod. A
    constraint that cannot be parsed becomes the shape's `unsupported` field. Raises `QuantityError`.
    """
    unsupported = _unsupported_field(pod)
    node_constraints, pod_constraints = NO_NODE_CONSTRAINTS, NO_POD_CONSTRAINTS
    try:
        node_constraints, pod_constraints = node_constraints_of(pod), pod_constraints_of(pod)
    except SelectorError as error:
        unsupported = unsupported or f"spec.affinity: {error}"
    selected_labels = {*selected_labels, *selector_keys(pod_constraints)}
    ephemeral = _ephemeral_claims(pod)
    return PodShape(
        requests=pod_requests(pod),
        node_constraints=node_constraints,
        host_ports=_host_ports(pod),
        namespace=pod.metadata.namespace,
        labels=tuple(
            sorted(
                pair
                for pair in pod.metadata.labels.items()
                if pair[0] not in IDENTITY_LABELS or pair[0] in selected_labels
            )
        ),
        pod_constraints=pod_constraints,
        claims=_claim_names(pod, ephemeral),
        ephemeral_claims=ephemeral,
        uid=pod.metadata.uid if ephemeral else "",
        unsupported=unsupported,
        pinned=is_gated(pod),
    )


def bound_pod_of(pod: Pod, shape: PodShape | None = None) -> BoundPod | None:
    """The pod as a user of node resources; None if it is neither bound nor nominated, or has ended.

    `shape`: the result of `shape_of`, if it is at hand.
    """
    node = pod.spec.node_name or pod.status.nominated_node_name
    if not node or pod.status.phase in TERMINAL_PHASES:
        return None
    shape = shape_of(pod) if shape is None else shape
    # Interned: fifty thousand pods share a few names.
    return BoundPod(
        uid=pod.metadata.uid,
        key=Key(intern(pod.metadata.namespace), pod.metadata.name),
        node=intern(node),
        shape=shape,
        priority=pod.spec.priority,
        terminating=pod.metadata.deletion_timestamp is not None,
        nominated=not pod.spec.node_name,
        identity_labels=identity_labels_of(pod.metadata.labels, shape),
    )


def identity_labels_of(labels: Mapping[str, str], shape: PodShape) -> tuple[tuple[str, str], ...]:
    """The identity labels that the shape of the pod leaves out."""
    if IDENTITY_LABELS.isdisjoint(labels):
        return ()
    return tuple(
        (key, labels[key])
        for key in _SORTED_IDENTITY_LABELS
        if key in labels and (key, labels[key]) not in shape.labels
    )


def is_gated(pod: Pod) -> bool:
    """Whether the pod carries our gate: we choose its node, and kube-scheduler binds it."""
    return any(gate.name == GANG_GATE for gate in pod.spec.scheduling_gates)


def _unsupported_field(pod: Pod) -> str:
    claims = pod.spec.resource_claims
    if not claims or is_gated(pod):
        return ""
    return f"spec.resourceClaims ({claims[0].name}): only kube-scheduler gives out devices; {PINNING_HINT}"


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Host ports of containers and sidecars."""
    running = (*pod.spec.containers, *(each for each in pod.spec.init_containers if each.restart_policy == "Always"))
    host_ports = {
        HostPort(port.host_port, port.protocol or "TCP", "" if port.host_ip == _ALL_ADDRESSES else port.host_ip)
        for container in running
        for port in container.ports
        if port.host_port
    }
    return tuple(sorted(host_ports, key=lambda each: (each.port, each.protocol, each.ip)))


def _claim_names(pod: Pod, ephemeral: tuple[str, ...]) -> tuple[str, ...]:
    named = (each.persistent_volume_claim for each in pod.spec.volumes)
    return tuple(sorted({*ephemeral, *(each.claim_name for each in named if each is not None)}))


def _ephemeral_claims(pod: Pod) -> tuple[str, ...]:
    """Claims that a controller creates for the ephemeral volumes of this pod."""
    volumes = (each for each in pod.spec.volumes if each.persistent_volume_claim is None)
    return tuple(sorted({f"{pod.metadata.name}-{each.name}" for each in volumes}))


MAX_CACHED_SHAPES: Final = 50_000
"""When this many shapes are cached, the cache is cleared."""


class ShapeCache:
    """`shape_of` with a cache; the results are the same."""

    def __init__(self, max_size: int = MAX_CACHED_SHAPES) -> None:
        self._by_encoding: dict[bytes, PodShape] = {}
        # A pod that starts has another encoding than before, and the same shape.
        self._interned: dict[PodShape, PodShape] = {}
        self._max_size = max_size
        self._encoder = msgspec.msgpack.Encoder()

    def shape_for(self, pod: Pod, selected_labels: Collection[str] = ()) -> PodShape:
        """As `shape_of`."""
        if any(each.ephemeral for each in pod.spec.volumes):
            # Its claims are named after the pod, so the shape is not shared.
            return shape_of(pod, selected_labels)
        encoding = self._encoding(pod, selected_labels)
        cached = self._by_encoding.get(encoding)
        if cached is None:
            if len(self._by_encoding) >= self._max_size:
                self._by_encoding.clear()
                self._interned.clear()
            shape = shape_of(pod, selected_labels)
            cached = self._by_encoding[encoding] = self._interned.setdefault(shape, shape)
        return cached

    def _encoding(self, pod: Pod, selected_labels: Collection[str]) -> bytes:
        """All that `shape_of` reads, as bytes: much cheaper to compute than a shape."""
        spec, status, labels = pod.spec, pod.status, pod.metadata.labels
        # Of the selected labels only identity labels make a difference.
        kept_labels = IDENTITY_LABELS.intersection(selected_labels)
        if spec.affinity is None and not spec.topology_spread_constraints:
            labels = {key: value for key, value in labels.items() if key not in IDENTITY_LABELS or key in kept_labels}
        return self._encoder.encode(
            (
                pod.metadata.namespace,
                labels,
                sorted(kept_labels),
                is_gated(pod),
                spec.containers,
                spec.init_containers,
                spec.resources,
                spec.overhead,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.volumes,
                spec.resource_claims,
                status.container_statuses,
                status.init_container_statuses,
                [each.reason for each in status.conditions if each.type == POD_RESIZE_PENDING],
            )
        )
