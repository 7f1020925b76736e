"""What all kinds of training job share on the wire: replicas, run policy, status (`kubeflow.org/v1`).

The status is the v1 one, plus what gangline adds: the life cycle (`phase`, `state`, and both per replica type),
`observedGeneration`, `restarts`, `firstFailure`, `progress`, `goodput`, `recovery`, and the `ledger` from which
restarts are counted exactly once.
"""

from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import msgspec

from gangline.api.meta import JSON, ApiStruct, Condition, MicroTime, Object, Time
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource

GROUP = "kubeflow.org"
VERSION = "v1"

JOB_NAME = "training.kubeflow.org/job-name"
"""Label of every object that a job owns: the name of the job."""
OPERATOR_NAME = "training.kubeflow.org/operator-name"
"""Label of every object that a job owns: the controller of its kind, such as `tfjob-controller`."""
REPLICA_TYPE = "training.kubeflow.org/replica-type"
"""Label of pods and services: the replica type in lower case."""
REPLICA_INDEX = "training.kubeflow.org/replica-index"
"""Label of pods and services: the index of the replica within its type, from 0. A launcher has none."""
JOB_ROLE = "training.kubeflow.org/job-role"
"""Label of a pod: `master` for the leading replica."""

RESTART_SCOPE_ANNOTATION = "training.gangline.dev/restart-scope"
"""Annotation of a job: `Job` restarts the whole gang when one replica fails. The same as `runPolicy.restartScope`."""
SUCCESS_POLICY_ANNOTATION = "training.gangline.dev/success-policy"
"""Annotation of a job: with `AllReplicas` it succeeds when all of its replicas have, not with its leader as in v1."""
ALL_REPLICAS = "AllReplicas"
ROUND_ANNOTATION = "training.gangline.dev/round"
"""Annotation of a pod: how many times the gang had been restarted when this pod was created. Absent means never."""
PROGRESS_ANNOTATION = "training.gangline.dev/progress"
"""Annotation of a pod: the last progress line of its program. The node, the operator or a sidecar writes it."""
PROGRESS_TIME_ANNOTATION = "training.gangline.dev/progress-time"
"""Annotation of a pod: when that line was reported. Of several operators none replaces a newer line by an older one."""
REPORT_PROGRESS_ANNOTATION = "training.gangline.dev/report-progress"
"""Annotation of a job: whether its pods get what they need to report progress to the operator, `true` or `false`."""
PROGRESS_CA_ANNOTATION = "training.gangline.dev/progress-ca"
"""Annotation of a pod: the certificate authority of the operator's endpoint for progress, in PEM."""
PROGRESS_AUDIENCE = "progress.training.gangline.dev"
"""The end of the audience of every token with which a pod reports progress."""

ADDRESSES_ANNOTATION = "local.gangline.dev/addresses"
"""Annotation of a Service on the local control plane: the real addresses of its ports, as JSON by port name."""
ENDED_AT_ANNOTATION = "local.gangline.dev/ended-at"
"""On a pod whose container failed: when its processes ended, to the microsecond, by container id. As JSON."""
DRILL_ANNOTATION = "local.gangline.dev/drill"
"""Annotation of a pod: a fault that its local node shall provoke in it, as JSON."""
DRILL_RESULT_ANNOTATION = "local.gangline.dev/drilled"
"""Annotation of a pod: the node's response to that request."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a job: the queue of Kueue in which it waits."""
RUN_ENDED_ANNOTATION = "local.gangline.dev/run-ended"
"""Annotation of an archived job: when its run ended and, if the job had not finished, a space and the reason."""
RUN_COMMAND_ANNOTATION = "local.gangline.dev/run-command"
"""Annotation of an archived job: the command line that ran it, with its folder: `cd FOLDER && gangline run ...`."""

OUR_MANAGER = "kubeflow.org/training-operator"
"""The value of `runPolicy.managedBy` that means this operator, as does an absent field."""
MPI_OPERATOR_MANAGER = "kubeflow.org/mpi-operator"
"""The value that means this operator in MPIJobs of v2beta1."""
MULTIKUEUE_MANAGER = "kueue.x-k8s.io/multikueue"


