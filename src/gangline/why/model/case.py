"""All that is known of one job at one moment, as a value. What could not be read is in it too."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Container, ContainerStatus, Node, Pod, PodPhase
from gangline.api.kubeflow.training import Failure
from gangline.api.meta import Condition
from gangline.api.quantity import Quantity


class Told(msgspec.Struct, frozen=True):
    """An event, from either of the two API groups."""

    reason: str
    message: str
    warning: bool = False
    at: datetime | None = None
    count: int = 1
    source: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim that a pod names."""

    name: str
    exists: bool = True
    phase: str = ""
    storage_class: str = ""
    wants: str = ""
    events: tuple[Told, ...] = ()


class Mount(msgspec.Struct, frozen=True):
    """Where a volume is in a container."""

    container: str
    volume: str
    path: str
    read_only: bool = False


class Volume(msgspec.Struct, frozen=True):
    """A volume of a pod: what it is made of, and how large it may grow."""

    name: str
    source: str
    claim: str = ""
    size_limit: str = ""


class Replica(msgspec.Struct, frozen=True):
    """One pod of the job, and what belongs to it."""

    # What people call it: `worker-3`; and its type, as the spec spells it.
    name: str
    type: str
    pod: Pod
    # The pod spec in the job that it was made from: `spec.tfReplicaSpecs.Worker.template.spec`.
    template: str = "spec.template.spec"
    volumes: tuple[Volume, ...] = ()
    mounts: tuple[Mount, ...] = ()
    events: tuple[Told, ...] = ()
    # The last lines of a container's log: of its present run, and of the one before.
    logs: Mapping[str, tuple[str, ...]] = {}
    earlier: Mapping[str, tuple[str, ...]] = {}
    # When the last line was written; what it uses now. None: not readable.
    last_line: datetime | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        return (*self.pod.status.init_container_statuses, *self.pod.status.container_statuses)

    @property
    def up(self) -> bool:
        """It runs, all of it; or it has done its work."""
        status = self.pod.status
        if status.phase != PodPhase.RUNNING:
            return status.phase == PodPhase.SUCCEEDED
        ended = (one.state.terminated for one in status.container_statuses)
        waits = any(one.state.waiting is not None for one in status.container_statuses)
        return not waits and not any(one is not None and one.exit_code for one in ended)

    def container(self, name: str) -> Container | None:
        spec = self.pod.spec
        return next((one for one in (*spec.containers, *spec.init_containers) if one.name == name), None)

    def path(self, name: str) -> str:
        """Where the spec of the job has a container: `….containers[0]`."""
        spec = self.pod.spec
        for field, listed in (("containers", spec.containers), ("initContainers", spec.init_containers)):
            for index, one in enumerate(listed):
                if one.name == name:
                    return f"{self.template}.{field}[{index}]"
        return f"{self.template}.containers[0]"


class Job(msgspec.Struct, frozen=True):
    """What the object itself says, whatever its kind."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    # In one word: Pending, Running, Restarting, Suspended, Succeeded, Failed.
    state: str = "Pending"
    created: datetime | None = None
    started: datetime | None = None
    # Somebody has written a status.
    noticed: bool = True
    conditions: tuple[Condition, ...] = ()
    suspended: bool = False
    # The field that says so.
    suspend_field: str = "spec.suspend"
    queue: str = ""
    managed_by: str = ""
    # Why the spec cannot run: `path: what to write`.
    problems: tuple[str, ...] = ()
    # Replicas asked for, and what happens to one that fails, by type.
    wanted: Mapping[str, int] = {}
    policies: Mapping[str, str] = {}
    # Where the pod spec of a type is written.
    templates: Mapping[str, str] = {}
    deadline: int | None = None
    backoff_limit: int | None = None
    limits_field: str = "spec"
    restarts: int = 0
    # Restarts in a row, and when the last one was.
    streak: int = 0
    restarted: datetime | None = None
    first_failure: Failure | None = None
    # The container that trains; empty: the first.
    container: str = ""
    # One of ours: gangline's verbs work on it.
    training: bool = True
    # Read from the record of its run: when that ended, and how, if the job had not.
    recorded: datetime | None = None
    stopped: str = ""

    @property
    def finished(self) -> bool:
        return self.state in ("Succeeded", "Failed")

    @property
    def asked(self) -> int:
        return sum(self.wanted.values())

    def condition(self, kind: str) -> Condition | None:
        """A condition that is there and True."""
        return next((one for one in self.conditions if one.type == kind and one.status == "True"), None)


class Gang(msgspec.Struct, frozen=True):
    """A PodGroup of the job's."""

    name: str
    phase: str = ""
    min_member: int = 0
    scheduled: int = 0
    message: str = ""
    queue: str = ""
    # Three schedulers have PodGroups: theirs, by its full name.
    resource: str = "podgroup"
    # Ours says why, in one word, and what a try to place it found: how far it is from fitting, or whom it waits for.
    ours: bool = False
    reason: str = ""
    attempt: str = ""


class Operator(msgspec.Struct, frozen=True):
    """What is known of whoever should look after the job."""

    # Signs of life, such as a Lease that is renewed; and pods that should be alive and are not.
    signs: tuple[str, ...] = ()
    ill: tuple[str, ...] = ()
    # What it logged about this job.
    log: tuple[str, ...] = ()
    # Whether all places were readable where it could have been found.
    searched: bool = True


class Patience(msgspec.Struct, frozen=True):
    """How long something may take before it counts as wrong."""

    notice: timedelta = timedelta(seconds=15)
    start: timedelta = timedelta(minutes=3)
    hung: timedelta = timedelta(minutes=10)
    # A restart after which this long nothing failed is forgiven.
    holds: timedelta = timedelta(minutes=10)
    # A failure is somebody else's echo only so long after it.
    echo: timedelta = timedelta(minutes=3)
    leaving: timedelta = timedelta(minutes=2)


class Case(msgspec.Struct, frozen=True):
    """One job, and all around it that may be the reason."""

    job: Job
    now: datetime
    replicas: tuple[Replica, ...] = ()
    # About the job, and about what stands between it and its pods.
    events: tuple[Told, ...] = ()
    claims: Mapping[str, Claim] = {}
    # None: not readable.
    nodes: tuple[Node, ...] | None = None
    # What pods have taken of each node. None: not readable.
    taken: Mapping[str, Mapping[str, Quantity]] | None = None
    gang: Gang | None = None
    # Queues of our scheduler that exist, read where the PodGroup names one. None: not read, or not readable.
    queues: tuple[str, ...] | None = None
    operator: Operator = Operator()
    # The pods of the job could not be read: that there are none means nothing.
    blind: bool = False
    # What could not be read, and why.
    unread: tuple[str, ...] = ()
    patience: Patience = Patience()

    @property
    def touched(self) -> bool:
        """Whether somebody has begun with it. A new job's pods are made before its status is written."""
        return bool(self.job.noticed or self.events or self.replicas or self.gang)

    def replica(self, pod: str) -> Replica | None:
        return next((one for one in self.replicas if one.pod.metadata.name == pod), None)

    def node(self, name: str) -> Node | None:
        return next((one for one in self.nodes or () if one.metadata.name == name), None)

    def since(self, moment: datetime | None) -> timedelta:
        """How long ago; nothing for what never was."""
        return self.now - moment if moment is not None else timedelta()
