"""Converts a job to a TrainJob of Kubeflow Trainer v2 (`trainer.kubeflow.org/v1alpha1`, 2.2 and later). Pure.

A TrainJob has one template for all nodes; a runtime in the cluster has most other settings. Fields that cannot be
converted are reported one by one; a job whose meaning would change is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gangline.api.kubeflow.kinds import LauncherCreationPolicy
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.sdk.job import Job

DEFAULT_RUNTIMES = {
    "PyTorchJob": "torch-distributed",
    "JAXJob": "jax-distributed",
    "XGBoostJob": "xgboost-distributed",
    "MPIJob": "deepspeed-distributed",
}
"""The runtimes that Trainer installs. For the other kinds it has none."""
PATCH_MANAGER = "gangline.dev/convert"
NODE_JOB = "node"
"""The name of the replicated job in runtimes, and of its container."""

_PATCHED_POD_FIELDS = (
    "affinity",
    "imagePullSecrets",
    "nodeSelector",
    "schedulingGates",
    "securityContext",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "volumes",
)
_PATCHED_CONTAINER_FIELDS = ("securityContext", "volumeMounts")
_TRAINER_FIELDS = ("name", "image", "command", "args", "env", "resources")
_UNSUPPORTED_POLICY_FIELDS = {
    "cleanPodPolicy": "pods are cleaned up as the runtime's JobSet says",
    "ttlSecondsAfterFinished": "write it into the runtime's JobSet template",
    "backoffLimit": "write failurePolicy.maxRestarts into the runtime's JobSet template",
    "schedulingPolicy": "write podGroupPolicy into the runtime",
    "restartScope": "a JobSet restarts as a whole",
}


class ConvertedTrainJob(NamedTuple):
    """The TrainJob, and notes about fields that were not converted."""

    body: JSON
    notes: tuple[str, ...]


def to_trainjob(job: Job, runtime: str = "") -> ConvertedTrainJob:
    """The TrainJob for a job. Raises `InputError` if there is none with the same meaning."""
    name = runtime or DEFAULT_RUNTIMES.get(job.kind, "")
    if not name:
        raise InputError(
            f"{job.kind} {job.metadata.name}: Trainer has no runtime for it; write --runtime with one of yours"
        )
    nodes, template, path = _node_template(job)
    notes: list[str] = []
    spec: JSON = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": name},
        "trainer": _trainer(job, nodes, template, notes),
    }
    patch = _runtime_patch(template, path, notes)
    if patch:
        spec["runtimePatches"] = [{"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": patch}}}]
    spec |= _run_policy(job, notes)
    metadata = job.to_dict()["metadata"]
    copied = {field: metadata[field] for field in ("name", "namespace", "labels", "annotations") if metadata.get(field)}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": copied, "spec": spec}
    return ConvertedTrainJob(body, (*notes, *_mpi_notes(job), *_restart_policy_notes(job)))


def _mpi_notes(job: Job) -> Iterator[str]:
    """Fields of an MPIJob that are the runtime's in Trainer."""
    spec = job.to_dict()["spec"]
    fields = {"mpiImplementation": "mpiImplementation", "sshAuthMountPath": "sshAuthMountPath"}
    fields["runLauncherAsWorker"] = "runLauncherAsNode"
    for field, theirs in fields.items():
        if spec.get(field):
            yield f"spec.{field}: is the runtime's; write mlPolicy.mpi.{theirs} there"
    if spec.get("launcherCreationPolicy") == LauncherCreationPolicy.WAIT_FOR_WORKERS_READY:
        yield "spec.launcherCreationPolicy: Trainer starts all nodes together"


def _replica_specs(job: Job) -> Mapping[str, Any]:
    specs: Mapping[str, Any] = job.to_dict()["spec"][job.facts.replicas]
    return specs


