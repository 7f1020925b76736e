"""PodGroups and Queues (`scheduling.gangline.dev/v1alpha1`): which pods start together, and in which order.

The life cycle in `status.state` is that of the PodGroup status proposal of 2019: Pending, Running, Recovering,
Unschedulable. Only the scheduler writes it; the owner of the pods reads it and acts.
"""

from enum import StrEnum

from gangline.api.meta import ApiStruct, Object, Time
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource

GROUP = "scheduling.gangline.dev"
VERSION = "v1alpha1"

SCHEDULER_NAME = "gangline"
"""The `schedulerName` of pods that gangline's scheduler places."""
GROUP_NAME_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation of a pod: the name of its PodGroup, in the same namespace."""
GANG_GATE = "scheduling.gangline.dev/gang"
"""The scheduling gate of pods that kube-scheduler binds, to nodes that we choose, once the whole gang fits."""
PINNED_NODE_ANNOTATION = "scheduling.gangline.dev/pinned-to"
"""Annotation of a pod whose gate was removed: the node that it is pinned to. The pod also has it as a node selector."""
GANG_SCHEDULER_ANNOTATION = f"{GROUP}/gang-scheduler"
"""Annotation of a job: the scheduler of its pods, if not the operator's default; `none` for no gang scheduler."""
COMMIT_ANNOTATION = f"{GROUP}/commit"
"""Annotation of a job: `bind` (default), or `pin`: gated until the gang fits, then bound by kube-scheduler."""
COMMIT_BIND, COMMIT_PIN = "bind", "pin"
ON_TIMEOUT_ANNOTATION = f"{GROUP}/on-timeout"
"""Annotation of a job: what happens if its gang is not placed in time: `Wait` (default) or `Fail`."""
REQUIRED_TOPOLOGY_ANNOTATION = f"{GROUP}/required-topology"
PREFERRED_TOPOLOGY_ANNOTATION = f"{GROUP}/preferred-topology"
"""Annotations of a job: the node label whose value all members should share, or must share."""
DEFAULT_SCHEDULE_TIMEOUT = 60
"""In seconds, for groups that set none."""
DEFAULT_QUEUE = "default"
"""The queue of groups that name none. If it does not exist, its weight is 1 and it has no limit."""


class PodGroupPhase(StrEnum):
    """The phases of a gang."""

    PENDING = "Pending"
    """Accepted; the scheduler cannot place the required members yet."""
    RUNNING = "Running"
    """At least the required number of members is running."""
    RECOVERING = "Recovering"
    """A running member was lost; the owner shall replace it."""
    UNSCHEDULABLE = "Unschedulable"
    """Some members run; the replacements exist but cannot be placed. The owner shall decide."""


class PodGroupReason(StrEnum):
    NONE = ""
    POD_FAILED = "PodFailed"
    POD_DELETED = "PodDeleted"
    NOT_ENOUGH_RESOURCES = "NotEnoughResources"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"


class GangTopology(ApiStruct, frozen=True):
    """One topology domain for the whole gang: nodes with the same value of a label."""

    key: str = ""
    # If required, the gang waits rather than spread over several domains; else the domain is preferred.
    required: bool = False


class PodGroupSpec(ApiStruct, frozen=True):
    min_member: int = 1
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, QuantityText] | None = None
    # After this time without placement the owner is informed, and a start that is half bound is rolled back. None means
    # 60.
    schedule_timeout_seconds: int | None = None
    # By role: how many members must be placed together.
    min_task_member: dict[str, int] = {}
    topology: GangTopology | None = None


class PodGroupState(ApiStruct, frozen=True):
    # Text and not `PodGroupPhase`: an unknown phase must not break a list.
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
    # The most that all groups of the queue may use. A resource that is not listed has no limit.
    capability: dict[str, QuantityText] | None = None
    # Whether a queue below its fair share may reclaim what this queue uses beyond its own.
    reclaimable: bool = True


class QueueStatus(ApiStruct, frozen=True):
    pending: int = 0
    running: int = 0
    recovering: int = 0
    unschedulable: int = 0
    allocated: dict[str, QuantityText] = {}
    deserved: dict[str, QuantityText] = {}


class Queue(Object, frozen=True):
    """A queue. Cluster-scoped."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


PODGROUPS: Resource[PodGroup] = Resource(GROUP, VERSION, "PodGroup", "podgroups", PodGroup)
QUEUES: Resource[Queue] = Resource(GROUP, VERSION, "Queue", "queues", Queue, namespaced=False)
