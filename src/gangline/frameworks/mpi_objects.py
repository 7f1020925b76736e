"""The objects beside an MPI job's pods, as bodies: files for launcher and workers, and the right to run commands."""

from collections.abc import Mapping, Sequence

from gangline.api.kubeflow.mpijob import MPIJob
from gangline.api.meta import JSON

RBAC = "rbac.authorization.k8s.io"
CONFIG_VOLUME = "mpi-job-config"


def launcher_name(job: MPIJob) -> str:
    """What the launcher's pod, service account, role and its binding are called."""
    return f"{job.metadata.name}-launcher"


def config_volume(job: MPIJob, modes: Mapping[str, int]) -> JSON:
    """Some of the files, by name, with who may read or run them."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": CONFIG_VOLUME, "configMap": {"name": _config_name(job), "items": items}}


def account(job: MPIJob, name: str) -> JSON:
    return _body(job, "v1", "ServiceAccount", name)


def config(job: MPIJob, files: Mapping[str, str]) -> JSON:
    return {**_body(job, "v1", "ConfigMap", _config_name(job)), "data": dict(files)}


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
    return {**_body(job, f"{RBAC}/v1", "Role", launcher_name(job)), "rules": rules}


def binding(job: MPIJob, account_name: str) -> JSON:
    name = launcher_name(job)
    return {
        **_body(job, f"{RBAC}/v1", "RoleBinding", name),
        "subjects": [{"kind": "ServiceAccount", "name": account_name, "namespace": job.metadata.namespace}],
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
    }


def _config_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-config"


def _body(job: MPIJob, version: str, kind: str, name: str) -> JSON:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": job.metadata.name}},
    }
