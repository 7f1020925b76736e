"""Everything that is known of one job at one moment, as values, including what could not be read."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Container, ContainerStatus, Node, Pod, PodPhase
from gangline.api.kubeflow.training import Failure, RecoveryStatus
from gangline.api.meta import Condition
from gangline.api.quantity import Quantity
from gangline.stacks.model import RankStack


class EventFact(msgspec.Struct, frozen=True):
    """An event, from either of the two API groups."""

    reason: str
    message: str
    warning: bool = False
    # When it was last seen, and when first.
    time: datetime | None = None
    first_seen: datetime | None = None
    count: int = 1
    source: str = ""


class ClaimFact(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim of a pod."""

    name: str
    exists: bool = True
    phase: str = ""
    storage_class: str = ""
    requested_storage: str = ""
    events: tuple[EventFact, ...] = ()


class MountFact(msgspec.Struct, frozen=True):
    """Where a container mounts a volume."""

    container: str
    volume: str
    path: str
    read_only: bool = False


class VolumeFact(msgspec.Struct, frozen=True):
    """A volume of a pod: its source and its size limit."""

    name: str
    source: str
    claim: str = ""
    size_limit: str = ""
    # The ConfigMap or Secret that it shows.
    object_name: str = ""


class ReplicaFacts(msgspec.Struct, frozen=True):
    """One pod of the job, with its events, logs and usage."""

    # The name that people use, such as `worker-3`, and the replica type as the spec spells it.
    name: str
    type: str
    pod: Pod
    # The path in the job of the pod spec that the pod was created from: `spec.tfReplicaSpecs.Worker.template.spec`.
    template_path: str = "spec.template.spec"
    volumes: tuple[VolumeFact, ...] = ()
    mounts: tuple[MountFact, ...] = ()
    # By container: its command with arguments, and the variables that the pod sets to a plain value.
    commands: Mapping[str, tuple[str, ...]] = {}
    variables: Mapping[str, Mapping[str, str]] = {}
    events: tuple[EventFact, ...] = ()
    # The last log lines by container: of the current run and of the previous one.
    logs: Mapping[str, tuple[str, ...]] = {}
    previous_logs: Mapping[str, tuple[str, ...]] = {}
    # By container: when its last error was written (None if it wrote no traceback), and its last line.
    error_times: Mapping[str, tuple[datetime | None, datetime | None]] = {}
    # The time of the last log line, and the current CPU and memory use. None if not readable.
    last_log_at: datetime | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None

    @property
    def container_statuses(self) -> tuple[ContainerStatus, ...]:
        return (*self.pod.status.init_container_statuses, *self.pod.status.container_statuses)

    @property
    def is_up(self) -> bool:
        """Whether all containers of the pod run, or the pod has succeeded."""
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
        """The path of a container in the job's spec: `….containers[0]`."""
        spec = self.pod.spec
        for field, listed in (("containers", spec.containers), ("initContainers", spec.init_containers)):
            for index, one in enumerate(listed):
                if one.name == name:
                    return f"{self.template_path}.{field}[{index}]"
        return f"{self.template_path}.containers[0]"


