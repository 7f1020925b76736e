"""Pods and nodes as a scheduler reads them: what decides where a pod may run, and little else.

A cluster has ten pods of others for every pod of a gang, and all of them hold room. So these structs leave out all
that placement does not look at, limits and all but three conditions of a pod included.
"""

from typing import Final

import msgspec

from gangline.api.core import SchedulingGate, Taint, Toleration
from gangline.api.meta import Object, Time, Wire
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource, Scheme

SCHEDULED: Final = "PodScheduled"
RESIZE_PENDING: Final = "PodResizePending"
_KEPT: Final = frozenset((SCHEDULED, RESIZE_PENDING, "DisruptionTarget"))


class Expression(Wire, frozen=True):
    """One requirement of a label selector, or of a node selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNode(Wire, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredNode, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Wire, frozen=True):
    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(Wire, frozen=True):
    """Affinity or anti-affinity between pods; what is only preferred is not looked at."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpread(Wire, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Port(Wire, frozen=True):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class Requests(Wire, frozen=True):
    requests: dict[str, QuantityText] = {}


NO_REQUESTS: Final = Requests()


class Container(Wire, frozen=True):
    name: str = ""
    ports: tuple[Port, ...] = ()
    resources: Requests = NO_REQUESTS
    restart_policy: str = ""


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class EphemeralSource(Wire, frozen=True):
    """A claim that is made for the pod; it has the name of the pod and of the volume."""


class Volume(Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class ResourceClaim(Wire, frozen=True):
    name: str = ""


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Requests | None = None
    overhead: dict[str, QuantityText] = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()

    def __post_init__(self) -> None:
        # Nearly every volume is a ConfigMap, a Secret or a token: none of them ties a pod to a node.
        if self.volumes:
            kept = tuple(each for each in self.volumes if each.persistent_volume_claim or each.ephemeral)
            msgspec.structs.force_setattr(self, "volumes", kept)


class Terminated(Wire, frozen=True):
    exit_code: int = 0


class ContainerState(Wire, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    resources: Requests | None = None
    allocated_resources: dict[str, QuantityText] = {}


class PodCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class PodStatus(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    start_time: Time | None = None
    # Only those that say something about placing: PodScheduled, PodResizePending, DisruptionTarget.
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        if self.conditions:
            kept = tuple(each for each in self.conditions if each.type in _KEPT)
            msgspec.structs.force_setattr(self, "conditions", kept)


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""


class NodeStatus(Wire, frozen=True):
    allocatable: dict[str, QuantityText] = {}
    conditions: tuple[NodeCondition, ...] = ()

    def __post_init__(self) -> None:
        if self.conditions:
            kept = tuple(each for each in self.conditions if each.type == "Ready")
            msgspec.structs.force_setattr(self, "conditions", kept)


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ClaimSpec(Wire, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    resources: Requests = NO_REQUESTS


class ClaimStatus(Wire, frozen=True):
    phase: str = ""


class Claim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CSISource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class ClaimReference(Wire, frozen=True):
    """Whose a volume is, or is to be."""

    namespace: str = ""
    name: str = ""


class PersistentVolumeSpec(Wire, frozen=True):
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    capacity: dict[str, QuantityText] = {}
    claim_ref: ClaimReference | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolume(Object, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class Attachable(Wire, frozen=True):
    # None: as many as one likes.
    count: int | None = None


class NodeDriver(Wire, frozen=True):
    name: str = ""
    allocatable: Attachable = Attachable()


class CSINodeSpec(Wire, frozen=True):
    drivers: tuple[NodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    """How many volumes of each storage driver a node can have attached. It has the name of its node."""

    spec: CSINodeSpec = CSINodeSpec()


class TopologyExpression(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    """All of these must hold of a node's labels."""

    match_label_expressions: tuple[TopologyExpression, ...] = ()


class StorageClass(Object, frozen=True):
    volume_binding_mode: str = "Immediate"
    provisioner: str = ""
    # One of these must hold where a volume is made. None: anywhere.
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class Namespace(Object, frozen=True):
    """Its labels, for rules between pods of several namespaces."""


PLACING: Final = Scheme(
    (
        Resource("", "v1", "Pod", "pods", Pod),
        Resource("", "v1", "Node", "nodes", Node, namespaced=False),
        Resource("", "v1", "Namespace", "namespaces", Namespace, namespaced=False),
        Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", Claim),
        Resource("", "v1", "PersistentVolume", "persistentvolumes", PersistentVolume, namespaced=False),
        Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", StorageClass, namespaced=False),
        Resource("storage.k8s.io", "v1", "CSINode", "csinodes", CSINode, namespaced=False),
    )
)
"""What a scheduler watches beside PodGroups and Queues."""
