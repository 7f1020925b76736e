"""Where a gang may be put at all: everywhere, or within one domain of a topology, the tightest that holds it."""

from collections.abc import Iterator

import msgspec
import numpy as np

from gangline.scheduler.filters.affinity import waits_for_first
from gangline.scheduler.filters.fit import Fit
from gangline.scheduler.snapshot.node_table import Column, Mask
from gangline.scheduler.snapshot.snapshot import Board
from gangline.scheduler.types.cycle import Ask, Vector
from gangline.scheduler.types.reasons import Reason

MOST_DOMAINS = 64
"""How many domains are tried in earnest; the others cannot hold the gang, or hold it less well."""


class Ground(msgspec.Struct, frozen=True):
    """Nodes that come into question. No mask: all of them. `first`: which ones to fill first, lower is better."""

    mask: Mask | None = None
    first: Vector | None = None
    key: str = ""
    name: str = ""
    # The needs that it is for. None: all.
    needs: frozenset[int] | None = None
    # What keeps them from other nodes.
    reason: Reason = Reason.DOMAIN

    def covers(self, need: int) -> bool:
        return self.needs is None or need in self.needs

    def gap(self, least: int, fitting: int) -> str:
        """What is missing in this, the best domain."""
        short = self.key.rpartition("/")[2]
        return (
            f"no {short} holds all {least}, the best is {self.name} with room for {fitting}"
            f" ({least - fitting} missing)"
        )


EVERYWHERE = Ground()


def grounds(board: Board, ask: Ask) -> Iterator[Ground]:
    """What to try, the best first; there is always one."""
    topology = ask.topology if ask.topology is not None and ask.topology.key else None
    if topology is not None and topology.required:
        yield from _within(board, ask, topology.key, required=True)
        return
    key, needs = joined(board, ask)
    if key:
        for ground in _within(board, ask, key, required=True, needs=needs):
            yield msgspec.structs.replace(ground, reason=Reason.AFFINITY)
        # Those who want to be with others need not all be with the same ones.
        yield EVERYWHERE
    elif topology is not None:
        yield from _within(board, ask, topology.key, required=False)
    else:
        yield EVERYWHERE


def _within(
    board: Board, ask: Ask, key: str, *, required: bool, needs: frozenset[int] | None = None
) -> Iterator[Ground]:
    column = board.layout.column(key)
    domains = _Domains(board, ask, column, needs)
    found = domains.promising()
    if required and not found:
        found = domains.best()
    for code in found:
        yield Ground(mask=column.codes == code, key=key, name=column.values[code], needs=needs)
    if not required:
        yield Ground(first=domains.ranks())
    elif not found:
        yield Ground(mask=np.zeros(len(board.layout), dtype=np.bool_), needs=needs)


def joined(board: Board, ask: Ask) -> tuple[str, frozenset[int]]:
    """A key of which members must share a domain because they want to be with each other, and which members."""
    for need in ask.needs:
        if need.count and waits_for_first(board, need.shape):
            # The one with most domains: those of the others are wider, as racks are within zones.
            terms = need.shape.peers.affinity
            term = max(terms, key=lambda term: (board.layout.column(term.key).size, term.key))
            kin = frozenset(
                number
                for number, other in enumerate(ask.needs)
                if term in other.shape.peers.affinity or board.population.means(term, other.shape)
            )
            if any(board.population.means(term, ask.needs[number].shape) for number in kin):
                return term.key, kin
    return "", frozenset()


class _Domains:
    """How much of a gang every domain takes, need by need and without regard to the others."""

    def __init__(self, board: Board, ask: Ask, column: Column, needs: frozenset[int] | None) -> None:
        self._ask, self._column = ask, column
        self._fits = np.zeros((len(ask.needs), column.size), dtype=np.int64)
        self._spare = np.zeros(column.size, dtype=np.int64)
        labelled = column.codes >= 0
        codes = column.codes[labelled]
        for number, need in enumerate(ask.needs):
            if needs is not None and number not in needs:
                self._fits[number] = need.count
            elif need.count:
                # More than anybody asks for, and far from where floating point loses ones.
                # Whom it wants to be with may come with it.
                unmet = not waits_for_first(board, need.shape)
                each = np.minimum(Fit(board, need.shape).room(unmet=unmet), 1 << 20)[labelled]
                sums = np.bincount(codes, weights=each, minlength=column.size).astype(np.int64)
                self._spare += sums
                self._fits[number] = np.minimum(sums, need.count)
        self._placed = self._fits.sum(axis=0)
        self._near = _near(board, ask, column)

    def promising(self) -> list[int]:
        """Domains that may hold it: those that take most of it first, and of these the tightest."""
        enough = (self._placed >= self._ask.least) & (self._placed > 0) & self._near
        for role, least in self._ask.roles.items():
            rows = [number for number, need in enumerate(self._ask.needs) if need.role == role]
            enough &= self._fits[rows].sum(axis=0) >= least
        return self._sorted(np.flatnonzero(enough))[:MOST_DOMAINS]

    def best(self) -> list[int]:
        """The domain that comes closest, for the message."""
        return self._sorted(np.flatnonzero(self._near))[:1]

    def ranks(self) -> Vector:
        """For every node how early its domain is filled when several are needed: near ones, then the roomiest."""
        size = self._column.size
        order = np.lexsort((np.arange(size), -self._spare, -self._placed, ~self._near))
        ranks = np.empty(size + 1, dtype=np.int64)
        ranks[order] = np.arange(size)
        ranks[size] = size
        return ranks[self._column.codes]

    def _sorted(self, domains: Vector) -> list[int]:
        order = np.lexsort((domains, self._spare[domains], -self._placed[domains]))
        return [int(code) for code in domains[order]]


def _near(board: Board, ask: Ask, column: Column) -> Mask:
    """Domains in which members are already; all of them if there are none."""
    numbers = [number for name in ask.near if (number := board.layout.number.get(name)) is not None]
    found = np.zeros(column.size, dtype=np.bool_)
    codes = column.codes[numbers] if numbers else np.empty(0, dtype=np.int32)
    found[codes[codes >= 0]] = True
    return found if found.any() else ~found