class JobFacts(msgspec.Struct, frozen=True):
    """What the job object itself says, for every kind of job."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    # One of Pending, Running, Restarting, Suspended, Succeeded, Failed.
    state: str = "Pending"
    created_at: datetime | None = None
    started_at: datetime | None = None
    # Whether a controller has written a status.
    has_status: bool = True
    conditions: tuple[Condition, ...] = ()
    suspended: bool = False
    # The field by which the job is suspended.
    suspend_field: str = "spec.suspend"
    queue: str = ""
    managed_by: str = ""
    # Why the spec is invalid: `path: what to write`.
    problems: tuple[str, ...] = ()
    # By replica type: the desired replicas, and the restart policy.
    desired_replicas: Mapping[str, int] = {}
    restart_policies: Mapping[str, str] = {}
    # How many ranks each replica has (torchrun's nprocPerNode, MPI's slotsPerWorker). None if ranks are not fixed.
    ranks_per_replica: int | None = 1
    # By replica type: the path of the pod spec.
    template_paths: Mapping[str, str] = {}
    deadline: int | None = None
    backoff_limit: int | None = None
    limits_field: str = "spec"
    restarts: int = 0
    # Restarts in a row, and the time of the last one.
    restart_streak: int = 0
    last_restart_at: datetime | None = None
    first_failure: Failure | None = None
    # What the recovery policy did last.
    recovery: RecoveryStatus | None = None
    # The training container; empty for the first container.
    container: str = ""
    # Whether it is a training job, so that gangline's commands work on it.
    is_training_job: bool = True
    # For an archived run: when it ended and, if the job had not finished, why it ended.
    run_ended_at: datetime | None = None
    run_end_reason: str = ""
    # The command line of an archived run; empty for a job of a plane that was stopped.
    run_command: str = ""

    @property
    def is_finished(self) -> bool:
        return self.state in ("Succeeded", "Failed")

    @property
    def desired_total(self) -> int:
        return sum(self.desired_replicas.values())

    def true_condition(self, kind: str) -> Condition | None:
        """The condition of this type if it is True; else None."""
        return next((one for one in self.conditions if one.type == kind and one.status == "True"), None)


class PodGroupFacts(msgspec.Struct, frozen=True):
    """A PodGroup of the job."""

    name: str
    phase: str = ""
    min_member: int = 0
    scheduled: int = 0
    message: str = ""
    queue: str = ""
    # Three schedulers have PodGroups: this is the full resource name of this one.
    resource: str = "podgroup"
    # Our scheduler gives a one-word reason, and the result of its last attempt: how far the gang is from fitting.
    is_gangline: bool = False
    reason: str = ""
    attempt_message: str = ""


class OperatorFacts(msgspec.Struct, frozen=True):
    """What is known of the operator that should run the job."""

    # Signs of life, such as a renewed Lease; and operator pods that should be running but are not.
    signs_of_life: tuple[str, ...] = ()
    unhealthy_pods: tuple[str, ...] = ()
    # The operator's log lines about this job.
    log: tuple[str, ...] = ()
    # Whether everything where the operator could have been found was readable.
    search_complete: bool = True


class DiagnosisTimeouts(msgspec.Struct, frozen=True):
    """How long something may take before it counts as wrong."""

    unnoticed_after: timedelta = timedelta(seconds=15)
    slow_start_after: timedelta = timedelta(minutes=3)
    hung_after: timedelta = timedelta(minutes=1)
    # A restart that was followed by this long without failures is no longer reported.
    recovered_after: timedelta = timedelta(minutes=10)
    # A failure counts as the consequence of another one only if it follows within this time.
    consequence_within: timedelta = timedelta(minutes=3)
    stuck_deleting_after: timedelta = timedelta(minutes=2)


class JobSnapshot(msgspec.Struct, frozen=True):
    """One job and everything around it that may be a cause."""

    job: JobFacts
    now: datetime
    replicas: tuple[ReplicaFacts, ...] = ()
    # Events about the job and about the objects between the job and its pods.
    events: tuple[EventFact, ...] = ()
    # Events about the pod that failed first, which may be gone.
    first_failure_events: tuple[EventFact, ...] = ()
    claims: Mapping[str, ClaimFact] = {}
    # None if not readable.
    nodes: tuple[Node, ...] | None = None
    # What pods use of each node. None if not readable.
    allocated_by_node: Mapping[str, Mapping[str, Quantity]] | None = None
    pod_group: PodGroupFacts | None = None
    # The queues of our scheduler, read only if the PodGroup names one. None if not read or not readable.
    queues: tuple[str, ...] | None = None
    operator: OperatorFacts = OperatorFacts()
    # The job's pods could not be read, so an empty list of replicas means nothing.
    pods_unreadable: bool = False
    # Why the CPU and memory use of the pods could not be read. Only the detection of hangs needs it.
    usage_error: str = ""
    # Where the ranks stand, read only of a silent job; and the replicas that stood there some seconds later, too.
    stacks: tuple[RankStack, ...] = ()
    unmoved: frozenset[str] = frozenset()
    # What could not be read, and why.
    unreadable: tuple[str, ...] = ()
    timeouts: DiagnosisTimeouts = DiagnosisTimeouts()

    @property
    def is_acknowledged(self) -> bool:
        """Whether an operator has started on the job. The pods of a new job are created before its status is written."""
        return bool(self.job.has_status or self.events or self.replicas or self.pod_group)

    def replica(self, pod: str) -> ReplicaFacts | None:
        return next((one for one in self.replicas if one.pod.metadata.name == pod), None)

    def node(self, name: str) -> Node | None:
        return next((one for one in self.nodes or () if one.metadata.name == name), None)

    def elapsed_since(self, moment: datetime | None) -> timedelta:
        """The time since a moment; zero if there is no such moment."""
        return self.now - moment if moment is not None else timedelta()
