"""What decides where a pod may run, as a value: pods of equal shape are interchangeable."""

from collections.abc import Collection, Mapping

import msgspec

from gangline.api.selectors import LabelSelector, Requirement, SelectorOperator


class PodToleration(msgspec.Struct, frozen=True):
    """Which taints a pod does not mind. An empty key with Exists: all of them; an empty effect: every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeTerm(msgspec.Struct, frozen=True):
    """All of these must hold of a node's labels, and of its name. One without any holds of no node."""

    label_requirements: tuple[Requirement, ...] = ()
    name_requirements: tuple[Requirement, ...] = ()


class NodeConstraints(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod wants of a node itself, whoever else is there."""

    selector: tuple[tuple[str, str], ...] = ()
    # One of these must hold. None: it does not say.
    required: tuple[NodeTerm, ...] | None = None
    # Weight and term.
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[PodToleration, ...] = ()


class HostPort(msgspec.Struct, frozen=True):
    port: int
    protocol: str = "TCP"
    # Empty: all addresses of the node.
    ip: str = ""


class AffinityTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """Which pods a rule between pods means, and what counts as the same place."""

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str] = frozenset()
    # Namespaces with such labels too. None: only those named.
    namespace_selector: LabelSelector | None = None


class SpreadConstraint(msgspec.Struct, frozen=True, cache_hash=True):
    """No more than `skew` more matching pods in one place than in the emptiest."""

    topology_key: str
    selector: LabelSelector
    max_skew: int = 1
    # With fewer places than this the emptiest counts as empty.
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class PodConstraints(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod wants of pods around it."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()


NO_POD_CONSTRAINTS = PodConstraints()
NO_NODE_CONSTRAINTS = NodeConstraints()


class PodShape(msgspec.Struct, frozen=True, cache_hash=True):
    """All that predicates look at. Hashable; equal for the members of a role."""

    # By resource, whole units, cpu in thousandths; `pods` 1 included. Zero amounts are left out.
    requests: tuple[tuple[str, int], ...]
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS
    host_ports: tuple[HostPort, ...] = ()
    # For rules between pods, its own and those of others.
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    pod_constraints: PodConstraints = NO_POD_CONSTRAINTS
    # Names of the PersistentVolumeClaims it uses; those of them that are made for it alone; and its uid, if there are any.
    claims: tuple[str, ...] = ()
    ephemeral_claims: tuple[str, ...] = ()
    uid: str = ""
    # A field that this way of placing cannot do, and the remedy. Empty: none.
    unsupported: str = ""
    # We only say where: kube-scheduler binds it, provides its volumes and gives out its devices.
    pinned: bool = False

    @property
    def amounts(self) -> Mapping[str, int]:
        return dict(self.requests)


def shape_excluding(shape: PodShape, nodes: Collection[str]) -> PodShape:
    """As of a pod that is not to go to these nodes."""
    if not nodes:
        return shape
    exclusion = Requirement("metadata.name", SelectorOperator.NOT_IN, tuple(sorted(nodes)))
    terms = shape.node_constraints.required
    required = (
        (NodeTerm(name_requirements=(exclusion,)),)
        if terms is None
        else tuple(
            NodeTerm(term.label_requirements, (*term.name_requirements, exclusion))
            for term in terms
            if term != NodeTerm()
        )
    )
    return msgspec.structs.replace(
        shape, node_constraints=msgspec.structs.replace(shape.node_constraints, required=required)
    )
