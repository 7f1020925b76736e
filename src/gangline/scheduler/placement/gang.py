"""All of a gang or none of it: places on one board."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations

import msgspec
import numpy as np

from gangline.scheduler.filters.affinity import waits_for_others
from gangline.scheduler.filters.fit import Fit, histogram
from gangline.scheduler.filters.scoring import NOWHERE
from gangline.scheduler.filters.unsupported import refusal
from gangline.scheduler.placement.topology import EVERYWHERE, MOST_DOMAINS, Ground, grounds, joined
from gangline.scheduler.snapshot.snapshot import Board
from gangline.scheduler.types.cycle import Ask, Placement, Shortage, Vector
from gangline.scheduler.types.reasons import told

MOST_ORDERS = 6
"""In how many orders the needs of a gang are tried before it is said not to fit."""


class Filled(msgspec.Struct, frozen=True):
    """What was found for every need, and whether that is enough."""

    nodes: tuple[Vector, ...]
    ground: Ground
    enough: bool

    @property
    def placed(self) -> int:
        return sum(map(len, self.nodes))

    def of_role(self, ask: Ask, role: str) -> int:
        """How many members of a role found a place."""
        return sum(len(nodes) for need, nodes in zip(ask.needs, self.nodes, strict=True) if need.role == role)


def place(board: Board, ask: Ask) -> Placement | Shortage:
    """Places for all that must be placed at once and for as many more as fit, or why not."""
    if problem := refusal(board, ask):
        return problem
    best = _best(board, ask)
    if best.enough and (best.placed or not sum(need.count for need in ask.needs)):
        return Placement(best.nodes)
    return _shortage(board, ask, best)


def best_effort(board: Board, ask: Ask) -> Placement:
    """As many places as there are, enough or not."""
    if refusal(board, ask):
        return Placement(tuple(NOWHERE for _ in ask.needs))
    return Placement(_best(board, ask).nodes)


def _best(board: Board, ask: Ask) -> Filled:
    """The first that is enough; else the one that comes closest."""
    best: Filled | None = None
    for ground in grounds(board, ask):
        found = _fill(board, ask, ground)
        if found.enough:
            return found
        if best is None or found.placed > best.placed:
            best = found
    assert best is not None
    gathered = _gathered(board, ask)
    return gathered if gathered is not None and gathered.enough else best


def _gathered(board: Board, ask: Ask) -> Filled | None:
    """Followers with several of those whom they want to be with: one of these and some of them, domain by domain.

    None: nobody follows others of this gang.
    """
    if ask.topology is not None and ask.topology.required:
        return None
    key, kin = joined(board, ask)
    followers = [number for number in sorted(kin) if waits_for_others(board, ask.needs[number].shape)]
    leaders = [number for number in sorted(kin) if number not in followers]
    if not followers or not leaders:
        return None
    found = [NOWHERE for _ in ask.needs]
    for ground in _roomiest(board, ask, key, followers):
        trial, nodes = board.copy(), found.copy()
        _more(trial, ask, leaders, ground, nodes, most=1)
        if _more(trial, ask, followers, ground, nodes):
            board, found = trial, nodes
        if all(len(found[number]) == ask.needs[number].count for number in followers):
            break
    board = board.copy()
    _more(board, ask, range(len(ask.needs)), EVERYWHERE, found)
    return _judged(ask, EVERYWHERE, tuple(found))


def _roomiest(board: Board, ask: Ask, key: str, followers: Sequence[int]) -> list[Ground]:
    """Domains with most room for these, the leaders they want to be with aside."""
    column = board.layout.column(key)
    room = np.zeros(column.size, dtype=np.int64)
    there = column.codes >= 0
    for number in followers:
        each = np.minimum(Fit(board, ask.needs[number].shape).room(unmet=False), ask.needs[number].count)
        room += np.bincount(column.codes[there], weights=each[there], minlength=column.size).astype(np.int64)
    order = np.lexsort((np.arange(column.size), -room))[:MOST_DOMAINS]
    return [
        Ground(mask=column.codes == code, name=column.values[code]) for code in order.tolist() if room[code]
    ]


def _more(
    board: Board, ask: Ask, numbers: Iterable[int], ground: Ground, found: list[Vector], most: int = 1 << 30
) -> int:
    """Put what is missing of these needs, so many at most. How many it was."""
    placed = 0
    for number in numbers:
        missing = min(ask.needs[number].count - len(found[number]), most - placed)
        nodes = _put(board, ask, number, missing, ground)
        found[number] = np.concatenate((found[number], nodes))
        placed += len(nodes)
    return placed


def _fill(board: Board, ask: Ask, ground: Ground) -> Filled:
    if len(ask.needs) == 1:
        return _judged(ask, ground, (_fit(board, ask, 0, ground).spots(ask.needs[0].count, ground.first),))
    best: Filled | None = None
    for order, modest in _orders(board, ask, ground):
        found = _judged(ask, ground, _in_order(board, ask, ground, order, modest=modest))
        if found.enough:
            return found
        if best is None or found.placed > best.placed:
            best = found
    assert best is not None
    return best


def _orders(board: Board, ask: Ask, ground: Ground) -> Iterator[tuple[Sequence[int], bool]]:
    """Needs in the orders worth trying, the scarcest first; greedily, then only what must be at first."""
    scarcest = sorted(range(len(ask.needs)), key=lambda number: _plenty(board, ask, number, ground))
    # Whoever wants to be with others of them comes after those.
    scarcest.sort(key=lambda number: waits_for_others(board, ask.needs[number].shape))
    yield scarcest, False
    # Where every member is of a shape of its own, orders are many and all alike.
    for order in islice(permutations(scarcest), MOST_ORDERS if len(scarcest) <= MOST_ORDERS else 1):
        yield order, True


def _plenty(
    board: Board, ask: Ask, number: int, ground: Ground
) -> tuple[float, str, tuple[tuple[str, int], ...]]:
    need = ask.needs[number]
    total = float(_fit(board, ask, number, ground).room().sum())
    return total / max(need.count, 1), need.role, need.shape.requests


def _fit(board: Board, ask: Ask, number: int, ground: Ground) -> Fit:
    mask = ground.mask if ground.covers(number) else None
    return Fit(board, ask.needs[number].shape, mask, ground.key if mask is not None else "")


def _in_order(
    board: Board, ask: Ask, ground: Ground, order: Sequence[int], *, modest: bool
) -> tuple[Vector, ...]:
    """Fill one need after the other. Modestly: first the least of every role, then the rest, the plentiful first."""
    board = board.copy()
    found = [NOWHERE for _ in ask.needs]
    owed = dict(ask.roles)
    if modest:
        for number in order:
            need = ask.needs[number]
            count = min(need.count, owed.get(need.role, 0))
            found[number] = _put(board, ask, number, count, ground)
            owed[need.role] = owed.get(need.role, 0) - len(found[number])
        order = order[::-1]
    for number in order:
        need = ask.needs[number]
        more = _put(board, ask, number, need.count - len(found[number]), ground)
        found[number] = np.concatenate((found[number], more))
    return tuple(found)


def _put(board: Board, ask: Ask, number: int, count: int, ground: Ground) -> Vector:
    if count <= 0:
        return NOWHERE
    nodes = _fit(board, ask, number, ground).spots(count, ground.first)
    board.put(ask.needs[number].shape, nodes)
    return nodes


def _judged(ask: Ask, ground: Ground, nodes: tuple[Vector, ...]) -> Filled:
    found = Filled(nodes, ground, enough=False)
    enough = found.placed >= ask.least and all(
        found.of_role(ask, role) >= least for role, least in ask.roles.items()
    )
    return msgspec.structs.replace(found, enough=enough)


def _shortage(board: Board, ask: Ask, best: Filled) -> Shortage:
    """Why one more member of the need that lacks most finds no place once the others have theirs."""
    number = _worst(ask, best)
    worst = ask.needs[number]
    full = board.copy()
    for need, nodes in zip(ask.needs, best.nodes, strict=True):
        full.put(need.shape, nodes)
    mask = best.ground.mask if best.ground.covers(number) else None
    reasons = histogram(full, worst.shape, mask, best.ground.reason)
    fitting = min(best.placed, ask.least)
    said = ""
    if best.ground.name:
        said = best.ground.gap(ask.least, fitting) + ": "
    elif len({need.role for need in ask.needs}) > 1:
        there, wanted = best.of_role(ask, worst.role), _wanted(ask, worst.role)
        said = f"{there} of {wanted} of role {worst.role} fit: "
    elif fitting:
        said = f"{fitting} of {ask.least} fit: "
    return Shortage(said + told(reasons, len(board.layout)), reasons, fitting)


def _worst(ask: Ask, best: Filled) -> int:
    """The need that lacks most; of a role that lacks some of its least, if there is one."""
    lacks = [need.count - len(nodes) for need, nodes in zip(ask.needs, best.nodes, strict=True)]
    short = [best.of_role(ask, need.role) < ask.roles.get(need.role, 0) for need in ask.needs]
    return max(range(len(ask.needs)), key=lambda number: (lacks[number] > 0 and short[number], lacks[number]))


def _wanted(ask: Ask, role: str) -> int:
    return ask.roles.get(role) or sum(need.count for need in ask.needs if need.role == role)