TRAINING_JOBS_CATEGORY = "trainingjobs"
"""The category of every training-job kind. Custom kinds of other operators are found by it."""


class ConditionType(StrEnum):
    CREATED = "Created"
    """The operator has accepted the job."""
    RUNNING = "Running"
    """The replicas that count for this kind run."""
    RESTARTING = "Restarting"
    """A replica, or all of them, are being replaced."""
    SUSPENDED = "Suspended"
    """`runPolicy.suspend` is true: the job has no pods."""
    SUCCEEDED = "Succeeded"
    """The job has ended well. Final."""
    FAILED = "Failed"
    """The job has failed, and the message says why. Final."""
    BLOCKED = "Blocked"
    """gangline's own: the server rejects an object that the job needs (quota, pod security). The operator retries."""
    STALLED = "Stalled"
    """gangline's own: the job runs and makes no progress. A job that never stalled does not have it."""


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
    """The life-cycle phase of a job."""

    NONE = ""
    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class RunState(StrEnum):
    """The state of a job, of a replica type or of one replica."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Port(NamedTuple):
    """The default port by which replicas find each other; the template may name another."""

    name: str
    number: int


class ReplicaSpec(ApiStruct, frozen=True):
    replicas: int | None = None
    # The template stays JSON: it is passed on with all its fields, known to us or not.
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
    # gangline's own: whether a failed replica is replaced alone, or the whole gang is restarted.
    restart_scope: str = ""
    # gangline's own: what follows from which cause, `auto` or rules. `jobs.plan.recovery.policy` reads it.
    recovery: Any = None


class ReplicaStatus(ApiStruct, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str = ""
    state: str = ""
    # Replicas by state. The sum is the number of desired replicas.
    states: dict[str, int] = {}


class Failure(ApiStruct, frozen=True):
    """The replica that failed first, and how it failed."""

    replica: str
    # The framework's number of the replica; absent if it has none, or several.
    rank: int | None = None
    pod: str = ""
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""
    time: Time | None = None
    # When it began to fail, if that is known more exactly: when it wrote its error, else when its process ended.
    began: MicroTime | None = None
    # Other replicas failed in the same second, and nothing says which one was first.
    order_unknown: bool = False
    log: tuple[str, ...] = ()


class ExcludedNode(ApiStruct, frozen=True):
    """A node on which new pods of a job do not start for a while, because it failed there."""

    name: str
    until: Time
    since: Time | None = None
    cause: str = ""


class RecoveryStatus(ApiStruct, frozen=True):
    """What the recovery policy of a job did last, why, and what new pods get from it."""

    action: str = ""
    cause: str = ""
    message: str = ""
    replica: str = ""
    node: str = ""
    time: Time | None = None
    # By rule: how often it has restarted the job.
    counts: dict[str, int] = {}
    # The part of `restarts` that does not count against backoffLimit.
    uncounted: int = 0
    excluded_nodes: tuple[ExcludedNode, ...] = ()
    # By replica type: the memory limit, where it was raised.
    memory: dict[str, str] = {}


class JobProgress(ApiStruct, frozen=True):
    """The progress of the training, as the first of chief, master, launcher, worker 0 ... reports it."""

    step: int | float
    # The final step, if the program reports it.
    total: int | float | None = None
    metrics: dict[str, int | float] = {}
    # As reported, else computed from the steps; absent if neither is possible, or the job has finished.
    estimated_remaining_seconds: int | None = None
    replica: str = ""
    updated: Time | None = None


class ReachedStep(ApiStruct, frozen=True):
    """The furthest step that a job has reported, and whether it works its way back to it after a restart."""

    step: int | float
    # The process that reports: the uid of its pod and its number of restarts.
    process: str = ""
    # A checksum of its last report: one from before a restart is not counted again.
    report: int = 0
    # The process was restarted, and has not reported the step again.
    repeating: bool = False


class GoodputLedger(ApiStruct, frozen=True):
    """What the time of all replicas went into, in whole seconds. The sum is replicas times time, without suspensions."""

    since: Time
    until: Time
    # Seconds by activity, all replicas together.
    seconds: dict[str, int] = {}
    # What the replicas do since then: their number by activity. Empty when the job has finished or is suspended.
    replicas: dict[str, int] = {}
    # The round of the gang in which all of its replicas have run; absent if that never was so.
    formed_round: int | None = None
    reached: ReachedStep | None = None


class InPlaceRestart(ApiStruct, frozen=True):
    """A restart of processes in the pods that they were in, which is not complete yet."""

    number: int
    since: Time
    # The replicas that restart; empty: all.
    replicas: tuple[str, ...] = ()


class RestartLedger(ApiStruct, frozen=True):
    """What must survive a restart of the operator, so that each restart of a replica is counted exactly once."""

    # Existing pods by uid: how many of their container restarts are included in `restarts`.
    counted: dict[str, int] = {}
    # The part of `restarts` that the kubelet did inside a pod.
    in_place: int = 0
    # The uids of failed pods that are counted and still being deleted.
    replaced: tuple[str, ...] = ()
    # How often the whole gang was restarted or suspended, and the round in which it got its present addresses.
    round: int = 0
    addresses: int = 0
    # The round of `firstFailure`.
    failed_round: int = 0
    # The rounds that began because a port was taken, the gang did not fit, or the job was suspended. They do not count as
    # restarts of the job.
    renewals: int = 0
    # Since when the gang had not fit, at the last restart for that reason.
    regrouped: Time | None = None
    # Since when the gang had been waiting to be placed, at the last event about it.
    waited: Time | None = None
    # The job was suspended: no pod is created before those that are being deleted are gone.
    draining: bool = False
    # Every replica of this round has had a pod: a missing pod was lost.
    complete: bool = False
    # A limit was reached: every pod is deleted, whatever the clean-up policy says.
    clear: bool = False
    # Restarts in a row without a long run between them, and the time before which no pod is created again.
    streak: int = 0
    not_before: Time | None = None
    # The restart in place that is under way.
    restarting_in_place: InPlaceRestart | None = None


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
    # Present only if a program reports progress.
    progress: JobProgress | None = None
    goodput: GoodputLedger | None = None
    # Present only if the recovery policy has acted.
    recovery: RecoveryStatus | None = None
    ledger: RestartLedger = RestartLedger()

    def condition(self, kind: ConditionType) -> Condition | None:
        return next((found for found in self.conditions if found.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether the condition is present and True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        return self.holds(ConditionType.SUCCEEDED) or self.holds(ConditionType.FAILED)


class TrainingJob(Object, frozen=True):
    """A training job of any kind, with the fields that the job engine reads."""

    API_VERSION: ClassVar[str] = f"{GROUP}/{VERSION}"
    KIND: ClassVar[str]
    status: JobStatus = msgspec.field(default_factory=JobStatus)

    @property
    def is_of_this_api(self) -> bool:
        """Whether the job was written for this API version: versions of one kind are served as views of all of its jobs."""
        return True


class JobKind(msgspec.Struct, frozen=True):
    """The facts of one job kind: where its replicas are in the spec, their types, their defaults."""

    model: type[TrainingJob]
    plural: str
    # The name of the replica map: on the wire, and as an attribute of the spec.
    replicas: str
    attribute: str
    # The known replica types, in the order in which their pods are created.
    types: tuple[str, ...]
    # The name of the training container.
    container: str
    port: Port | None
    restart_policy: RestartPolicy = RestartPolicy.NEVER
    # The default number of replicas by type; 1 for a type that is not listed.
    default_replicas: dict[str, int] = {}
    # Types that have at most one replica, and the type that every job must have.
    single: tuple[str, ...] = ()
    needed: str = ""
    scalable: bool = False
    # The name of the controller, if it is not made from that of the kind.
    controller_name: str = ""

    @property
    def kind(self) -> str:
        return self.model.KIND

    @property
    def resource(self) -> Resource[Any]:
        group, _, version = self.model.API_VERSION.rpartition("/")
        return Resource(group, version, self.kind, self.plural, self.model)

    @property
    def controller(self) -> str:
        """The value of the operator-name label, which is also the source of events."""
        return self.controller_name or f"{self.kind.lower()}-controller"

    @property
    def scheme(self) -> str:
        """The name by which `--enable-scheme` enables it: the kind, with its version if that is not v1."""
        version = self.resource.version
        return self.kind if version == VERSION else f"{self.kind}.{version}"
