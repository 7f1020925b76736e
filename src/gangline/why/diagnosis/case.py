"""All that is known of one job at one moment, as a value. What could not be read is in it too."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Container, ContainerStatus, Node, Pod, PodPhase
from gangline.api.kubeflow.training import Failure
from gangline.api.meta import Condition
from gangline.api.quantity import Quantity


class EventFact(msgspec.Struct, frozen=True):
    """An event, from either of the two API groups."""

    reason: str
    message: str
    warning: bool = False
    time: datetime | None = None
    count: int = 1
    source: str = ""


class ClaimFact(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim that a pod names."""

    name: str
    exists: bool = True
    phase: str = ""
    storage_class: str = ""
    requested_storage: str = ""
    events: tuple[EventFact, ...] = ()


class MountFact(msgspec.Struct, frozen=True):
    """Where a volume is in a container."""

    container: str
    volume: str
    path: str
    read_only: bool = False


class VolumeFact(msgspec.Struct, frozen=True):
    """A volume of a pod: what it is made of, and how large it may grow."""

    name: str
    source: str
    claim: str = ""
    size_limit: str = ""


class ReplicaFacts(msgspec.Struct, frozen=True):
    """One pod of the job, and what belongs to it."""

    # What people call it: `worker-3`; and its type, as the spec spells it.
    name: str
    type: str
    pod: Pod
    # The pod spec in the job that it was made from: `spec.tfReplicaSpecs.Worker.template.spec`.
    template_path: str = "spec.template.spec"
    volumes: tuple[VolumeFact, ...] = ()
    mounts: tuple[MountFact, ...] = ()
    events: tuple[EventFact, ...] = ()
    # The last lines of a container's log: of its present run, and of the one before.
    logs: Mapping[str, tuple[str, ...]] = {}
    previous_logs: Mapping[str, tuple[str, ...]] = {}
    # When the last line was written; what it uses now. None: not readable.
    last_log_at: datetime | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None

    @property
    def container_statuses(self) -> tuple[ContainerStatus, ...]:
        return (*self.pod.status.init_container_statuses, *self.pod.status.container_statuses)

    @property
    def is_up(self) -> bool:
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

    def container_path(self, name: str) -> str:
        """Where the spec of the job has a container: `….containers[0]`."""
        spec = self.pod.spec
        for field, listed in (("containers", spec.containers), ("initContainers", spec.init_containers)):
            for index, one in enumerate(listed):
                if one.name == name:
                    return f"{self.template_path}.{field}[{index}]"
        return f"{self.template_path}.containers[0]"


class JobFacts(msgspec.Struct, frozen=True):
    """What the object itself says, whatever its kind."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    # In one word: Pending, Running, Restarting, Suspended, Succeeded, Failed.
    state: str = "Pending"
    created_at: datetime | None = None
    started_at: datetime | None = None
    # Somebody has written a status.
    has_status: bool = True
    conditions: tuple[Condition, ...] = ()
    suspended: bool = False
    # The field that says so.
    suspend_field: str = "spec.suspend"
    queue: str = ""
    managed_by: str = ""
    # Why the spec cannot run: `path: what to write`.
    problems: tuple[str, ...] = ()
    # Replicas asked for, and what happens to one that fails, by type.
    desired_replicas: Mapping[str, int] = {}
    restart_policies: Mapping[str, str] = {}
    # Where the pod spec of a type is written.
    template_paths: Mapping[str, str] = {}
    deadline: int | None = None
    backoff_limit: int | None = None
    limits_field: str = "spec"
    restarts: int = 0
    # Restarts in a row, and when the last one was.
    restart_streak: int = 0
    last_restart_at: datetime | None = None
    first_failure: Failure | None = None
    # The container that trains; empty: the first.
    container: str = ""
    # One of ours: gangline's verbs work on it.
    is_training_job: bool = True
    # Read from the record of its run: when that ended, and how, if the job had not.
    run_ended_at: datetime | None = None
    run_end_reason: str = ""

    @property
    def is_finished(self) -> bool:
        return self.state in ("Succeeded", "Failed")

    @property
    def desired_total(self) -> int:
        return sum(self.desired_replicas.values())

    def true_condition(self, kind: str) -> Condition | None:
        """A condition that is there and True."""
        return next((one for one in self.conditions if one.type == kind and one.status == "True"), None)


class PodGroupFacts(msgspec.Struct, frozen=True):
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
    is_gangline: bool = False
    reason: str = ""
    attempt_message: str = ""


class OperatorFacts(msgspec.Struct, frozen=True):
    """What is known of whoever should look after the job."""

    # Signs of life, such as a Lease that is renewed; and pods that should be alive and are not.
    signs_of_life: tuple[str, ...] = ()
    unhealthy_pods: tuple[str, ...] = ()
    # What it logged about this job.
    log: tuple[str, ...] = ()
    # Whether all places were readable where it could have been found.
    search_complete: bool = True


class DiagnosisTimeouts(msgspec.Struct, frozen=True):
    """How long something may take before it counts as wrong."""

    unnoticed_after: timedelta = timedelta(seconds=15)
    slow_start_after: timedelta = timedelta(minutes=3)
    hung_after: timedelta = timedelta(minutes=10)
    # A restart after which this long nothing failed is forgiven.
    recovered_after: timedelta = timedelta(minutes=10)
    # A failure is somebody else's echo only so long after it.
    consequence_within: timedelta = timedelta(minutes=3)
    stuck_deleting_after: timedelta = timedelta(minutes=2)


class JobSnapshot(msgspec.Struct, frozen=True):
    """One job, and all around it that may be the reason."""

    job: JobFacts
    now: datetime
    replicas: tuple[ReplicaFacts, ...] = ()
    # About the job, and about what stands between it and its pods.
    events: tuple[EventFact, ...] = ()
    claims: Mapping[str, ClaimFact] = {}
    # None: not readable.
    nodes: tuple[Node, ...] | None = None
    # What pods have taken of each node. None: not readable.
    allocated_by_node: Mapping[str, Mapping[str, Quantity]] | None = None
    pod_group: PodGroupFacts | None = None
    # Queues of our scheduler that exist, read where the PodGroup names one. None: not read, or not readable.
    queues: tuple[str, ...] | None = None
    operator: OperatorFacts = OperatorFacts()
    # The pods of the job could not be read: that there are none means nothing.
    pods_unreadable: bool = False
    # What could not be read, and why.
    unreadable: tuple[str, ...] = ()
    timeouts: DiagnosisTimeouts = DiagnosisTimeouts()

    @property
    def is_acknowledged(self) -> bool:
        """Whether somebody has begun with it. A new job's pods are made before its status is written."""
        return bool(self.job.has_status or self.events or self.replicas or self.pod_group)

    def replica(self, pod: str) -> ReplicaFacts | None:
        return next((one for one in self.replicas if one.pod.metadata.name == pod), None)

    def node(self, name: str) -> Node | None:
        return next((one for one in self.nodes or () if one.metadata.name == name), None)

    def elapsed_since(self, moment: datetime | None) -> timedelta:
        """How long ago; nothing for what never was."""
        return self.now - moment if moment is not None else timedelta()
