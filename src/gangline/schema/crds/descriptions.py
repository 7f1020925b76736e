"""Descriptions of our fields, as `kubectl explain` shows them."""

from collections.abc import Mapping

from gangline.api.kubeflow.kinds import (
    ElasticPolicy,
    JAXJobSpec,
    MPIJobSpec,
    MPIJobV2Spec,
    PaddleElasticPolicy,
    PaddleJobSpec,
    PyTorchJobSpec,
    RDZVConf,
    TFJobSpec,
    XGBoostJobSpec,
)
from gangline.api.kubeflow.training import (
    ExcludedNode,
    Failure,
    GoodputLedger,
    JobProgress,
    JobStatus,
    ReachedStep,
    RecoveryStatus,
    ReplicaSpec,
    ReplicaStatus,
    RunPolicy,
    SchedulingPolicy,
)
from gangline.api.meta import Condition

KIND_DESCRIPTION = "A training job: replicas of one or more types that work together, and rules for running them."
SPEC_DESCRIPTION = "The desired state."
STATUS_DESCRIPTION = "The observed state, which the operator writes."
_RUN_POLICY_DESCRIPTION = "How the job runs: when it ends, what happens to its pods then, who manages it."
_METRICS_DESCRIPTION = "Metrics of autoscaling/v2 by which workers are added and removed."
_MAX_RESTARTS_DESCRIPTION = "How often workers may be restarted."
_MIN_REPLICAS_DESCRIPTION, _MAX_REPLICAS_DESCRIPTION = (
    "The fewest workers that can train.",
    "The most workers that can train.",
)

