"""The shape of a pod: everything that decides where it may run. Pods of equal shape are interchangeable."""

from collections.abc import Collection, Mapping

import msgspec

from gangline.api.selectors import LabelSelector, Requirement, SelectorOperator


class PodToleration(msgspec.Struct, frozen=True):
    """A toleration. An empty key with Exists tolerates all taints; an empty effect means every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeTerm(msgspec.Struct, frozen=True):
    """Requirements on a node's labels and name, all of which must hold. A term without any matches no node."""

    label_requirements: tuple[Requirement, ...] = ()
    name_requirements: tuple[Requirement, ...] = ()


class NodeConstraints(msgspec.Struct, frozen=True, cache_hash=True):
    """The node selector, node affinity and tolerations of a pod."""

    selector: tuple[tuple[str, str], ...] = ()
    # One of these terms must hold. None: there is no required node affinity.
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
    """A required pod affinity or anti-affinity term: which pods it selects, and the label that makes a domain."""

    topology_key: str
    selector: LabelSelector
    namespaces: frozenset[str] = frozenset()
    # Namespaces with such labels are selected too. None: only the named ones.
    namespace_selector: LabelSelector | None = None


class SpreadConstraint(msgspec.Struct, frozen=True, cache_hash=True):
    """No domain may have more than `max_skew` more matching pods than the one with the fewest."""

    topology_key: str
    selector: LabelSelector
    max_skew: int = 1
    # With fewer domains than this the minimum counts as 0.
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class PodConstraints(msgspec.Struct, frozen=True, cache_hash=True):
    """The pod affinity, anti-affinity and topology spread of a pod."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()


NO_POD_CONSTRAINTS = PodConstraints()
NO_NODE_CONSTRAINTS = NodeConstraints()


class PodShape(msgspec.Struct, frozen=True, cache_hash=True):
    """All that the filters look at. Hashable; equal for the members of a role."""

    # By resource, whole units, cpu in thousandths. Includes 1 of `pods`; zero amounts are left out.
    requests: tuple[tuple[str, int], ...]
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS
    host_ports: tuple[HostPort, ...] = ()
    # Namespace and labels: selectors of other pods may match them.
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    pod_constraints: PodConstraints = NO_POD_CONSTRAINTS
    # Names of the PersistentVolumeClaims that the pod uses; those of them made for this pod alone (ephemeral volumes);
    # and its uid if there are any of these.
    claims: tuple[str, ...] = ()
    ephemeral_claims: tuple[str, ...] = ()
    uid: str = ""
    # A field that we cannot honour, and the remedy; empty if there is none.
    unsupported: str = ""
    # We only choose the node: kube-scheduler binds the pod, provisions its volumes and allocates its devices.
    pinned: bool = False

    @property
    def amounts(self) -> Mapping[str, int]:
        return dict(self.requests)


def shape_excluding(shape: PodShape, nodes: Collection[str]) -> PodShape:
    """The shape of the same pod with these nodes excluded."""
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
