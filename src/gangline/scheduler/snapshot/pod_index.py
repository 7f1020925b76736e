"""Who is on the nodes, found by labels: for rules between pods. Changes with every pod, so it only files."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

from gangline.api.selectors import LabelSelector, Operator
from gangline.scheduler.pods.decode import IDENTITY
from gangline.scheduler.pods.shape import NO_PEERS, HostPort, Shape, Term
from gangline.scheduler.pods.wishes import keys_of
from gangline.scheduler.types.cycle import Resident

F = TypeVar("F", bound=Hashable)
E = TypeVar("E", bound=Hashable)
V = TypeVar("V")
Pair: TypeAlias = tuple[str, str]
Kin: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels: pods that no rule tells apart."""
_EXACT: Final = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)


class Population:
    """Residents by what rules ask of them."""

    def __init__(self) -> None:
        self._kin: dict[Kin, dict[str, Resident]] = {}
        self._by_pair: dict[Pair, dict[Kin, None]] = {}
        # Those that keep others away, by the rule by which they do; and rules by a label that they ask for.
        self._repelling: dict[Term, dict[str, Resident]] = {}
        self._rules: dict[Pair | None, dict[Term, None]] = {}
        self._ports: dict[str, Resident] = {}
        self._claims: dict[tuple[str, str], dict[str, Resident]] = {}
        # Labels that rules of residents ask for -> by how many residents.
        self._asked: Counter[str] = Counter()
        self.namespaces: dict[str, Mapping[str, str]] = {}

    @property
    def asked(self) -> frozenset[str]:
        """Labels that rules of residents ask for."""
        return frozenset(self._asked)

    @property
    def holding_ports(self) -> Mapping[str, Resident]:
        """Residents with ports of their node, by uid."""
        return self._ports

    @property
    def claims(self) -> Mapping[tuple[str, str], Mapping[str, Resident]]:
        """Namespace and name of a claim -> residents that use it, by uid."""
        return self._claims

    def users(self, namespace: str, claim: str) -> Mapping[str, Resident]:
        """Residents that use a claim, by uid."""
        return self._claims.get((namespace, claim), {})

    def add(self, resident: Resident) -> None:
        shape, uid = resident.shape, resident.uid
        kin = (shape.namespace, shape.labels)
        if kin not in self._kin:
            self._kin[kin] = {}
            for pair in shape.labels:
                self._by_pair.setdefault(pair, {})[kin] = None
        self._kin[kin][uid] = resident
        if shape.ports:
            self._ports[uid] = resident
        for claim in shape.claims:
            self._claims.setdefault((shape.namespace, claim), {})[uid] = resident
        for term in shape.peers.anti:
            self._repelling.setdefault(term, {})[uid] = resident
            self._rules.setdefault(_pair(term.selector), {})[term] = None
        if shape.peers != NO_PEERS:
            self._asked.update(keys_of(shape.peers))

    def remove(self, resident: Resident) -> None:
        shape, uid = resident.shape, resident.uid
        kin = (shape.namespace, shape.labels)
        if _unfile(self._kin, kin, uid):
            for pair in shape.labels:
                _unfile(self._by_pair, pair, kin)
        self._ports.pop(uid, None)
        for claim in shape.claims:
            _unfile(self._claims, (shape.namespace, claim), uid)
        for term in shape.peers.anti:
            if _unfile(self._repelling, term, uid):
                _unfile(self._rules, _pair(term.selector), term)
        if shape.peers != NO_PEERS:
            self._asked.subtract(keys_of(shape.peers))
            self._asked += Counter()

    def meant(self, term: Term, namespace: str) -> bool:
        """Whether a rule means pods of a namespace."""
        if namespace in term.namespaces:
            return True
        chosen = term.namespace_selector
        return chosen is not None and chosen.matches(self.namespaces.get(namespace, {}))

    def means(self, term: Term, shape: Shape) -> bool:
        """Whether a rule means pods of a shape."""
        return self.meant(term, shape.namespace) and term.selector.matches(dict(shape.labels))

    def repelling(self, shape: Shape) -> Iterator[tuple[Term, Iterable[Resident]]]:
        """Rules of residents that keep a shape away, and who has them."""
        if self._repelling:
            labels = dict(shape.labels)
            for pair in (None, *shape.labels):
                for term in self._rules.get(pair, ()):
                    if self.meant(term, shape.namespace) and term.selector.matches(labels):
                        yield term, self._repelling[term].values()

    def matching(self, selector: LabelSelector, namespaces: Callable[[str], bool]) -> Iterator[Resident]:
        """Residents in some namespaces that a selector matches."""
        single = any(each.key in IDENTITY for each in selector.requirements)
        pair = _pair(selector)
        for kin in self._kin if pair is None else self._by_pair.get(pair, ()):
            namespace, labels = kin
            if not namespaces(namespace):
                continue
            residents = self._kin[kin].values()
            if single:
                yield from (each for each in residents if selector.matches(dict((*labels, *each.marks))))
            elif selector.matches(dict(labels)):
                yield from residents


def _pair(selector: LabelSelector) -> Pair | None:
    """A label that whoever is matched must have with this value, and has in its shape. None: there is none."""
    for each in selector.requirements:
        if each.operator in _EXACT and len(each.values) == 1 and each.key not in IDENTITY:
            return each.key, each.values[0]
    return None


def clash(ours: HostPort, theirs: HostPort) -> bool:
    """Whether two pods cannot have these ports on one node: the same port, on the same address or on all."""
    return (
        ours.port == theirs.port
        and ours.protocol == theirs.protocol
        and (not ours.ip or not theirs.ip or ours.ip == theirs.ip)
    )


def _unfile(files: dict[F, dict[E, V]], name: F, entry: E) -> bool:
    """Take an entry out of a file. True: it was the last one, and the file is gone."""
    found = files.get(name, {})
    found.pop(entry, None)
    if found or name not in files:
        return False
    del files[name]
    return True
