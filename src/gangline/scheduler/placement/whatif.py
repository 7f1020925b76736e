"""A what-if on one snapshot of a cluster: would it fit, what if it did, what if others left."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.scheduler.placement.gang import best_effort, place
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.snapshot.snapshot import Board
from gangline.scheduler.types.cycle import Ask, Placement, Resident, Shortage, Vector


class Trial:
    """Decides on one snapshot, and remembers what was decided."""

    def __init__(
        self,
        board: Board,
        residents: Mapping[str, Resident],
        nominated: Sequence[Resident] = (),
        leaving: Collection[str] = (),
    ) -> None:
        self._board, self._residents, self._nominated = board, residents, nominated
        self._held: list[tuple[Shape, Vector]] = []
        # The board without those for whose leaving somebody last waited: asked about again and again in one round.
        self._later: tuple[frozenset[str], Board] | None = None
        self.leaving: Collection[str] = leaving
        """Residents that are on their way out. Their room is used until they are gone."""

    @property
    def names(self) -> Sequence[str]:
        """Number of a node -> its name."""
        return self._board.layout.names

    def resident(self, uid: str) -> Resident | None:
        """Whoever has this uid, if it holds room."""
        return self._residents.get(uid)

    def place(self, ask: Ask) -> Placement | Shortage:
        """Places for at least `least` members and the least of every role, and as many more as fit; or why not.

        Changes nothing. The same snapshot and the same asks in the same order give the same places, always.
        """
        return place(self._seen_by(ask), ask)

    def place_after(self, ask: Ask, leaving: Collection[str]) -> Placement | Shortage:
        """The same, as if these residents had left."""
        return place(self._seen_by(ask, self._without(leaving)), ask)

    def _without(self, leaving: Collection[str]) -> Board:
        """A board of its own, without these. Of an equal frozen set it is made once."""
        if self._later is not None and isinstance(leaving, frozenset) and self._later[0] == leaving:
            return self._later[1].copy()
        board = self._board.copy()
        board.without(self._known(leaving))
        if isinstance(leaving, frozenset):
            self._later = leaving, board.copy()
        return board

    def take(self, ask: Ask, placement: Placement) -> None:
        """From now on these places are used, even if somebody must leave them first."""
        for need, nodes in zip(ask.needs, placement.nodes, strict=True):
            self._board.put(need.shape, nodes)
            if self._later is not None:
                self._later[1].put(need.shape, nodes)

    def hold(self, ask: Ask) -> None:
        """Keep as much of what it needs as there is for it, until `release`."""
        self._later = None
        found = best_effort(self._seen_by(ask), ask)
        for need, nodes in zip(ask.needs, found.nodes, strict=True):
            self._board.put(need.shape, nodes, promised=True)
            self._held.append((need.shape, nodes))

    def release(self) -> None:
        """Nothing is held any more."""
        self._later = None
        for shape, nodes in self._held:
            self._board.lift(shape, nodes)
        self._held.clear()

    def vacate(self, uids: Iterable[str]) -> None:
        """As if these residents had left, until `restore`. Unknown ones are ignored."""
        self._later = None
        self._board.without(self._known(uids))

    def restore(self, uids: Iterable[str]) -> None:
        """Undo `vacate`."""
        self._later = None
        self._board.again(self._known(uids))

    def total(self) -> Mapping[str, int]:
        """What all usable nodes offer together, by resource."""
        return self._sums(self._board.offer.amounts)

    def free(self) -> Mapping[str, int]:
        """What is left of that; a node that is over-full counts as full."""
        return self._sums(np.maximum(self._board.free, 0))

    def _sums(self, table: NDArray[np.int64]) -> Mapping[str, int]:
        usable = table @ self._board.layout.usable
        return {resource: int(usable[row]) for resource, row in sorted(self._board.rows.items())}

    def _known(self, uids: Iterable[str]) -> list[Resident]:
        return [found for uid in dict.fromkeys(uids) if (found := self._residents.get(uid)) is not None]

    def _seen_by(self, ask: Ask, board: Board | None = None) -> Board:
        """The board with the room of those gone that kube-scheduler has promised to pods that are not less important."""
        seen = self._board if board is None else board
        promised = [
            each for each in self._nominated if each.priority >= ask.priority and each.uid not in seen.gone
        ]
        if not promised:
            return seen
        seen = seen.copy() if board is None else seen
        for each in sorted(promised, key=lambda each: each.uid):
            number = seen.layout.number.get(each.node)
            if number is not None:
                seen.put(each.shape, np.array([number], dtype=np.int64), promised=True)
        return seen
