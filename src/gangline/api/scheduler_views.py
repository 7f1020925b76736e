"""Pods and nodes as the scheduler reads them: the fields that decide where a pod can run.

A cluster has ten pods of other owners for every pod of a gang, and all of them use capacity. These structs therefore
leave
out everything that placement does not read, including limits and all but three conditions of a pod.
"""

from typing import Final

import msgspec

from gangline.api.core import SchedulingGate, Taint, Toleration
from gangline.api.meta import ApiStruct, Object, Time
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource, Scheme

POD_SCHEDULED: Final = "PodScheduled"
POD_RESIZE_PENDING: Final = "PodResizePending"
_KEPT_CONDITIONS: Final = frozenset((POD_SCHEDULED, POD_RESIZE_PENDING, "DisruptionTarget"))


class SelectorExpression(ApiStruct, frozen=True):
    """One requirement of a label selector, or of a node selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelectorSpec(ApiStruct, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorExpression, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    match_expressions: tuple[SelectorExpression, ...] = ()
    match_fields: tuple[SelectorExpression, ...] = ()


class NodeSelector(ApiStruct, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ApiStruct, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(ApiStruct, frozen=True):
    label_selector: LabelSelectorSpec | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelectorSpec | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(ApiStruct, frozen=True):
    """Required affinity or anti-affinity between pods. Preferred terms are not decoded."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(ApiStruct, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelectorSpec | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ContainerHostPort(ApiStruct, frozen=True):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class ResourceRequests(ApiStruct, frozen=True):
    requests: dict[str, QuantityText] = {}


NO_REQUESTS: Final = ResourceRequests()


class PodContainer(ApiStruct, frozen=True):
    name: str = ""
    ports: tuple[ContainerHostPort, ...] = ()
    resources: ResourceRequests = NO_REQUESTS
    restart_policy: str = ""


class ClaimVolumeSource(ApiStruct, frozen=True):
    claim_name: str = ""


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """A claim that is created for the pod. Its name joins the names of the pod and the volume."""


class PodVolume(ApiStruct, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodResourceClaim(ApiStruct, frozen=True):
    name: str = ""


class PodPlacementSpec(ApiStruct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    host_network: bool = False
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    resources: ResourceRequests | None = None
    overhead: dict[str, QuantityText] = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()

    def __post_init__(self) -> None:
        # Nearly every volume is a ConfigMap, a Secret or a token. They do not restrict which nodes a pod can use.
        if self.volumes:
            kept = tuple(each for each in self.volumes if each.persistent_volume_claim or each.ephemeral)
            msgspec.structs.force_setattr(self, "volumes", kept)


class ContainerExitCode(ApiStruct, frozen=True):
    exit_code: int = 0


class ContainerExitState(ApiStruct, frozen=True):
    terminated: ContainerExitCode | None = None


class PodContainerStatus(ApiStruct, frozen=True):
    name: str = ""
    state: ContainerExitState = ContainerExitState()
    resources: ResourceRequests | None = None
    allocated_resources: dict[str, QuantityText] = {}


class PodCondition(ApiStruct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class PodPlacementStatus(ApiStruct, frozen=True):
    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    start_time: Time | None = None
    # Only the conditions that concern placement: PodScheduled, PodResizePending, DisruptionTarget.
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[PodContainerStatus, ...] = ()
    init_container_statuses: tuple[PodContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        if self.conditions:
            kept = tuple(each for each in self.conditions if each.type in _KEPT_CONDITIONS)
            msgspec.structs.force_setattr(self, "conditions", kept)


class Pod(Object, frozen=True):
    spec: PodPlacementSpec = PodPlacementSpec()
    status: PodPlacementStatus = PodPlacementStatus()


class NodePlacementSpec(ApiStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(ApiStruct, frozen=True):
    type: str = ""
    status: str = ""


class NodePlacementStatus(ApiStruct, frozen=True):
    allocatable: dict[str, QuantityText] = {}
    conditions: tuple[NodeCondition, ...] = ()

    def __post_init__(self) -> None:
        if self.conditions:
            kept = tuple(each for each in self.conditions if each.type == "Ready")
            msgspec.structs.force_setattr(self, "conditions", kept)


class Node(Object, frozen=True):
    spec: NodePlacementSpec = NodePlacementSpec()
    status: NodePlacementStatus = NodePlacementStatus()


class VolumeClaimSpec(ApiStruct, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelectorSpec | None = None
    resources: ResourceRequests = NO_REQUESTS


class VolumeStatus(ApiStruct, frozen=True):
    """The status of a volume, and of a claim."""

    phase: str = ""


class VolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeStatus = VolumeStatus()


class VolumeNodeAffinity(ApiStruct, frozen=True):
    required: NodeSelector | None = None


class CSIVolumeSource(ApiStruct, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeClaimReference(ApiStruct, frozen=True):
    """The claim that a volume is bound to or reserved for."""

    namespace: str = ""
    name: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True):
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolumeSource | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    capacity: dict[str, QuantityText] = {}
    claim_ref: VolumeClaimReference | None = None


class PersistentVolume(Object, frozen=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumeStatus = VolumeStatus()


class AttachableVolumes(ApiStruct, frozen=True):
    # None means no limit.
    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True):
    name: str = ""
    allocatable: AttachableVolumes = AttachableVolumes()


class CSINodeSpec(ApiStruct, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    """How many volumes of each storage driver a node can attach. It has the name of its node."""

    spec: CSINodeSpec = CSINodeSpec()


class TopologySelectorExpression(ApiStruct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(ApiStruct, frozen=True):
    """Requirements that a node's labels must all meet."""

    match_label_expressions: tuple[TopologySelectorExpression, ...] = ()


class StorageClass(Object, frozen=True):
    volume_binding_mode: str = "Immediate"
    provisioner: str = ""
    # A node must meet one of these terms for a volume to be provisioned there. Empty means any node.
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class Namespace(Object, frozen=True):
    """A namespace's labels, for affinity terms that select namespaces."""


PLACEMENT_SCHEME: Final = Scheme(
    (
        Resource("", "v1", "Pod", "pods", Pod),
        Resource("", "v1", "Node", "nodes", Node, namespaced=False),
        Resource("", "v1", "Namespace", "namespaces", Namespace, namespaced=False),
        Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", VolumeClaim),
        Resource("", "v1", "PersistentVolume", "persistentvolumes", PersistentVolume, namespaced=False),
        Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", StorageClass, namespaced=False),
        Resource("storage.k8s.io", "v1", "CSINode", "csinodes", CSINode, namespaced=False),
    )
)
"""The kinds that the scheduler watches besides PodGroups and Queues."""
