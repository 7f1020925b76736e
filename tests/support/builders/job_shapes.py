"""Training jobs of all kinds as users write them: the shapes of the stock examples, and odd ones that v1 accepts."""

from typing import Any

import msgspec
from msgspec import inspect

from gangline.api.kubeflow.training import MULTIKUEUE_MANAGER, OUR_MANAGER, JobKind
from gangline.api.meta import JSON
from support.cases.invalid_jobs import elastic_spec, job_spec, pod_template, spec_with_replicas, with_field

# A pod that uses much of what a pod can have.
RICH_TEMPLATE: JSON = {
    "metadata": {
        "labels": {"app": "mnist"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "finalizers": ["example.com/keep"],
        "name": "ignored",
        "namespace": "ignored",
    },
    "spec": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100"]}]}]
                }
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": "mnist"}},
                        },
                    }
                ]
            },
        },
        "imagePullSecrets": [{"name": "registry"}],
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "nodeSelector": {"pool": "gpu"},
        "priorityClassName": "high",
        "restartPolicy": "Never",
        "schedulerName": "volcano",
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "serviceAccountName": "trainer",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
        ],
    },
}
RICH_CONTAINER: JSON = {
    "image": "train:1",
    "imagePullPolicy": "Always",
    "command": ["python"],
    "args": ["train.py", "--epochs=1"],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "c"}}],
    "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}},
    "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5},
    "ports": [{"containerPort": 8080, "name": "web"}, {"containerPort": 9090}],
    "readinessProbe": {"tcpSocket": {"port": 8080}},
    "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "1.5Gi"}, "requests": {"cpu": "500m"}},
    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}],
    "workingDir": "/work",
}
RICH_RUN_POLICY: JSON = {
    "activeDeadlineSeconds": 3600,
    "backoffLimit": 3,
    "cleanPodPolicy": "Running",
    "managedBy": OUR_MANAGER,
    "restartScope": "Job",
    "schedulingPolicy": {
        "minAvailable": 2,
        "minResources": {"cpu": 4, "memory": "8Gi"},
        "priorityClass": "high",
        "queue": "q",
        "scheduleTimeoutSeconds": 30,
    },
    "suspend": True,
    "ttlSecondsAfterFinished": 0,
}
RECOVERY_RULES: JSON = {
    "rules": [
        {"when": {"causes": ["infrastructure"]}, "then": "RestartElsewhere", "for": "2h", "limit": 5, "scope": "Job"},
        {"when": {"exitCodes": [42], "replicaTypes": ["Worker"]}, "then": "Retry", "delay": 30, "maxDelay": "10m"},
        {"when": {"causes": ["memory"]}, "then": "RaiseMemory", "upTo": "64Gi", "factor": 1.5, "uncounted": True},
        {"when": {"log": "HTTP 5[0-9]{2}"}, "then": "RestartReplica"},
        {"when": {"causes": ["stalled"]}, "then": "Stop"},
    ],
    "otherwise": "auto",
}
AUTOSCALING_METRICS: list[JSON] = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
]


def valid_specs(kind: JobKind) -> list[JSON]:
    """Specs that every server must accept."""
    return [*_common_specs(kind), *_KIND_SPECS[kind.kind](kind)]


def _common_specs(kind: JobKind) -> list[JSON]:
    simple = job_spec(kind)
    one = next(iter(simple[kind.replicas]))
    rich = {"spec": {**RICH_TEMPLATE["spec"], "containers": [{"name": kind.container, **RICH_CONTAINER}]}}
    sidecar = {"name": "log", "image": "log:1"}
    return [
        simple,
        spec_with_replicas(kind, **dict.fromkeys(simple[kind.replicas])),
        {**simple, "runPolicy": {}},
        {**simple, "runPolicy": RICH_RUN_POLICY},
        {**simple, "runPolicy": {"recovery": "auto"}},
        {**simple, "runPolicy": {"recovery": RECOVERY_RULES}},
        {**simple, "runPolicy": {"managedBy": MULTIKUEUE_MANAGER}},
        with_field(simple, kind.replicas, one, "template", to={**RICH_TEMPLATE, **rich}),
        with_field(
            simple,
            kind.replicas,
            one,
            "template",
            "spec",
            "containers",
            0,
            "ports",
            to=[{"containerPort": 1}],
        ),
        with_field(
            simple,
            kind.replicas,
            one,
            "template",
            "spec",
            "containers",
            to=[sidecar, pod_template(kind.container)["spec"]["containers"][0]],
        ),
        *(
            with_field(simple, kind.replicas, one, "restartPolicy", to=policy)
            for policy in ("Always", "OnFailure", "Never", "ExitCode", "")
        ),
    ]


