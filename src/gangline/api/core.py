"""Kubernetes' own kinds, with the fields that controllers and schedulers decide on.

A pod here is a tenth of a pod on the wire (no environment, volumes or probes), which keeps a cache of ten thousand
pods
small. Code that needs the whole object reads it as JSON.
"""

from enum import StrEnum

import msgspec

from gangline.api.meta import ApiStruct, Condition, MicroTime, Object, Time
from gangline.api.quantity import QuantityText

KUBERNETES_VERSION = "1.34.4"
"""The version of Kubernetes that the embedded server and its node behave as."""


class PodPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class ContainerPort(ApiStruct, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class ResourceRequirements(ApiStruct, frozen=True):
    # Quantities stay text: most pods are never asked for them, and text is smaller than a parsed number.
    requests: dict[str, QuantityText] = {}
    limits: dict[str, QuantityText] = {}


class Container(ApiStruct, frozen=True):
    name: str = ""
    image: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class Toleration(ApiStruct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(ApiStruct, frozen=True):
    name: str = ""


class PodSpec(ApiStruct, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    restart_policy: str = "Always"
    priority: int = 0
    priority_class_name: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    overhead: dict[str, QuantityText] = {}


class ContainerStateRunning(ApiStruct, frozen=True):
    started_at: Time | None = None


class ContainerStateTerminated(ApiStruct, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class ContainerStateWaiting(ApiStruct, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(ApiStruct, frozen=True):
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ContainerStatus(ApiStruct, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(ApiStruct, frozen=True):
    # Text and not `PodPhase`: a newer server may send another phase, and that must not break a list.
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    host_ip: str = msgspec.field(name="hostIP", default="")
    start_time: Time | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(ApiStruct, frozen=True):
    name: str = ""
    port: int = 0
    target_port: int | str = 0
    protocol: str = "TCP"


class ServiceSpec(ApiStruct, frozen=True):
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = {}


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class Taint(ApiStruct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(ApiStruct, frozen=True):
    capacity: dict[str, QuantityText] = {}
    allocatable: dict[str, QuantityText] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ObjectReference(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSeries(ApiStruct, frozen=True):
    count: int = 0
    last_observed_time: MicroTime | None = None


class Event(Object, frozen=True):
    """`events.k8s.io/v1`."""

    event_time: MicroTime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    note: str = ""
    type: str = ""


class LeaseSpec(ApiStruct, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Object, frozen=True):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool = False


class Secret(Object, frozen=True):
    data: dict[str, str] = {}
    type: str = ""


class NamespaceStatus(ApiStruct, frozen=True):
    phase: str = ""


class Namespace(Object, frozen=True):
    status: NamespaceStatus = NamespaceStatus()


class ServiceAccount(Object, frozen=True):
    pass


class PriorityClass(Object, frozen=True):
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""


def is_terminal_phase(phase: str) -> bool:
    """Whether a pod stays in this phase for ever."""
    return phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