_SPEC_FIELDS: dict[tuple[type, str], str] = {
    (TFJobSpec, "tfReplicaSpecs"): "Replicas by type: Chief or Master, Evaluator, PS, Worker, in any case.",
    (TFJobSpec, "successPolicy"): (
        "When the job has succeeded. AllWorkers: when all workers have. Empty: when the Chief or Master has, or, "
        "without one, worker 0."
    ),
    (TFJobSpec, "enableDynamicWorker"): (
        "Workers may be added and removed: each gets the addresses of itself and of the PS only, and failed workers do not fail the job."
    ),
    (PyTorchJobSpec, "pytorchReplicaSpecs"): "Replicas by type: Master (one) and Worker.",
    (PyTorchJobSpec, "nprocPerNode"): "Processes per pod: auto, cpu, gpu, or a number as text. Default: auto.",
    (PyTorchJobSpec, "elasticPolicy"): "Train with a number of workers that may change, under torchrun.",
    (XGBoostJobSpec, "xgbReplicaSpecs"): "Replicas by type: Master (one, needed) and Worker.",
    (MPIJobSpec, "mpiReplicaSpecs"): "Replicas by type: Launcher (one, needed) and Worker.",
    (MPIJobSpec, "slotsPerWorker"): "How many processes the host file allows on each worker.",
    (MPIJobSpec, "mainContainer"): "The container of a worker in which processes are started. Default: the first.",
    (MPIJobSpec, "cleanPodPolicy"): "The older name of runPolicy.cleanPodPolicy, which takes precedence.",
    (MPIJobV2Spec, "mpiReplicaSpecs"): "Replicas by type: Launcher (one, needed) and Worker.",
    (MPIJobV2Spec, "slotsPerWorker"): "How many processes the host file allows on each worker.",
    **{
        (spec, name): text
        for spec in (MPIJobSpec, MPIJobV2Spec)
        for name, text in {
            "mpiImplementation": (
                "The MPI whose variables and host file the launcher gets: OpenMPI, Intel or MPICH. A job with this field "
                "starts its ranks by SSH, as v2beta1 does."
            ),
            "sshAuthMountPath": "The folder in which the SSH keys of the job are mounted.",
            "launcherCreationPolicy": (
                "When the launcher is created: AtStartup, together with the workers, or WaitForWorkersReady."
            ),
            "runLauncherAsWorker": "Whether ranks run in the launcher, too.",
        }.items()
    },
    (PaddleJobSpec, "paddleReplicaSpecs"): "Replicas by type: Master and Worker.",
    (PaddleJobSpec, "elasticPolicy"): "Accepted for compatibility with v1; it has no effect.",
    (JAXJobSpec, "jaxReplicaSpecs"): "Replicas by type: Worker. Worker 0 is the coordinator.",
    **{
        (spec, "runPolicy"): _RUN_POLICY_DESCRIPTION
        for spec in (TFJobSpec, PyTorchJobSpec, XGBoostJobSpec, MPIJobSpec, MPIJobV2Spec, PaddleJobSpec, JAXJobSpec)
    },
}
_ELASTIC_FIELDS: dict[tuple[type, str], str] = {
    (ElasticPolicy, "minReplicas"): _MIN_REPLICAS_DESCRIPTION,
    (ElasticPolicy, "maxReplicas"): _MAX_REPLICAS_DESCRIPTION,
    (ElasticPolicy, "rdzvBackend"): "How workers find each other: c10d, etcd or etcd-v2. Default: c10d.",
    (ElasticPolicy, "rdzvPort"): "The port of the rendezvous. Default: the port of the workers.",
    (ElasticPolicy, "rdzvHost"): "The host of the rendezvous. Default: worker 0.",
    (ElasticPolicy, "rdzvId"): "The name of the rendezvous.",
    (ElasticPolicy, "rdzvConf"): "More options of the rendezvous.",
    (ElasticPolicy, "standalone"): "Each pod is a rendezvous of its own.",
    (ElasticPolicy, "nProcPerNode"): "Deprecated: write spec.nprocPerNode.",
    (ElasticPolicy, "maxRestarts"): _MAX_RESTARTS_DESCRIPTION,
    (ElasticPolicy, "metrics"): _METRICS_DESCRIPTION,
    (RDZVConf, "key"): "The name of the option.",
    (RDZVConf, "value"): "Its value.",
    (PaddleElasticPolicy, "minReplicas"): _MIN_REPLICAS_DESCRIPTION,
    (PaddleElasticPolicy, "maxReplicas"): _MAX_REPLICAS_DESCRIPTION,
    (PaddleElasticPolicy, "maxRestarts"): _MAX_RESTARTS_DESCRIPTION,
    (PaddleElasticPolicy, "metrics"): _METRICS_DESCRIPTION,
}
_POLICY_FIELDS: dict[tuple[type, str], str] = {
    (ReplicaSpec, "replicas"): "How many replicas of this type.",
    (ReplicaSpec, "restartPolicy"): (
        "What happens when a replica ends: Always, OnFailure, Never, or ExitCode, which restarts after exit codes "
        "from 128 on and fails the job after others."
    ),
    (ReplicaSpec, "template"): "The pod of each replica.",
    (RunPolicy, "cleanPodPolicy"): "Which pods are deleted when the job has finished: All, Running or None.",
    (RunPolicy, "ttlSecondsAfterFinished"): "Delete the job so many seconds after it finished. Default: never.",
    (RunPolicy, "activeDeadlineSeconds"): "Fail the job when it has run for so many seconds. Default: never.",
    (RunPolicy, "backoffLimit"): "Fail the job when its replicas were restarted more often. Default: no limit.",
    (RunPolicy, "schedulingPolicy"): "Settings for the gang scheduler.",
    (RunPolicy, "suspend"): "Delete the pods, and make no new ones until this is false again.",
    (RunPolicy, "managedBy"): (
        "Who runs the job: kubeflow.org/training-operator, which is the default, or kueue.x-k8s.io/multikueue. "
        "Cannot be changed."
    ),
    (RunPolicy, "restartScope"): (
        "What is restarted when a replica failed and may be: the Replica alone, which is the default, or the whole Job, "
        "whose new pods wait until the last old one is gone. A failure under restartPolicy Never ends the job."
    ),
    (RunPolicy, "recovery"): (
        "What follows from which cause of a failure: auto, or rules. Default: restartPolicy decides, as in v1."
    ),
    (SchedulingPolicy, "minAvailable"): "How many pods must fit at once for any to start. Default: all.",
    (SchedulingPolicy, "queue"): "The queue of the job. Once set, it cannot be changed.",
    (SchedulingPolicy, "minResources"): "What the pods need at least. Default: what those of minAvailable ask for.",
    (SchedulingPolicy, "priorityClass"): "The priority class of the group of pods.",
    (SchedulingPolicy, "scheduleTimeoutSeconds"): "How long the scheduler waits for all pods to fit.",
}
_STATUS_FIELDS: dict[tuple[type, str], str] = {
    (JobStatus, "conditions"): "The history of the job; the newest condition is last.",
    (JobStatus, "replicaStatuses"): "Counts of replicas by type.",
    (JobStatus, "startTime"): "When the job was started, or resumed.",
    (JobStatus, "completionTime"): "When the job succeeded or failed.",
    (JobStatus, "lastReconcileTime"): "When the operator last reconciled a job that waits for its PodGroup.",
    (JobStatus, "phase"): "The phase of the job: empty, Creating, Running, CleanUp, Failed or Done.",
    (JobStatus, "state"): "How the job is doing: Unknown, Running, Succeeded or Failed.",
    (JobStatus, "observedGeneration"): "The generation of the spec that this status is about.",
    (JobStatus, "restarts"): "How often replicas were restarted.",
    (JobStatus, "firstFailure"): "The replica that failed first, even if it was replaced since, and how.",
    (JobStatus, "progress"): "How far the training is, where its program reports that.",
    (JobStatus, "goodput"): "What the time of the replicas went into.",
    (GoodputLedger, "since"): "When the count began: with the creation of the job.",
    (GoodputLedger, "until"): "When it was last brought up to date.",
    (GoodputLedger, "seconds"): "Seconds of all replicas together: queueing, starting, working, checkpointing, "
    "recomputing, stalled and idle.",
    (GoodputLedger, "replicas"): "What the replicas do since then: their number by activity.",
    (GoodputLedger, "formedRound"): "The round of restarts in which all replicas have run. Internal.",
    (GoodputLedger, "reached"): "The furthest step that was reported. Internal.",
    (ReachedStep, "step"): "The step.",
    (ReachedStep, "process"): "The process that reports.",
    (ReachedStep, "report"): "A checksum of its last report.",
    (ReachedStep, "repeating"): "Whether it was restarted and has not reported the step again.",
    (JobStatus, "recovery"): "What the recovery policy did last, and why.",
    (JobStatus, "ledger"): "Internal records of the operator.",
    (
        RecoveryStatus,
        "action",
    ): "What was done: Fail, Stop, RestartReplica, RestartJob, RestartElsewhere, RaiseMemory or Retry.",
    (RecoveryStatus, "cause"): "The cause, by its name in why.",
    (RecoveryStatus, "message"): "What was done and why, as a sentence.",
    (RecoveryStatus, "replica"): "The replica that failed first.",
    (RecoveryStatus, "node"): "The node on which it failed.",
    (RecoveryStatus, "time"): "When it was done.",
    (RecoveryStatus, "counts"): "How often each rule has restarted the job.",
    (RecoveryStatus, "uncounted"): "Restarts that do not count against backoffLimit.",
    (RecoveryStatus, "excludedNodes"): "Nodes on which new pods do not start for a while.",
    (RecoveryStatus, "memory"): "The memory limit by replica type, where it was raised.",
    (ExcludedNode, "name"): "The name of the node.",
    (ExcludedNode, "until"): "When it is forgiven.",
    (ExcludedNode, "since"): "When it failed.",
    (ExcludedNode, "cause"): "The cause, by its name in why.",
    (JobProgress, "step"): "The step that is done.",
    (JobProgress, "total"): "The step at which the training ends.",
    (JobProgress, "metrics"): "What else was reported: the loss, the accuracy.",
    (JobProgress, "estimatedRemainingSeconds"): "How long the rest takes, in seconds, as reported or as computed.",
    (JobProgress, "replica"): "The type and index of the replica that reports.",
    (JobProgress, "updated"): "When this was last written.",
    (ReplicaStatus, "active"): "Replicas that run.",
    (ReplicaStatus, "succeeded"): "Replicas that succeeded.",
    (ReplicaStatus, "failed"): "Replicas that failed.",
    (ReplicaStatus, "selector"): "The labels of the pods, for autoscalers.",
    (ReplicaStatus, "state"): "How replicas of this type are doing: Unknown, Running, Succeeded or Failed.",
    (ReplicaStatus, "states"): "Counts of replicas by state.",
    (Condition, "type"): "Created, Running, Restarting, Suspended, Succeeded, Failed, Blocked or Stalled.",
    (Condition, "status"): "True, False or Unknown.",
    (Condition, "reason"): "Why, as one word.",
    (Condition, "message"): "Why, as a sentence.",
    (Condition, "observedGeneration"): "The generation of the spec that this is about.",
    (Condition, "lastUpdateTime"): "When this was last written.",
    (Condition, "lastTransitionTime"): "When the status last changed.",
    (Failure, "replica"): "The type and index of the replica.",
    (Failure, "rank"): "The framework's number of the replica; absent if it has none, or several.",
    (Failure, "pod"): "Its pod.",
    (Failure, "exitCode"): "The exit code of the container that trains.",
    (Failure, "signal"): "The signal that ended it, if one did.",
    (Failure, "reason"): "Why, as Kubernetes has it: OOMKilled, Error, Evicted.",
    (Failure, "message"): "What Kubernetes says about it.",
    (Failure, "time"): "When it failed.",
    (Failure, "began"): "When it began to fail, if that is known more exactly: when it wrote its error, else its end.",
    (Failure, "orderUnknown"): "Other replicas failed in the same second, and nothing says which one was first.",
    (Failure, "log"): "The last lines that it wrote.",
}
FIELD_DESCRIPTIONS: Mapping[tuple[type, str], str] = {
    **_SPEC_FIELDS,
    **_ELASTIC_FIELDS,
    **_POLICY_FIELDS,
    **_STATUS_FIELDS,
}
