"""What decides where a pod may run, as a value: pods of equal shape are interchangeable."""

from collections.abc import Collection, Mapping

import msgspec

from gangline.api.selectors import LabelSelector, Operator, Requirement


class Toleration(msgspec.Struct, frozen=True):
    """Which taints a pod does not mind. An empty key with Exists: all of them; an empty effect: every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeTerm(msgspec.Struct, frozen=True):
    """All of these must hold of a node's labels, and of its name. One without any holds of no node."""

    labels: tuple[Requirement, ...] = ()
    name: tuple[Requirement, ...] = ()


class Where(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod wants of a node itself, whoever else is there."""

    selector: tuple[tuple[str, str], ...] = ()
    # One of these must hold. None: it does not say.
    required: tuple[NodeTerm, ...] | None = None
    # Weight and term.
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class HostPort(msgspec.Struct, frozen=True):
    port: int
    protocol: str = "TCP"
    # Empty: all addresses of the node.
    ip: str = ""


class Term(msgspec.Struct, frozen=True, cache_hash=True):
    """Which pods a rule between pods means, and what counts as the same place."""

    key: str
    selector: LabelSelector
    namespaces: frozenset[str] = frozenset()
    # Namespaces with such labels too. None: only those named.
    namespace_selector: LabelSelector | None = None


class Spread(msgspec.Struct, frozen=True, cache_hash=True):
    """No more than `skew` more matching pods in one place than in the emptiest."""

    key: str
    selector: LabelSelector
    skew: int = 1
    # With fewer places than this the emptiest counts as empty.
    domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Peers(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod wants of pods around it."""

    affinity: tuple[Term, ...] = ()
    anti: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()


NO_PEERS = Peers()
ANYWHERE = Where()


class Shape(msgspec.Struct, frozen=True, cache_hash=True):
    """All that predicates look at. Hashable; equal for the members of a role."""

    # By resource, whole units, cpu in thousandths; `pods` 1 included. Zero amounts are left out.
    requests: tuple[tuple[str, int], ...]
    where: Where = ANYWHERE
    ports: tuple[HostPort, ...] = ()
    # For rules between pods, its own and those of others.
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    peers: Peers = NO_PEERS
    # Names of the PersistentVolumeClaims it uses; those of them that are made for it alone; and its uid, if there are any.
    claims: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()
    uid: str = ""
    # A field that this way of placing cannot do, and the remedy. Empty: none.
    obstacle: str = ""
    # We only say where: kube-scheduler binds it, provides its volumes and gives out its devices.
    pinned: bool = False

    @property
    def amounts(self) -> Mapping[str, int]:
        return dict(self.requests)


def avoiding(shape: Shape, nodes: Collection[str]) -> Shape:
    """As of a pod that is not to go to these nodes."""
    if not nodes:
        return shape
    others = Requirement("metadata.name", Operator.NOT_IN, tuple(sorted(nodes)))
    terms = shape.where.required
    required = (
        (NodeTerm(name=(others,)),)
        if terms is None
        else tuple(NodeTerm(term.labels, (*term.name, others)) for term in terms if term != NodeTerm())
    )
    return msgspec.structs.replace(shape, where=msgspec.structs.replace(shape.where, required=required))
