"""Candidate domains for a gang: all nodes, or one domain of a topology key, the tightest that holds it."""

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
"""How many domains are tried in full; the others cannot hold the gang, or hold it less well."""


class Domain(msgspec.Struct, frozen=True):
    """Candidate nodes. No mask: all nodes. `node_ranks`: the order to fill them, lower first."""

    mask: Mask | None = None
    node_ranks: Vector | None = None
    key: str = ""
    name: str = ""
    # Indices of the pod sets that the domain applies to. None: all.
    pod_sets: frozenset[int] | None = None
    # The reason against nodes outside the domain.
    reason: FilterReason = FilterReason.DOMAIN

    def applies_to(self, pod_set: int) -> bool:
        return self.pod_sets is None or pod_set in self.pod_sets

    def gap_message(self, minimum: int, fitting: int) -> str:
        """What this domain, the best one, lacks."""
        level = self.key.rpartition("/")[2]
        return f"no {level} holds all {minimum}, the best is {self.name} with room for {fitting} ({minimum - fitting} missing)"


ALL_NODES = Domain()


def candidate_domains(snapshot: ClusterSnapshot, request: GangRequest) -> Iterator[Domain]:
    """The domains to try, the best first; there is always one."""
    topology = request.topology if request.topology is not None and request.topology.key else None
    if topology is not None and topology.required:
        yield from _topology_domains(snapshot, request, topology.key, required=True)
        return
    key, pod_sets = affinity_group(snapshot, request)
    if key:
        for domain in _topology_domains(snapshot, request, key, required=True, pod_sets=pod_sets):
            yield msgspec.structs.replace(domain, reason=FilterReason.AFFINITY)
        # Pods with affinity need not all be in the same domain.
        yield ALL_NODES
    elif topology is not None:
        yield from _topology_domains(snapshot, request, topology.key, required=False)
    else:
        yield ALL_NODES


def _topology_domains(
    snapshot: ClusterSnapshot, request: GangRequest, key: str, *, required: bool, pod_sets: frozenset[int] | None = None
) -> Iterator[Domain]:
    column = snapshot.nodes.label_column(key)
    domains = _DomainCapacity(snapshot, request, column, pod_sets)
    candidate_codes = domains.candidates()
    if required and not candidate_codes:
        candidate_codes = domains.closest()
    for code in candidate_codes:
        yield Domain(mask=column.codes == code, key=key, name=column.values[code], pod_sets=pod_sets)
    if not required:
        yield Domain(node_ranks=domains.node_ranks())
    elif not candidate_codes:
        yield Domain(mask=np.zeros(len(snapshot.nodes), dtype=np.bool_), pod_sets=pod_sets)


def affinity_group(snapshot: ClusterSnapshot, request: GangRequest) -> tuple[str, frozenset[int]]:
    """A topology key whose domain members must share because of their affinity, and the indices of their pod sets."""
    for pod_set in request.pod_sets:
        if pod_set.count and has_unmet_affinity(snapshot, pod_set.shape):
            # The key with most domains: those of the other keys are wider, as zones are wider than racks.
            terms = pod_set.shape.pod_constraints.affinity
            term = max(terms, key=lambda term: (snapshot.nodes.label_column(term.topology_key).size, term.topology_key))
            group = frozenset(
                number
                for number, other in enumerate(request.pod_sets)
                if term in other.shape.pod_constraints.affinity or snapshot.pods.selects(term, other.shape)
            )
            if any(snapshot.pods.selects(term, request.pod_sets[number].shape) for number in group):
                return term.topology_key, group
    return "", frozenset()


class _DomainCapacity:
    """How many pods of each pod set fit into every domain, disregarding the other pod sets."""

    def __init__(
        self, snapshot: ClusterSnapshot, request: GangRequest, column: LabelColumn, pod_sets: frozenset[int] | None
    ) -> None:
        self._request, self._column = request, column
        self._fits = np.zeros((len(request.pod_sets), column.size), dtype=np.int64)
        self._spare = np.zeros(column.size, dtype=np.int64)
        labelled = column.codes >= 0
        codes = column.codes[labelled]
        for number, pod_set in enumerate(request.pod_sets):
            if pod_sets is not None and number not in pod_sets:
                self._fits[number] = pod_set.count
            elif pod_set.count:
                # 2^20 is more than any request, and far from where floating point is inexact. Pods that affinity
                # requires may be placed with the gang.
                check_affinity = not has_unmet_affinity(snapshot, pod_set.shape)
                capacity = np.minimum(
                    ShapeFit(snapshot, pod_set.shape).capacity(check_affinity=check_affinity), 1 << 20
                )[labelled]
                sums = np.bincount(codes, weights=capacity, minlength=column.size).astype(np.int64)
                self._spare += sums
                self._fits[number] = np.minimum(sums, pod_set.count)
        self._placed = self._fits.sum(axis=0)
        self._joinable = _current_domains(snapshot, request, column)

    def candidates(self) -> list[int]:
        """Domains that may hold the gang: those that take most members first, and of these the tightest."""
        sufficient = (self._placed >= self._request.min_members) & (self._placed > 0) & self._joinable
        for role, minimum in self._request.min_by_role.items():
            rows = [number for number, pod_set in enumerate(self._request.pod_sets) if pod_set.role == role]
            sufficient &= self._fits[rows].sum(axis=0) >= minimum
        return self._tightest_first(np.flatnonzero(sufficient))[:MAX_DOMAINS]

    def closest(self) -> list[int]:
        """The domain that takes most members, for the message."""
        return self._tightest_first(np.flatnonzero(self._joinable))[:1]

    def node_ranks(self) -> Vector:
        """For every node the rank of its domain when several are needed: current domains, then the roomiest."""
        size = self._column.size
        order = np.lexsort((np.arange(size), -self._spare, -self._placed, ~self._joinable))
        ranks = np.empty(size + 1, dtype=np.int64)
        ranks[order] = np.arange(size)
        ranks[size] = size
        return ranks[self._column.codes]

    def _tightest_first(self, domains: Vector) -> list[int]:
        order = np.lexsort((domains, self._spare[domains], -self._placed[domains]))
        return [int(code) for code in domains[order]]


def _current_domains(snapshot: ClusterSnapshot, request: GangRequest, column: LabelColumn) -> Mask:
    """Domains that have members already; all domains if there are none."""
    numbers = [number for name in request.current_nodes if (number := snapshot.nodes.index_of.get(name)) is not None]
    domains = np.zeros(column.size, dtype=np.bool_)
    codes = column.codes[numbers] if numbers else np.empty(0, dtype=np.int32)
    domains[codes[codes >= 0]] = True
    return domains if domains.any() else ~domains
