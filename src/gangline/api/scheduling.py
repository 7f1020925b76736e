"""PodGroups and Queues (`scheduling.gangline.dev/v1alpha1`): which pods start together, and whose turn it is.

The life cycle in `status.state` is that of the PodGroup status proposal of 2019: Pending, Running, Recovering,
Unschedulable. Only the scheduler writes it; whoever owns the pods reads it and acts.
"""

from enum import StrEnum

from gangline.api.meta import ApiStruct, Object, Time
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource

GROUP = "scheduling.gangline.dev"
VERSION = "v1alpha1"

SCHEDULER_NAME = "gangline"
"""The `schedulerName` of pods that are ours to place."""
GROUP_NAME_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation of a pod: the PodGroup it belongs to, in its namespace."""
GANG_GATE = "scheduling.gangline.dev/gang"
"""The scheduling gate of pods that kube-scheduler is to place, where we say, once the whole gang fits."""
PINNED_NODE_ANNOTATION = "scheduling.gangline.dev/pinned-to"
"""On pods whose gate was taken off: the node that they were told to go to. They have it as a node selector, too."""
GANG_SCHEDULER_ANNOTATION = f"{GROUP}/gang-scheduler"
"""Annotation of a job: who places its pods, if not the one that the operator was told to use; `none`: nobody."""
COMMIT_ANNOTATION = f"{GROUP}/commit"
"""Annotation of a job: `bind`, which is the default, or `pin`: held by a gate, then left to kube-scheduler."""
COMMIT_BIND, COMMIT_PIN = "bind", "pin"
ON_TIMEOUT_ANNOTATION = f"{GROUP}/on-timeout"
"""Annotation of a job: `Pending`, which is the default, or `Fail` when its gang found no place in time."""
REQUIRED_TOPOLOGY_ANNOTATION = f"{GROUP}/required-topology"
PREFERRED_TOPOLOGY_ANNOTATION = f"{GROUP}/preferred-topology"
"""Annotations of a job: the label of nodes that all members should share, or must."""
DEFAULT_SCHEDULE_TIMEOUT = 60
"""Seconds, where a group names none."""
DEFAULT_QUEUE = "default"
"""The queue of groups that name none. It need not exist: then its weight is 1 and it has no cap."""


class PodGroupPhase(StrEnum):
    """What can be said of a gang."""

    PENDING = "Pending"
    """Accepted; the scheduler cannot yet give it the places it needs."""
    RUNNING = "Running"
    """As many members as it needs are running."""
    RECOVERING = "Recovering"
    """Some of them had an exception; the owner is to replace them."""
    UNSCHEDULABLE = "Unschedulable"
    """Some run, the others exist again but cannot be placed; the owner is to decide."""


class PodGroupReason(StrEnum):
    NONE = ""
    POD_FAILED = "PodFailed"
    POD_DELETED = "PodDeleted"
    NOT_ENOUGH_RESOURCES = "NotEnoughResources"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"


class GangTopology(ApiStruct, frozen=True):
    """One domain for the whole gang: nodes with the same value of a label."""

    key: str = ""
    # Required: rather wait than spread over several domains. Else preferred.
    required: bool = False


class PodGroupSpec(ApiStruct, frozen=True):
    min_member: int = 1
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, QuantityText] | None = None
    # After so long without a place the owner is told; and a start left half bound is undone. None: 60.
    schedule_timeout_seconds: int | None = None
    # Role -> how many of it must be placed at once.
    min_task_member: dict[str, int] = {}
    topology: GangTopology | None = None


class PodGroupState(ApiStruct, frozen=True):
    # Text, not GroupPhase: what somebody else wrote must not break a list.
    phase: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(ApiStruct, frozen=True):
    state: PodGroupState = PodGroupState()
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Object, frozen=True):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class QueueSpec(ApiStruct, frozen=True):
    weight: int = 1
    # What all groups of the queue may hold at most; a resource not named has no cap.
    capability: dict[str, QuantityText] | None = None
    # Whether a queue below its share may take back what this one uses beyond its own.
    reclaimable: bool = True


class QueueStatus(ApiStruct, frozen=True):
    pending: int = 0
    running: int = 0
    recovering: int = 0
    unschedulable: int = 0
    allocated: dict[str, QuantityText] = {}
    deserved: dict[str, QuantityText] = {}


class Queue(Object, frozen=True):
    """Cluster-scoped."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


PODGROUPS: Resource[PodGroup] = Resource(GROUP, VERSION, "PodGroup", "podgroups", PodGroup)
QUEUES: Resource[Queue] = Resource(GROUP, VERSION, "Queue", "queues", Queue, namespaced=False)
