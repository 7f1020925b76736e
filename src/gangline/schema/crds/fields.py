"""Keywords that the types of our structs do not imply: bounds, enums, defaults and rules of each field.

A default is set here where v1 assumes one in memory and where it is the same for every job of the kind. Left out on
purpose: MPIJob's replicas and restartPolicy (which depend on the type and on the API) and, in v1, cleanPodPolicy (whose
default would override the older field of that name), PyTorchJob's nprocPerNode (which must not be set together with the older field).
"""

from gangline.api.kubeflow.kinds import (
    DEFAULT_SSH_PATH,
    MPIJOB,
    MPIJOB_V2,
    ElasticPolicy,
    LauncherCreationPolicy,
    MpiImplementation,
    MPIJobSpec,
    MPIJobV2Spec,
    PaddleElasticPolicy,
    TFJobSpec,
)
from gangline.api.kubeflow.training import (
    MPI_OPERATOR_MANAGER,
    MULTIKUEUE_MANAGER,
    OUR_MANAGER,
    CleanPodPolicy,
    JobKind,
    JobStatus,
    ReplicaSpec,
    RestartPolicy,
    RestartScope,
    RunPolicy,
    SchedulingPolicy,
)
from gangline.api.meta import JSON, Condition
from gangline.schema.crds import cel_rules, pod_schemas
from gangline.schema.crds.struct_schemas import FieldKeywords

_AT_LEAST_0: JSON = {"minimum": 0}
_AT_LEAST_1: JSON = {"minimum": 1}
_INT64: JSON = {"format": "int64"}
_CLEAN_POD_POLICY: JSON = {"enum": [str(policy) for policy in CleanPodPolicy]}

_MPI_MANAGERS: JSON = {"enum": [MPI_OPERATOR_MANAGER, MULTIKUEUE_MANAGER]}
_MPI_IMPLEMENTATION: JSON = {"enum": [str(name) for name in MpiImplementation]}
_LAUNCHER_CREATION: JSON = {"enum": [str(policy) for policy in LauncherCreationPolicy]}

