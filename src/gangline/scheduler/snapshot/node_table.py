"""The nodes of a cluster as vectors, without their usage. Immutable; nodes are numbered in the order of their names."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline.api.core import Taint
from gangline.api.selectors import Requirement
from gangline.scheduler.snapshot.node_info import (
    HARD_EFFECTS,
    NOT_READY_TAINT,
    SOFT_EFFECT,
    UNSCHEDULABLE_TAINT,
    NodeInfo,
    tolerates,
)
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.reasons import FilterReason
from gangline.scheduler.types.shape import NodeConstraints, NodeTerm, PodToleration

H = TypeVar("H", bound=Hashable)
Mask: TypeAlias = NDArray[np.bool_]
Codes: TypeAlias = NDArray[np.int32]
ReasonCodes: TypeAlias = NDArray[np.int16]
"""A `FilterReason` for every node; 0 where there is none."""
MAX_CACHED_FILTERS: Final = 4096
"""When results for this many node constraints are cached, the cache is cleared."""


class LabelColumn(NamedTuple):
    """The value of one label on every node: a code per node (-1: no label), and the text of each code."""

    codes: Codes
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    def mask_of(self, value: str) -> Mask:
        """Nodes whose label has this value."""
        mask: Mask = self.codes == (self.values.index(value) if value in self.values else -2)
        return mask


class NodeFilterResult(NamedTuple):
    """All nodes, judged by one set of node constraints."""

    reasons: ReasonCodes
    # Nodes without a reason against them.
    mask: Mask
    # Weights of preferred terms that match, less one for every untolerated soft taint. None: all nodes are equal.
    scores: Vector | None


class NodeTable:
    """All nodes at one moment. Filter results are cached: there are few distinct node constraints."""

    def __init__(self, infos: Mapping[str, NodeInfo]) -> None:
        self.names: Sequence[str] = tuple(sorted(infos))
        self.index_of: Mapping[str, int] = {name: number for number, name in enumerate(self.names)}
        self._infos = [infos[name] for name in self.names]
        self._ready = self._mask_by(lambda info: info.ready)
        self._schedulable = self._mask_by(lambda info: not info.cordoned)
        self.usable: Mask = self._ready & self._schedulable
        self._taints = _codes_and_values([info.taints for info in self._infos])
        self._label_columns: dict[str, LabelColumn] = {}
        self._filter_results: dict[NodeConstraints, NodeFilterResult] = {}

    def __len__(self) -> int:
        return len(self.names)

    def label_column(self, key: str) -> LabelColumn:
        """The values of a label on all nodes."""
        column = self._label_columns.get(key)
        if column is None:
            codes, values = _codes_and_values([info.labels.get(key) for info in self._infos])
            column = self._label_columns[key] = _sorted_column(codes, values)
        return column

    def filter_result(self, constraints: NodeConstraints) -> NodeFilterResult:
        """Reasons, mask and scores of all nodes for these constraints."""
        result = self._filter_results.get(constraints)
        if result is None:
            if len(self._filter_results) >= MAX_CACHED_FILTERS:
                self._filter_results.clear()
            reasons = self._reasons(constraints)
            result = self._filter_results[constraints] = NodeFilterResult(
                reasons, reasons == 0, self._preference_scores(constraints)
            )
        return result

    def affinity_mask(self, constraints: NodeConstraints) -> Mask:
        """Nodes that match the node selector and the required node affinity."""
        fits = self._constant_mask(value=True)
        for key, value in constraints.selector:
            fits &= self.label_column(key).mask_of(value)
        if constraints.required is not None:
            fits &= self.any_term_mask(constraints.required)
        return fits

    def tolerated_mask(self, tolerations: tuple[PodToleration, ...]) -> Mask:
        """Nodes whose hard taints are all tolerated."""
        return self._by_taints(
            lambda taints: all(tolerates(tolerations, each) for each in taints if each.effect in HARD_EFFECTS)
        ).astype(np.bool_)

    def any_term_mask(self, terms: Iterable[NodeTerm]) -> Mask:
        """Nodes that match one of the terms."""
        mask = self._constant_mask(value=False)
        for term in terms:
            mask |= self._term_mask(term)
        return mask

    def _reasons(self, constraints: NodeConstraints) -> ReasonCodes:
        reasons = np.zeros(len(self), dtype=np.int16)
        if not tolerates(constraints.tolerations, NOT_READY_TAINT):
            mark_reason(reasons, ~self._ready, FilterReason.NOT_READY)
        if not tolerates(constraints.tolerations, UNSCHEDULABLE_TAINT):
            mark_reason(reasons, ~self._schedulable, FilterReason.CORDONED)
        mark_reason(reasons, ~self.tolerated_mask(constraints.tolerations), FilterReason.TAINTED)
        mark_reason(reasons, ~self.affinity_mask(constraints), FilterReason.SELECTOR)
        return reasons

    def _preference_scores(self, constraints: NodeConstraints) -> Vector | None:
        score = -self._by_taints(
            lambda taints: sum(
                each.effect == SOFT_EFFECT and not tolerates(constraints.tolerations, each) for each in taints
            )
        )
        for weight, term in constraints.preferred:
            score += weight * self._term_mask(term)
        return score if score.any() else None

    def _term_mask(self, term: NodeTerm) -> Mask:
        fits = self._constant_mask(value=bool(term.label_requirements or term.name_requirements))
        for requirement in term.label_requirements:
            fits &= _requirement_mask(requirement, self.label_column(requirement.key))
        for requirement in term.name_requirements:
            names = LabelColumn(np.arange(len(self), dtype=np.int32), tuple(self.names))
            fits &= _requirement_mask(requirement, names) if requirement.key == "metadata.name" else False
        return fits

    def _by_taints(self, value_of: Callable[[tuple[Taint, ...]], int]) -> Vector:
        """A number for every node, computed once for each combination of taints."""
        codes, distinct = self._taints
        return np.array([value_of(taints) for taints in distinct], dtype=np.int64)[codes]

    def _mask_by(self, value_of: Callable[[NodeInfo], bool]) -> Mask:
        return np.fromiter(map(value_of, self._infos), dtype=np.bool_, count=len(self._infos))

    def _constant_mask(self, *, value: bool) -> Mask:
        return np.full(len(self), value, dtype=np.bool_)


def mark_reason(reasons: ReasonCodes, bad: Mask, reason: int) -> None:
    """Set the reason on the nodes in `bad` that have none yet."""
    reasons[bad & (reasons == 0)] = reason


def _requirement_mask(requirement: Requirement, column: LabelColumn) -> Mask:
    # Matched once per distinct value. The result for nodes without the label is last, where code -1 finds it.
    table = [requirement.matches({requirement.key: value}) for value in column.values]
    table.append(requirement.matches({}))
    return np.array(table, dtype=np.bool_)[column.codes]


def _codes_and_values(values: Sequence[H]) -> tuple[Codes, tuple[H, ...]]:
    """A code for every value, equal values alike, and the distinct values by code."""
    numbers: dict[H, int] = {}
    codes = (numbers.setdefault(value, len(numbers)) for value in values)
    return np.fromiter(codes, dtype=np.int32, count=len(values)), tuple(numbers)


def _sorted_column(codes: Codes, values: tuple[str | None, ...]) -> LabelColumn:
    """Codes in the order of the values, and -1 for nodes without a value."""
    texts = sorted(value for value in values if value is not None)
    code_by_value = {value: number for number, value in enumerate(texts)}
    table = np.array([-1 if value is None else code_by_value[value] for value in values], dtype=np.int32)
    return LabelColumn(table[codes], tuple(texts))
