"""What the types of our structs do not tell: bounds, values, defaults and rules of each field.

A default stands here where v1 assumes one in memory and where it is the same for every job of the kind. Left out,
on purpose: MPIJob's replicas (which depend on the type) and cleanPodPolicy (which has an older twin that a default
would override), PyTorchJob's nprocPerNode (which must not be set together with its older twin).
"""

from gangline.api.kubeflow.kinds import MPIJOB, ElasticPolicy, MPIJobSpec, PaddleElasticPolicy, TFJobSpec
from gangline.api.kubeflow.training import (
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

_SHARED_KEYWORDS: FieldKeywords = {
    (RunPolicy, "ttlSecondsAfterFinished"): _AT_LEAST_0,
    (RunPolicy, "activeDeadlineSeconds"): {**_INT64, **_AT_LEAST_0},
    (RunPolicy, "backoffLimit"): _AT_LEAST_0,
    (RunPolicy, "suspend"): {"default": False},
    (RunPolicy, "managedBy"): {"enum": [OUR_MANAGER, MULTIKUEUE_MANAGER]},
    (RunPolicy, "restartScope"): {"enum": [str(scope) for scope in RestartScope]},
    (SchedulingPolicy, "minAvailable"): _AT_LEAST_0,
    (SchedulingPolicy, "scheduleTimeoutSeconds"): _AT_LEAST_0,
    (TFJobSpec, "successPolicy"): {"enum": ["", "AllWorkers"]},
    (MPIJobSpec, "slotsPerWorker"): {**_AT_LEAST_1, "default": 1},
    (MPIJobSpec, "cleanPodPolicy"): _CLEAN_POD_POLICY,
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
    # Private notes. A newer operator may have more of them than the definition that is installed knows of.
    (JobStatus, "ledger"): {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def field_keywords(kind: JobKind, *, described: bool) -> FieldKeywords:
    """All that is to be added to the schemas of the structs of a kind."""
    metrics = {"items": pod_schemas.definition_schema(pod_schemas.METRIC_SPEC, described=described)}
    return {
        **_SHARED_KEYWORDS,
        (RunPolicy, "cleanPodPolicy"): _clean_pod_policy_keywords(kind),
        (ReplicaSpec, "replicas"): _replicas_keywords(kind),
        (ReplicaSpec, "restartPolicy"): {
            "enum": [*(str(policy) for policy in RestartPolicy), ""],
            "default": str(kind.restart_policy),
        },
        (ReplicaSpec, "template"): pod_template_schema(kind, described=described),
        (ElasticPolicy, "metrics"): metrics,
        (PaddleElasticPolicy, "metrics"): metrics,
    }


def _clean_pod_policy_keywords(kind: JobKind) -> JSON:
    return _CLEAN_POD_POLICY if kind is MPIJOB else {**_CLEAN_POD_POLICY, "default": str(CleanPodPolicy.NONE)}


def _replicas_keywords(kind: JobKind) -> JSON:
    return _AT_LEAST_0 if kind is MPIJOB else {**_AT_LEAST_1, "default": 1}


def pod_template_schema(kind: JobKind, *, described: bool) -> JSON:
    """The schema of a pod template of a kind: Kubernetes' own, and what v1's webhook asks for."""
    found = pod_schemas.definition_schema(pod_schemas.POD_TEMPLATE, described=described)
    spec = found["properties"]["spec"]
    containers = spec["properties"]["containers"]
    bounded = {
        **containers,
        "minItems": 1,
        "maxItems": cel_rules.MAX_CONTAINERS,
        "items": {**containers["items"], "x-kubernetes-validations": cel_rules.container_rules()},
    }
    if own := cel_rules.containers_rules(kind):
        bounded["x-kubernetes-validations"] = own
    pod = {**spec, "properties": {**spec["properties"], "containers": bounded}}
    return {**found, "required": ["spec"], "properties": {**found["properties"], "spec": pod}}
