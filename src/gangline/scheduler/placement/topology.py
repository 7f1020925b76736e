"""Where a gang may be put at all: everywhere, or within one domain of a topology, the tightest that holds it."""

from collections.abc import Iterator

import msgspec
import numpy as np

from gangline.scheduler.filters.fit import ShapeFit
from gangline.scheduler.filters.pod_constraints import has_unmet_affinity
from gangline.scheduler.snapshot.node_table import LabelColumn, Mask
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.types.cycle import GangRequest, Vector
from gangline.scheduler.types.reasons import FilterReason

MAX_DOMAINS = 64
"""How many domains are tried in earnest; the others cannot hold the gang, or hold it less well."""


class Domain(msgspec.Struct, frozen=True):
    """Nodes that come into question. No mask: all of them. `first`: which ones to fill first, lower is better."""

    mask: Mask | None = None
    node_ranks: Vector | None = None
    key: str = ""
    name: str = ""
    # The needs that it is for. None: all.
    pod_sets: frozenset[int] | None = None
    # What keeps them from other nodes.
    reason: FilterReason = FilterReason.DOMAIN

    def applies_to(self, need: int) -> bool:
        return self.pod_sets is None or need in self.pod_sets

    def gap_message(self, least: int, fitting: int) -> str:
        """What is missing in this, the best domain."""
        short = self.key.rpartition("/")[2]
        return (
            f"no {short} holds all {least}, the best is {self.name} with room for {fitting} ({least - fitting} missing)"
        )


ALL_NODES = Domain()


def candidate_domains(board: ClusterSnapshot, ask: GangRequest) -> Iterator[Domain]:
    """What to try, the best first; there is always one."""
    topology = ask.topology if ask.topology is not None and ask.topology.key else None
    if topology is not None and topology.required:
        yield from _topology_domains(board, ask, topology.key, required=True)
        return
    key, needs = affinity_group(board, ask)
    if key:
        for ground in _topology_domains(board, ask, key, required=True, needs=needs):
            yield msgspec.structs.replace(ground, reason=FilterReason.AFFINITY)
        # Those who want to be with others need not all be with the same ones.
        yield ALL_NODES
    elif topology is not None:
        yield from _topology_domains(board, ask, topology.key, required=False)
    else:
        yield ALL_NODES


def _topology_domains(
    board: ClusterSnapshot, ask: GangRequest, key: str, *, required: bool, needs: frozenset[int] | None = None
) -> Iterator[Domain]:
    column = board.nodes.label_column(key)
    domains = _DomainCapacity(board, ask, column, needs)
    found = domains.candidates()
    if required and not found:
        found = domains.closest()
    for code in found:
        yield Domain(mask=column.codes == code, key=key, name=column.values[code], pod_sets=needs)
    if not required:
        yield Domain(node_ranks=domains.node_ranks())
    elif not found:
        yield Domain(mask=np.zeros(len(board.nodes), dtype=np.bool_), pod_sets=needs)


def affinity_group(board: ClusterSnapshot, ask: GangRequest) -> tuple[str, frozenset[int]]:
    """A key of which members must share a domain because they want to be with each other, and which members."""
    for need in ask.pod_sets:
        if need.count and has_unmet_affinity(board, need.shape):
            # The one with most domains: those of the others are wider, as racks are within zones.
            terms = need.shape.pod_constraints.affinity
            term = max(terms, key=lambda term: (board.nodes.label_column(term.topology_key).size, term.topology_key))
            kin = frozenset(
                number
                for number, other in enumerate(ask.pod_sets)
                if term in other.shape.pod_constraints.affinity or board.pods.selects(term, other.shape)
            )
            if any(board.pods.selects(term, ask.pod_sets[number].shape) for number in kin):
                return term.topology_key, kin
    return "", frozenset()


class _DomainCapacity:
    """How much of a gang every domain takes, need by need and without regard to the others."""

    def __init__(
        self, board: ClusterSnapshot, ask: GangRequest, column: LabelColumn, needs: frozenset[int] | None
    ) -> None:
        self._request, self._column = ask, column
        self._fits = np.zeros((len(ask.pod_sets), column.size), dtype=np.int64)
        self._spare = np.zeros(column.size, dtype=np.int64)
        labelled = column.codes >= 0
        codes = column.codes[labelled]
        for number, need in enumerate(ask.pod_sets):
            if needs is not None and number not in needs:
                self._fits[number] = need.count
            elif need.count:
                # More than anybody asks for, and far from where floating point loses ones.
                # Whom it wants to be with may come with it.
                unmet = not has_unmet_affinity(board, need.shape)
                each = np.minimum(ShapeFit(board, need.shape).capacity(unmet=unmet), 1 << 20)[labelled]
                sums = np.bincount(codes, weights=each, minlength=column.size).astype(np.int64)
                self._spare += sums
                self._fits[number] = np.minimum(sums, need.count)
        self._placed = self._fits.sum(axis=0)
        self._joinable = _current_domains(board, ask, column)

    def candidates(self) -> list[int]:
        """Domains that may hold it: those that take most of it first, and of these the tightest."""
        enough = (self._placed >= self._request.min_members) & (self._placed > 0) & self._joinable
        for role, least in self._request.min_by_role.items():
            rows = [number for number, need in enumerate(self._request.pod_sets) if need.role == role]
            enough &= self._fits[rows].sum(axis=0) >= least
        return self._tightest_first(np.flatnonzero(enough))[:MAX_DOMAINS]

    def closest(self) -> list[int]:
        """The domain that comes closest, for the message."""
        return self._tightest_first(np.flatnonzero(self._joinable))[:1]

    def node_ranks(self) -> Vector:
        """For every node how early its domain is filled when several are needed: near ones, then the roomiest."""
        size = self._column.size
        order = np.lexsort((np.arange(size), -self._spare, -self._placed, ~self._joinable))
        ranks = np.empty(size + 1, dtype=np.int64)
        ranks[order] = np.arange(size)
        ranks[size] = size
        return ranks[self._column.codes]

    def _tightest_first(self, domains: Vector) -> list[int]:
        order = np.lexsort((domains, self._spare[domains], -self._placed[domains]))
        return [int(code) for code in domains[order]]


def _current_domains(board: ClusterSnapshot, ask: GangRequest, column: LabelColumn) -> Mask:
    """Domains in which members are already; all of them if there are none."""
    numbers = [number for name in ask.current_nodes if (number := board.nodes.index_of.get(name)) is not None]
    found = np.zeros(column.size, dtype=np.bool_)
    codes = column.codes[numbers] if numbers else np.empty(0, dtype=np.int32)
    found[codes[codes >= 0]] = True
    return found if found.any() else ~found