def _node_template(job: Job) -> tuple[int, JSON, str]:
    """The number of nodes, their template, and the path of that in the job."""
    specs, path = _replica_specs(job), f"spec.{job.facts.replicas}"
    if job.kind == "MPIJob":
        # The launcher has the command; the workers are the nodes.
        return job.replicas.get("Worker", 1), specs["Launcher"]["template"], f"{path}.Launcher.template"
    first, *others = specs
    for other in others:
        if specs[other]["template"].get("spec") != specs[first]["template"].get("spec"):
            raise InputError(
                f"{path}.{other}.template: is another than that of {first}; a TrainJob has one for all nodes"
            )
    return sum(job.replicas.values()), specs[first]["template"], f"{path}.{first}.template"


def _trainer(job: Job, nodes: int, template: JSON, notes: list[str]) -> JSON:
    container = _container(job, template)
    trainer: JSON = {field: container[field] for field in ("image", "command", "args", "env") if container.get(field)}
    trainer["numNodes"] = nodes
    if container.get("resources"):
        trainer["resourcesPerNode"] = container["resources"]
    spec = job.to_dict()["spec"]
    field = "slotsPerWorker" if job.kind == "MPIJob" else "nprocPerNode"
    value = str(spec.get(field, ""))
    if value.isdecimal():
        trainer["numProcPerNode"] = int(value)
    elif value:
        notes.append(f"spec.{field}: is {value}; Trainer takes a number, or the runtime's own")
    return trainer


def _container(job: Job, template: JSON) -> JSON:
    containers: list[JSON] = template["spec"]["containers"]
    return next((item for item in containers if item.get("name") == job.facts.container), containers[0])


def _runtime_patch(template: JSON, path: str, notes: list[str]) -> JSON:
    """The patch of the runtime for the other fields of the template; empty if there are none."""
    pod = template["spec"]
    containers = pod["containers"]
    spec: JSON = {field: pod[field] for field in _PATCHED_POD_FIELDS if field in pod}
    container = {field: containers[0][field] for field in _PATCHED_CONTAINER_FIELDS if field in containers[0]}
    if container:
        spec["containers"] = [{"name": NODE_JOB, **container}]
    notes += _unsupported_fields(pod, path, containers)
    metadata = {field: value for field, value in (template.get("metadata") or {}).items() if value}
    inner: JSON = {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}
    return {"replicatedJobs": [{"name": NODE_JOB, "template": {"spec": {"template": inner}}}]} if inner else {}


def _unsupported_fields(pod: JSON, path: str, containers: list[JSON]) -> Iterator[str]:
    for field in sorted(pod.keys() - {*_PATCHED_POD_FIELDS, "containers", "restartPolicy"}):
        yield f"{path}.spec.{field}: write it into the runtime"
    for field in sorted(
        containers[0].keys() - {*_TRAINER_FIELDS, *_PATCHED_CONTAINER_FIELDS, "ports", "imagePullPolicy"}
    ):
        yield f"{path}.spec.containers[0].{field}: write it into the runtime"
    for number in range(1, len(containers)):
        yield f"{path}.spec.containers[{number}]: a further container; write it into the runtime"


def _run_policy(job: Job, notes: list[str]) -> JSON:
    policy: Mapping[str, Any] = job.to_dict()["spec"].get("runPolicy") or {}
    notes += [
        f"spec.runPolicy.{field}: {remedy}" for field, remedy in _UNSUPPORTED_POLICY_FIELDS.items() if field in policy
    ]
    if "elasticPolicy" in job.to_dict()["spec"]:
        notes.append("spec.elasticPolicy: Trainer has none; numNodes is fixed")
    converted: JSON = {}
    if policy.get("suspend"):
        converted["suspend"] = True
    if policy.get("activeDeadlineSeconds") is not None:
        converted["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    if policy.get("managedBy") == "kueue.x-k8s.io/multikueue":
        converted["managedBy"] = policy["managedBy"]
    return converted


def _restart_policy_notes(job: Job) -> Iterator[str]:
    for kind, spec in _replica_specs(job).items():
        restart_policy = spec.get("restartPolicy")
        if restart_policy and restart_policy != "Never":
            yield f"spec.{job.facts.replicas}.{kind}.restartPolicy: is {restart_policy}; the runtime's Job decides"