def _tensorflow(kind: JobKind) -> list[JSON]:
    return [
        spec_with_replicas(kind, PS=2, Worker=3),
        spec_with_replicas(kind, Chief=1, Worker=2, Evaluator=1),
        spec_with_replicas(kind, Master=None, PS=1),
        spec_with_replicas(kind, ps=1, worker=2, CHIEF=1),
        job_spec(kind, successPolicy="AllWorkers", enableDynamicWorker=True),
        job_spec(kind, successPolicy=""),
    ]


def _pytorch(kind: JobKind) -> list[JSON]:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 4,
        "maxRestarts": 100,
        "metrics": AUTOSCALING_METRICS,
        "rdzvBackend": "etcd-v2",
        "rdzvConf": [{"key": "timeout", "value": "60"}],
        "rdzvHost": "etcd",
        "rdzvId": "id",
        "rdzvPort": 2379,
        "standalone": True,
    }
    return [
        spec_with_replicas(kind, Master=1, Worker=3),
        job_spec(kind, "Master"),
        job_spec(kind, "Worker"),
        job_spec(kind, nprocPerNode="auto"),
        elastic_spec(kind, {}),
        elastic_spec(kind, policy),
        elastic_spec(kind, {"nProcPerNode": 2, "maxReplicas": 2}),
        elastic_spec(kind, {"minReplicas": 2}, nprocPerNode="2"),
    ]


def _xgboost(kind: JobKind) -> list[JSON]:
    return [spec_with_replicas(kind, Master=1, Worker=2), job_spec(kind, "Master")]


def _mpi(kind: JobKind) -> list[JSON]:
    other = {"template": pod_template("mpi-worker"), "replicas": 0}
    return [
        spec_with_replicas(kind, Launcher=1, Worker=2),
        job_spec(kind, "Launcher"),
        with_field(job_spec(kind), kind.replicas, "Worker", to=other),
        job_spec(kind, slotsPerWorker=2, mainContainer="mpi", cleanPodPolicy="All"),
    ]


def _paddle(kind: JobKind) -> list[JSON]:
    policy = {"minReplicas": 1, "maxReplicas": 2, "maxRestarts": 1, "metrics": AUTOSCALING_METRICS}
    return [
        job_spec(kind, "Worker"),
        spec_with_replicas(kind, Master=2, Worker=2),
        elastic_spec(kind, policy),
    ]


def _jax(kind: JobKind) -> list[JSON]:
    return [spec_with_replicas(kind, Worker=4)]


_KIND_SPECS = {
    "TFJob": _tensorflow,
    "PyTorchJob": _pytorch,
    "XGBoostJob": _xgboost,
    "MPIJob": _mpi,
    "PaddleJob": _paddle,
    "JAXJob": _jax,
}


def filled_example(model: type[msgspec.Struct]) -> Any:
    """An object with a value in every field of a struct, and of the structs in it."""
    return _example(inspect.type_info(model))


def _example(found: inspect.Type) -> Any:
    match found:
        case inspect.Metadata(extra={"format": "micro-time"}):
            return "2026-01-02T15:04:05.000000Z"
        case inspect.Metadata(type=inner):
            return _example(inner)
        case inspect.UnionType(types=types):
            return _example(next(part for part in types if not isinstance(part, inspect.NoneType)))
        case inspect.StructType(fields=fields):
            return {field.encode_name: _example(field.type) for field in fields}
        case inspect.DictType(value_type=value):
            return {"key": _example(value)}
        case inspect.VarTupleType(item_type=item):
            return [_example(item)]
        case inspect.DateTimeType():
            return "2026-01-02T15:04:05Z"
        case inspect.IntType():
            return 7
        case inspect.BoolType():
            return True
        case inspect.StrType():
            return "text"
    raise TypeError(f"no example of {found}")
