"""An index of pods by labels, anti-affinity, host ports and claims. Updates are cheap, as every pod causes one."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

from gangline.api.selectors import LabelSelector, SelectorOperator
from gangline.scheduler.pods.decode import IDENTITY_LABELS, selector_keys
from gangline.scheduler.types.cycle import BoundPod
from gangline.scheduler.types.shape import NO_POD_CONSTRAINTS, AffinityTerm, HostPort, PodShape

F = TypeVar("F", bound=Hashable)
E = TypeVar("E", bound=Hashable)
V = TypeVar("V")
LabelPair: TypeAlias = tuple[str, str]
LabelGroup: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels of pods that no selector distinguishes."""
_EQUALITY_OPERATORS: Final = (SelectorOperator.EQUALS, SelectorOperator.DOUBLE_EQUALS, SelectorOperator.IN)


class PodIndex:
    """Pods by the properties that filters look for."""

    def __init__(self, namespace_labels: Mapping[str, Mapping[str, str]]) -> None:
        self._namespace_labels = namespace_labels
        self._by_labels: dict[LabelGroup, dict[str, BoundPod]] = {}
        self._groups_by_label: dict[LabelPair, dict[LabelGroup, None]] = {}
        # Pods with anti-affinity by term, and terms by a label that they require.
        self._by_anti_affinity: dict[AffinityTerm, dict[str, BoundPod]] = {}
        self._terms_by_label: dict[LabelPair | None, dict[AffinityTerm, None]] = {}
        self._with_host_ports: dict[str, BoundPod] = {}
        self._claim_users: dict[tuple[str, str], dict[str, BoundPod]] = {}
        # Label key -> number of pods with a selector that uses it.
        self._selected_labels: Counter[str] = Counter()

    @property
    def selected_labels(self) -> frozenset[str]:
        """Label keys that selectors of pods use."""
        return frozenset(self._selected_labels)

    @property
    def host_port_pods(self) -> Mapping[str, BoundPod]:
        """Pods that use host ports, by uid."""
        return self._with_host_ports

    @property
    def claim_users(self) -> Mapping[tuple[str, str], Mapping[str, BoundPod]]:
        """Namespace and name of a claim -> pods that use it, by uid."""
        return self._claim_users

    def users_of_claim(self, namespace: str, claim: str) -> Mapping[str, BoundPod]:
        """Pods that use a claim, by uid."""
        return self._claim_users.get((namespace, claim), {})

    def add(self, pod: BoundPod) -> None:
        shape, uid = pod.shape, pod.uid
        group = (shape.namespace, shape.labels)
        if group not in self._by_labels:
            self._by_labels[group] = {}
            for pair in shape.labels:
                self._groups_by_label.setdefault(pair, {})[group] = None
        self._by_labels[group][uid] = pod
        if shape.host_ports:
            self._with_host_ports[uid] = pod
        for claim in shape.claims:
            self._claim_users.setdefault((shape.namespace, claim), {})[uid] = pod
        for term in shape.pod_constraints.anti_affinity:
            self._by_anti_affinity.setdefault(term, {})[uid] = pod
            self._terms_by_label.setdefault(_required_label(term.selector), {})[term] = None
        if shape.pod_constraints != NO_POD_CONSTRAINTS:
            self._selected_labels.update(selector_keys(shape.pod_constraints))

    def remove(self, pod: BoundPod) -> None:
        shape, uid = pod.shape, pod.uid
        group = (shape.namespace, shape.labels)
        if _remove_entry(self._by_labels, group, uid):
            for pair in shape.labels:
                _remove_entry(self._groups_by_label, pair, group)
        self._with_host_ports.pop(uid, None)
        for claim in shape.claims:
            _remove_entry(self._claim_users, (shape.namespace, claim), uid)
        for term in shape.pod_constraints.anti_affinity:
            if _remove_entry(self._by_anti_affinity, term, uid):
                _remove_entry(self._terms_by_label, _required_label(term.selector), term)
        if shape.pod_constraints != NO_POD_CONSTRAINTS:
            self._selected_labels.subtract(selector_keys(shape.pod_constraints))
            self._selected_labels += Counter()

    def selects_namespace(self, term: AffinityTerm, namespace: str) -> bool:
        """Whether the term selects pods of this namespace."""
        if namespace in term.namespaces:
            return True
        selector = term.namespace_selector
        return selector is not None and selector.matches(self._namespace_labels.get(namespace, {}))

    def selects(self, term: AffinityTerm, shape: PodShape) -> bool:
        """Whether the term selects pods of this shape."""
        return self.selects_namespace(term, shape.namespace) and term.selector.matches(dict(shape.labels))

    def anti_affinity_against(self, shape: PodShape) -> Iterator[tuple[AffinityTerm, Iterable[BoundPod]]]:
        """Anti-affinity terms of indexed pods that select this shape, each with the pods that have it."""
        if self._by_anti_affinity:
            labels = dict(shape.labels)
            for pair in (None, *shape.labels):
                for term in self._terms_by_label.get(pair, ()):
                    if self.selects_namespace(term, shape.namespace) and term.selector.matches(labels):
                        yield term, self._by_anti_affinity[term].values()

    def matching(self, selector: LabelSelector, namespaces: Callable[[str], bool]) -> Iterator[BoundPod]:
        """Indexed pods that the selector matches, in namespaces for which `namespaces` is true."""
        per_pod = any(requirement.key in IDENTITY_LABELS for requirement in selector.requirements)
        pair = _required_label(selector)
        for group in self._by_labels if pair is None else self._groups_by_label.get(pair, ()):
            namespace, labels = group
            if not namespaces(namespace):
                continue
            pods = self._by_labels[group].values()
            if per_pod:
                yield from (pod for pod in pods if selector.matches(dict((*labels, *pod.identity_labels))))
            elif selector.matches(dict(labels)):
                yield from pods


def _required_label(selector: LabelSelector) -> LabelPair | None:
    """A label that every pod matched by the selector has in its shape; None if the selector requires none."""
    for requirement in selector.requirements:
        if (
            requirement.operator in _EQUALITY_OPERATORS
            and len(requirement.values) == 1
            and requirement.key not in IDENTITY_LABELS
        ):
            return requirement.key, requirement.values[0]
    return None


def ports_conflict(ours: HostPort, theirs: HostPort) -> bool:
    """Whether two pods cannot have these ports on one node: the same port, on the same address or on all addresses."""
    return (
        ours.port == theirs.port
        and ours.protocol == theirs.protocol
        and (not ours.ip or not theirs.ip or ours.ip == theirs.ip)
    )


def _remove_entry(index: dict[F, dict[E, V]], key: F, entry: E) -> bool:
    """Remove an entry of a key. Returns true if it was the last one, and the key was removed with it."""
    entries = index.get(key, {})
    entries.pop(entry, None)
    if entries or key not in index:
        return False
    del index[key]
    return True
