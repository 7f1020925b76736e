"""What all kinds of training job share on the wire: replicas, run policy, status (`kubeflow.org/v1`).

The status is the v1 one, plus what gangline adds: the life cycle (`phase`, `state`, and both per replica type),
`observedGeneration`, `restarts`, `firstFailure`, `progress`, and the `ledger` from which restarts are counted exactly
once.
"""

from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import msgspec

from gangline.api.meta import JSON, ApiStruct, Condition, Object, Time
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource

GROUP = "kubeflow.org"
VERSION = "v1"

JOB_NAME = "training.kubeflow.org/job-name"
"""Label of everything that a job owns: the job's name."""
OPERATOR_NAME = "training.kubeflow.org/operator-name"
"""Label of everything that a job owns: the controller of its kind, such as `tfjob-controller`."""
REPLICA_TYPE = "training.kubeflow.org/replica-type"
"""Label of pods and services: the replica type in lower case."""
REPLICA_INDEX = "training.kubeflow.org/replica-index"
"""Label of pods and services: which replica of its type, from 0. A launcher has none."""
JOB_ROLE = "training.kubeflow.org/job-role"
"""Label of a pod: `master` for the one that leads."""

RESTART_SCOPE_ANNOTATION = "training.gangline.dev/restart-scope"
"""Annotation of a job: `Job` restarts the whole team when one replica failed. The same as `runPolicy.restartScope`."""
ROUND_ANNOTATION = "training.gangline.dev/round"
"""Annotation of a pod: how many times its team had been started anew when it was made. Absent: never."""
PROGRESS_ANNOTATION = "training.gangline.dev/progress"
"""Annotation of a pod: the last line by which its program reported progress. Its node writes it, or a sidecar."""

ADDRESSES_ANNOTATION = "local.gangline.dev/addresses"
"""Annotation of a Service on the local plane: its ports' real addresses, as JSON by port name."""
DRILL_ANNOTATION = "local.gangline.dev/drill"
"""Annotation of a pod: a fault that its (local) node is to provoke in it, as JSON."""
DRILL_RESULT_ANNOTATION = "local.gangline.dev/drilled"
"""Annotation of a pod: what its node answers to that."""

RUN_ENDED_ANNOTATION = "local.gangline.dev/run-ended"
"""Annotation of a job in the record of its run: when that ended and, if the job had not, after a blank, how."""

OUR_MANAGER = "kubeflow.org/training-operator"
"""The value of `runPolicy.managedBy` that, like none, means this operator."""
MULTIKUEUE_MANAGER = "kueue.x-k8s.io/multikueue"


TRAINING_JOBS_CATEGORY = "trainingjobs"
"""The category of every kind of training job: what follows the contract is found by it, whoever's operator it has."""


class ConditionType(StrEnum):
    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    BLOCKED = "Blocked"
    """Ours: the server refuses what the job needs (quota, pod security); tried again."""


