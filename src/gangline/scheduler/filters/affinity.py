"""Which rules between pods apply to a shape on a board, and how many pods they mean in every domain."""

from collections.abc import Callable, Iterable

import numpy as np

from gangline.api.selectors import LabelSelector
from gangline.scheduler.filters.rules import Apart, Counts, Even, Rule, Together
from gangline.scheduler.pods.shape import Shape, Term
from gangline.scheduler.snapshot.snapshot import Board
from gangline.scheduler.types.cycle import Resident, Vector


def rules_for(board: Board, shape: Shape) -> list[Rule]:
    """All that rules between pods say about where a pod of this shape may go, on this board."""
    found: list[Rule] = [*_apart(board, shape), *_repelled(board, shape)]
    if shape.peers.spread:
        found += _even(board, shape)
    if shape.peers.affinity:
        found.append(_together(board, shape))
    return found


def _apart(board: Board, shape: Shape) -> Iterable[Rule]:
    for term in shape.peers.anti:
        codes = board.layout.column(term.key).codes
        meant = _meant(board, term.selector, _namespaces(board, term), promised=True)
        itself = board.population.means(term, shape)
        yield Apart(codes, _per_domain(board, term.key, meant), moving=itself)


def _repelled(board: Board, shape: Shape) -> Iterable[Rule]:
    """Anti-affinity of those who are there already, against this shape."""
    holders: dict[Term, list[int]] = {}
    for term, residents in board.population.repelling(shape):
        holders[term] = _numbers(board, residents)
    for came in board.shy:
        for term in came.shape.peers.anti:
            if board.population.means(term, shape):
                holders.setdefault(term, []).extend(came.nodes.tolist())
    for term, numbers in holders.items():
        if numbers:
            codes = board.layout.column(term.key).codes
            yield Apart(codes, _per_domain(board, term.key, _tally(board, numbers)), moving=False)


def _together(board: Board, shape: Shape) -> Together:
    terms = shape.peers.affinity
    # A pod counts only if all terms mean it.
    every = _meant_by_all(board, terms)
    return Together(
        [term.key for term in terms],
        [board.layout.column(term.key).codes for term in terms],
        [_per_domain(board, term.key, every) for term in terms],
        itself=all(board.population.means(term, shape) for term in terms),
    )


def _even(board: Board, shape: Shape) -> Iterable[Rule]:
    keyed = np.ones(len(board.layout), dtype=np.bool_)
    for rule in shape.peers.spread:
        keyed &= board.layout.column(rule.key).codes >= 0
    for rule in shape.peers.spread:
        eligible = keyed
        if rule.honor_affinity:
            eligible = eligible & board.layout.matching(shape.where)
        if rule.honor_taints:
            eligible = eligible & board.layout.tolerated(shape.where.tolerations)
        # A selector that asks for nothing matches the pod itself, but kube-scheduler counts nobody by it.
        blank = not rule.selector
        meant = _meant(board, rule.selector, shape.namespace.__eq__, leaving=False)
        counts = _per_domain(board, rule.key, meant * (eligible & (not blank)))
        itself = rule.selector.matches(dict(shape.labels))
        codes = board.layout.column(rule.key).codes
        yield Even(rule, codes, counts, eligible, itself=itself, moving=itself and not blank)


def _namespaces(board: Board, term: Term) -> Callable[[str], bool]:
    return lambda namespace: board.population.meant(term, namespace)


def _meant_by_all(board: Board, terms: tuple[Term, ...]) -> Vector:
    together = LabelSelector(
        [each for term in terms for each in term.selector.requirements],
        # True without a requirement: it means nobody.
        never=any(term.selector and not term.selector.requirements for term in terms),
    )
    return _meant(
        board, together, lambda namespace: all(board.population.meant(term, namespace) for term in terms)
    )


def _meant(
    board: Board,
    selector: LabelSelector,
    namespaces: Callable[[str], bool],
    *,
    leaving: bool = True,
    promised: bool = False,
) -> Vector:
    """How many pods on each node are meant; `leaving`: those on their way out too; `promised`: those nominated too."""
    numbers = _numbers(
        board,
        (each for each in board.population.matching(selector, namespaces) if leaving or not each.terminating),
    )
    for came in board.came:
        counts = (promised or not came.promised) and namespaces(came.shape.namespace)
        if counts and selector.matches(dict(came.shape.labels)):
            numbers.extend(came.nodes.tolist())
    return _tally(board, numbers)


def _numbers(board: Board, residents: Iterable[Resident]) -> list[int]:
    """The nodes of those that are still there."""
    number, gone = board.layout.number, board.gone
    return [number[each.node] for each in residents if each.uid not in gone and each.node in number]


def _tally(board: Board, numbers: list[int]) -> Vector:
    return np.bincount(np.array(numbers, dtype=np.int64), minlength=len(board.layout)).astype(np.int64)


def _per_domain(board: Board, key: str, each: Vector) -> Counts:
    """Numbers per node as numbers per domain."""
    column = board.layout.column(key)
    # -1, for nodes without the label, becomes the last one.
    codes = np.where(column.codes < 0, column.size, column.codes)
    return np.bincount(codes, weights=each, minlength=column.size + 1).astype(np.int64)


def waits_for_first(board: Board, shape: Shape) -> bool:
    """Whether its affinity means pods of which none is there yet: where the first goes decides for all."""
    terms = shape.peers.affinity
    if not terms:
        return False
    # Those on nodes without the label are in no domain that others could join.
    every = _meant_by_all(board, terms)
    return not any(every[board.layout.column(term.key).codes >= 0].any() for term in terms)


def waits_for_others(board: Board, shape: Shape) -> bool:
    """The same, of pods that are not like itself: it cannot be the first."""
    alike = all(board.population.means(term, shape) for term in shape.peers.affinity)
    return not alike and waits_for_first(board, shape)
