"""The nodes of a cluster as vectors: who they are, not how full. Immutable; nodes are numbered in order of name."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline.api.core import Taint
from gangline.api.selectors import Requirement
from gangline.scheduler.pods.shape import NodeTerm, Toleration, Where
from gangline.scheduler.snapshot.node_info import CORDONED, HARD, NOT_READY, SOFT, Site, tolerates
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.reasons import Reason

H = TypeVar("H", bound=Hashable)
Mask: TypeAlias = NDArray[np.bool_]
Codes: TypeAlias = NDArray[np.int32]
Whys: TypeAlias = NDArray[np.int16]
"""For every node a `Reason`, 0 where there is none."""
MOST: Final = 4096
"""For how many kinds of pods the answers are kept; then all are forgotten."""


class Column(NamedTuple):
    """The value of one label on every node: a number per node (-1: none), and the text of each number."""

    codes: Codes
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    def having(self, value: str) -> Mask:
        """Nodes of which the label has this value."""
        found: Mask = self.codes == (self.values.index(value) if value in self.values else -2)
        return found


class View(NamedTuple):
    """The nodes as one kind of pod sees them."""

    whys: Whys
    # Where nothing speaks against it.
    mask: Mask
    # Weights of what it prefers, less one for every soft taint. None: all alike.
    liking: Vector | None


class Layout:
    """All nodes at one moment. Answers are kept, as the same few kinds of pods ask again and again."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.names: Sequence[str] = tuple(sorted(sites))
        self.number: Mapping[str, int] = {name: number for number, name in enumerate(self.names)}
        self._sites = [sites[name] for name in self.names]
        self._ready = self._each(lambda site: site.ready)
        self._open = self._each(lambda site: not site.cordoned)
        self.usable: Mask = self._ready & self._open
        self._taints = _coded([site.taints for site in self._sites])
        self._columns: dict[str, Column] = {}
        self._views: dict[Where, View] = {}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, key: str) -> Column:
        """The values of a label over all nodes."""
        found = self._columns.get(key)
        if found is None:
            codes, values = _coded([site.labels.get(key) for site in self._sites])
            found = self._columns[key] = _in_order(codes, values)
        return found

    def view(self, where: Where) -> View:
        """What a pod that wants this makes of every node."""
        found = self._views.get(where)
        if found is None:
            if len(self._views) >= MOST:
                self._views.clear()
            whys = self._whys(where)
            found = self._views[where] = View(whys, whys == 0, self._liking(where))
        return found

    def matching(self, where: Where) -> Mask:
        """Nodes that its selector and affinity name, whatever else speaks against them."""
        fits = self._all(value=True)
        for key, value in where.selector:
            fits &= self.column(key).having(value)
        if where.required is not None:
            fits &= self.any_of(where.required)
        return fits

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Nodes of which every hard taint is tolerated."""
        return self._by_taints(
            lambda taints: all(tolerates(tolerations, each) for each in taints if each.effect in HARD)
        ).astype(np.bool_)

    def any_of(self, terms: Iterable[NodeTerm]) -> Mask:
        """Nodes of which one of the terms holds."""
        found = self._all(value=False)
        for term in terms:
            found |= self._term(term)
        return found

    def _whys(self, where: Where) -> Whys:
        whys = np.zeros(len(self), dtype=np.int16)
        if not tolerates(where.tolerations, NOT_READY):
            mark(whys, ~self._ready, Reason.NOT_READY)
        if not tolerates(where.tolerations, CORDONED):
            mark(whys, ~self._open, Reason.CORDONED)
        mark(whys, ~self.tolerated(where.tolerations), Reason.TAINTED)
        mark(whys, ~self.matching(where), Reason.SELECTOR)
        return whys

    def _liking(self, where: Where) -> Vector | None:
        score = -self._by_taints(
            lambda taints: sum(
                each.effect == SOFT and not tolerates(where.tolerations, each) for each in taints
            )
        )
        for weight, term in where.preferred:
            score += weight * self._term(term)
        return score if score.any() else None

    def _term(self, term: NodeTerm) -> Mask:
        fits = self._all(value=bool(term.labels or term.name))
        for each in term.labels:
            fits &= _holds(each, self.column(each.key))
        for each in term.name:
            names = Column(np.arange(len(self), dtype=np.int32), tuple(self.names))
            fits &= _holds(each, names) if each.key == "metadata.name" else False
        return fits

    def _by_taints(self, judge: Callable[[tuple[Taint, ...]], int]) -> Vector:
        """A number for every node, worked out once for every combination of taints."""
        codes, distinct = self._taints
        return np.array([judge(taints) for taints in distinct], dtype=np.int64)[codes]

    def _each(self, judge: Callable[[Site], bool]) -> Mask:
        return np.fromiter(map(judge, self._sites), dtype=np.bool_, count=len(self._sites))

    def _all(self, *, value: bool) -> Mask:
        return np.full(len(self), value, dtype=np.bool_)


def mark(whys: Whys, bad: Mask, reason: int) -> None:
    """Give the reason to nodes that are bad and have none yet."""
    whys[bad & (whys == 0)] = reason


def _holds(requirement: Requirement, column: Column) -> Mask:
    # Once per distinct value, with the answer for nodes without the label last, where -1 finds it.
    table = [requirement.matches({requirement.key: value}) for value in column.values]
    table.append(requirement.matches({}))
    return np.array(table, dtype=np.bool_)[column.codes]


def _coded(values: Sequence[H]) -> tuple[Codes, tuple[H, ...]]:
    """A number for every value, equal ones alike, and the values by number."""
    numbers: dict[H, int] = {}
    codes = (numbers.setdefault(value, len(numbers)) for value in values)
    return np.fromiter(codes, dtype=np.int32, count=len(values)), tuple(numbers)


def _in_order(codes: Codes, values: tuple[str | None, ...]) -> Column:
    """Numbers in order of value, and -1 for nodes that have none."""
    texts = sorted(value for value in values if value is not None)
    place = {value: number for number, value in enumerate(texts)}
    table = np.array([-1 if value is None else place[value] for value in values], dtype=np.int32)
    return Column(table[codes], tuple(texts))