class CleanPodPolicy(StrEnum):
    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class RestartPolicy(StrEnum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class RestartScope(StrEnum):
    REPLICA = "Replica"
    JOB = "Job"


class JobPhase(StrEnum):
    """How far a job is."""

    NONE = ""
    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class RunState(StrEnum):
    """How a job, a replica type or one replica is doing."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Port(NamedTuple):
    """The port through which members find each other, unless the template says otherwise."""

    name: str
    number: int


class ReplicaSpec(ApiStruct, frozen=True):
    replicas: int | None = None
    # A template stays JSON: we add to it and pass it on whole, whatever fields it has.
    template: JSON = {}
    restart_policy: str = ""


class SchedulingPolicy(ApiStruct, frozen=True):
    min_available: int | None = None
    queue: str = ""
    min_resources: dict[str, QuantityText] | None = None
    priority_class: str = ""
    schedule_timeout_seconds: int | None = None


class RunPolicy(ApiStruct, frozen=True):
    clean_pod_policy: str = ""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool = False
    managed_by: str | None = None
    # Ours: whether a failed replica is replaced alone, or the whole team is started anew.
    restart_scope: str = ""


class ReplicaStatus(ApiStruct, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str = ""
    state: str = ""
    # Replicas by state; sums up to the replicas asked for.
    states: dict[str, int] = {}


class Failure(ApiStruct, frozen=True):
    """Who failed first, and how."""

    replica: str
    pod: str = ""
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""
    time: Time | None = None
    log: tuple[str, ...] = ()


class JobProgress(ApiStruct, frozen=True):
    """How far the training is, as its lead reports it: the first of chief, master, launcher, worker 0 … that does."""

    step: int | float
    # What the step will be in the end, if the program says so.
    total: int | float | None = None
    metrics: dict[str, int | float] = {}
    replica: str = ""
    updated: Time | None = None


class RestartLedger(ApiStruct, frozen=True):
    """What must survive the operator, so that a restart is counted once and only once."""

    # Pods that are still there, by uid: how many restarts inside them are in `restarts` already.
    counted: dict[str, int] = {}
    # Of `restarts`: those that the kubelet did, inside a pod that stayed.
    in_place: int = 0
    # Failed pods, by uid, that are counted already and still on their way out.
    replaced: tuple[str, ...] = ()
    # How often the whole team was started anew; and the round in which it got the addresses it has.
    round: int = 0
    addresses: int = 0
    # Of the rounds: those begun because a port was taken or a gang had no room, which are no restarts of the job's own.
    renewals: int = 0
    # Since when the gang had no room, the last time its team was started anew for that.
    regrouped: Time | None = None
    # Since when the gang had waited for its places, the last time that was told.
    waited: Time | None = None
    # Every seat of this round has had its pod: one that is missing now was lost.
    complete: bool = False
    # A limit was reached: every pod goes, whatever the clean-up policy says.
    clear: bool = False
    # Restarts in a row, none of which held for long; and before when nothing is created again.
    streak: int = 0
    not_before: Time | None = None


class JobStatus(ApiStruct, frozen=True):
    conditions: tuple[Condition, ...] = ()
    replica_statuses: dict[str, ReplicaStatus] = {}
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    phase: str = ""
    state: str = ""
    observed_generation: int = 0
    restarts: int = 0
    first_failure: Failure | None = None
    # Only where a program reports.
    progress: JobProgress | None = None
    ledger: RestartLedger = RestartLedger()

    def condition(self, kind: ConditionType) -> Condition | None:
        return next((found for found in self.conditions if found.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether that condition is there and True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        return self.holds(ConditionType.SUCCEEDED) or self.holds(ConditionType.FAILED)


class TrainingJob(Object, frozen=True):
    """Any kind of training job: what the engine reads of all of them."""

    API_VERSION: ClassVar[str] = f"{GROUP}/{VERSION}"
    KIND: ClassVar[str]
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class JobKind(msgspec.Struct, frozen=True):
    """The facts of one kind: where its replicas are, what they are called, what is assumed of them."""

    model: type[TrainingJob]
    plural: str
    # The replica map: its name on the wire, and as an attribute of the spec.
    replicas: str
    attribute: str
    # Known replica types, in the order in which they are made.
    types: tuple[str, ...]
    # The container that trains.
    container: str
    port: Port | None
    restart_policy: RestartPolicy = RestartPolicy.NEVER
    # Replicas of a type when none are written; one unless listed.
    default_replicas: dict[str, int] = {}
    # Types of which a job has one replica at most, and the one that it cannot do without.
    single: tuple[str, ...] = ()
    needed: str = ""
    scalable: bool = False

    @property
    def kind(self) -> str:
        return self.model.KIND

    @property
    def resource(self) -> Resource[Any]:
        group, _, version = self.model.API_VERSION.rpartition("/")
        return Resource(group, version, self.kind, self.plural, self.model)

    @property
    def controller(self) -> str:
        """The value of the operator-name label, and the source of events."""
        return f"{self.kind.lower()}-controller"
