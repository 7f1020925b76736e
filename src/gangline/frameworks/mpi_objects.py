"""The objects beside an MPI job's pods, as bodies: files for launcher and workers, and the right to run commands."""

from collections.abc import Mapping, Sequence

from gangline.api.kubeflow.kinds import MPIJob
from gangline.api.meta import JSON

RBAC_GROUP = "rbac.authorization.k8s.io"
CONFIG_VOLUME = "mpi-job-config"


def launcher_name(job: MPIJob) -> str:
    """What the launcher's pod, service account, role and its binding are called."""
    return f"{job.metadata.name}-launcher"


def config_volume(job: MPIJob, modes: Mapping[str, int]) -> JSON:
    """Some of the files, by name, with who may read or run them."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": CONFIG_VOLUME, "configMap": {"name": _config_map_name(job), "items": items}}


def service_account(job: MPIJob, name: str) -> JSON:
    return _object_body(job, "v1", "ServiceAccount", name)


def config_map(job: MPIJob, files: Mapping[str, str]) -> JSON:
    return {**_object_body(job, "v1", "ConfigMap", _config_map_name(job)), "data": dict(files)}


def role(job: MPIJob, workers: Sequence[str]) -> JSON:
    """May look at pods, and run commands in these."""
    look = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    run = {
        "apiGroups": [""],
        "resources": ["pods/exec"],
        "resourceNames": list(workers),
        "verbs": ["create"],
    }
    # Without names the rule would speak of every pod.
    rules = [look, run] if workers else [look]
    return {**_object_body(job, f"{RBAC_GROUP}/v1", "Role", launcher_name(job)), "rules": rules}


def role_binding(job: MPIJob, account_name: str) -> JSON:
    name = launcher_name(job)
    return {
        **_object_body(job, f"{RBAC_GROUP}/v1", "RoleBinding", name),
        "subjects": [{"kind": "ServiceAccount", "name": account_name, "namespace": job.metadata.namespace}],
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name},
    }


def _config_map_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-config"


def _object_body(job: MPIJob, version: str, kind: str, name: str) -> JSON:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": job.metadata.name}},
    }