_SHARED_KEYWORDS: FieldKeywords = {
    (RunPolicy, "ttlSecondsAfterFinished"): _AT_LEAST_0,
    (RunPolicy, "activeDeadlineSeconds"): {**_INT64, **_AT_LEAST_0},
    (RunPolicy, "backoffLimit"): _AT_LEAST_0,
    (RunPolicy, "suspend"): {"default": False},
    (RunPolicy, "managedBy"): {"enum": [OUR_MANAGER, MULTIKUEUE_MANAGER]},
    (RunPolicy, "restartScope"): {"enum": [str(scope) for scope in RestartScope]},
    # One word or rules: a definition cannot describe both. The operator checks it (`jobs.plan.recovery.policy`).
    (RunPolicy, "recovery"): {"x-kubernetes-preserve-unknown-fields": True},
    (SchedulingPolicy, "minAvailable"): _AT_LEAST_0,
    (SchedulingPolicy, "scheduleTimeoutSeconds"): _AT_LEAST_0,
    (TFJobSpec, "successPolicy"): {"enum": ["", "AllWorkers"]},
    (MPIJobSpec, "slotsPerWorker"): {**_AT_LEAST_1, "default": 1},
    (MPIJobSpec, "cleanPodPolicy"): _CLEAN_POD_POLICY,
    # No defaults in v1: mpiImplementation tells which API a job was written in (ADR 0033).
    (MPIJobSpec, "mpiImplementation"): _MPI_IMPLEMENTATION,
    (MPIJobSpec, "launcherCreationPolicy"): _LAUNCHER_CREATION,
    (MPIJobV2Spec, "slotsPerWorker"): {**_AT_LEAST_0, "default": 1},
    (MPIJobV2Spec, "mpiImplementation"): {**_MPI_IMPLEMENTATION, "default": MpiImplementation.OPEN_MPI.value},
    (MPIJobV2Spec, "launcherCreationPolicy"): {
        **_LAUNCHER_CREATION,
        "default": LauncherCreationPolicy.AT_STARTUP.value,
    },
    (MPIJobV2Spec, "sshAuthMountPath"): {"default": DEFAULT_SSH_PATH},
    (MPIJobV2Spec, "runLauncherAsWorker"): {"default": False},
    (ElasticPolicy, "minReplicas"): _AT_LEAST_1,
    (ElasticPolicy, "maxReplicas"): _AT_LEAST_1,
    (ElasticPolicy, "maxRestarts"): _AT_LEAST_0,
    (ElasticPolicy, "nProcPerNode"): _AT_LEAST_1,
    (ElasticPolicy, "rdzvPort"): {"minimum": 0, "maximum": 65535},
    (PaddleElasticPolicy, "minReplicas"): _AT_LEAST_1,
    (PaddleElasticPolicy, "maxReplicas"): _AT_LEAST_1,
    (PaddleElasticPolicy, "maxRestarts"): _AT_LEAST_0,
    (Condition, "observedGeneration"): _INT64,
    (JobStatus, "observedGeneration"): _INT64,
    # Internal records. A newer operator may write more of them than the installed definition names.
    (JobStatus, "ledger"): {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def field_keywords(kind: JobKind, *, described: bool) -> FieldKeywords:
    """The keywords to add to the schemas of the structs of a kind."""
    metrics = {"items": pod_schemas.definition_schema(pod_schemas.METRIC_SPEC, described=described)}
    return {
        **_SHARED_KEYWORDS,
        (RunPolicy, "cleanPodPolicy"): _clean_pod_policy_keywords(kind),
        (ReplicaSpec, "replicas"): _replicas_keywords(kind),
        (ReplicaSpec, "restartPolicy"): _restart_policy_keywords(kind),
        **({(RunPolicy, "managedBy"): _MPI_MANAGERS} if kind is MPIJOB_V2 else {}),
        (ReplicaSpec, "template"): pod_template_schema(kind, described=described),
        (ElasticPolicy, "metrics"): metrics,
        (PaddleElasticPolicy, "metrics"): metrics,
    }


def _clean_pod_policy_keywords(kind: JobKind) -> JSON:
    return _CLEAN_POD_POLICY if kind is MPIJOB else {**_CLEAN_POD_POLICY, "default": str(CleanPodPolicy.NONE)}


def _restart_policy_keywords(kind: JobKind) -> JSON:
    if kind is MPIJOB_V2:
        return {"enum": [str(RestartPolicy.NEVER), str(RestartPolicy.ON_FAILURE), ""]}
    policies = {"enum": [*(str(policy) for policy in RestartPolicy), ""]}
    return policies if kind is MPIJOB else {**policies, "default": str(kind.restart_policy)}


def _replicas_keywords(kind: JobKind) -> JSON:
    return _AT_LEAST_0 if kind in (MPIJOB, MPIJOB_V2) else {**_AT_LEAST_1, "default": 1}


def pod_template_schema(kind: JobKind, *, described: bool) -> JSON:
    """The schema of a pod template of a kind: Kubernetes' own, with what v1's webhook requires."""
    template = pod_schemas.definition_schema(pod_schemas.POD_TEMPLATE, described=described)
    spec = template["properties"]["spec"]
    containers = spec["properties"]["containers"]
    bounded = {
        **containers,
        "minItems": 1,
        "maxItems": cel_rules.MAX_CONTAINERS,
        "items": {**containers["items"], "x-kubernetes-validations": cel_rules.container_rules()},
    }
    if rules := cel_rules.containers_rules(kind):
        bounded["x-kubernetes-validations"] = rules
    pod = {**spec, "properties": {**spec["properties"], "containers": bounded}}
    return {**template, "required": ["spec"], "properties": {**template["properties"], "spec": pod}}
