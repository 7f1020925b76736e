"""The files and objects of an MPI job beside its pods: host lists, scripts, and the right to run commands in workers."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from gangline.api.kubeflow.kinds import MPIJob
from gangline.api.meta import JSON

RBAC_GROUP = "rbac.authorization.k8s.io"
CONFIG_VOLUME = "mpi-job-config"
KUBECTL_FOLDER, CONFIG_FOLDER = "/opt/kube", "/etc/mpi"
AGENT_PROGRAM = "/usr/local/bin/gangline-agent"
"""The agent in the image of gangline."""
DELIVERED_AGENT = f"{KUBECTL_FOLDER}/gangline-agent exec"
"""The command of the agent in a launcher. It is in the place of kubectl, and answers to that name as well."""
EXEC_SCRIPT, HOSTFILE, DISCOVERY_SCRIPT, HYDRA_HOSTFILE = (
    "kubexec.sh",
    "hostfile",
    "discover_hosts.sh",
    "hydra-hostfile",
)


def config_path(name: str) -> str:
    """The path of a configuration file in the containers."""
    return f"{CONFIG_FOLDER}/{name}"


def hostfile(hosts: Iterable[str], slots: int) -> str:
    """The host file of Open MPI and Intel MPI, with all hosts, whether they run yet or not."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def hydra_hostfile(hosts: Iterable[str], slots: int) -> str:
    """The host file of MPICH."""
    return "".join(f"{host}:{slots}\n" for host in hosts)


def discovery_script(launcher: str, running: Iterable[str], slots: int) -> str:
    """A script that prints the hosts that run now, for elastic Horovod. `launcher` is empty unless it computes too."""
    first = f"\necho {launcher}:{slots}\n" if launcher else ""
    return "#!/bin/sh" + first + "".join(f"\necho {host}:{slots}" for host in sorted(running))


def kubectl_script(container: str) -> str:
    """A script that runs a command in a pod with the kubectl that the init container copied."""
    option = f" --container {container}" if container else ""
    return (
        f'#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{KUBECTL_FOLDER}/kubectl exec ${{POD_NAME}}{option} -- /bin/sh -c "$*"'
    )


def agent_script(agent: str, container: str) -> str:
    """A script that runs a command in a pod with an agent. MPICH puts options before the host, which are dropped."""
    option = f" --container {shlex.quote(container)}" if container else ""
    return (
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nPOD_NAME=$1\nshift\n'
        f'exec {agent}{option} "$POD_NAME" "$@"\n'
    )


def launcher_name(job: MPIJob) -> str:
    """The name of the launcher's pod and service account, and in v1 of its role and role binding."""
    return f"{job.metadata.name}-launcher"


def config_volume(job: MPIJob, modes: Mapping[str, int]) -> JSON:
    """A volume with some of the configuration files, by name, with their modes."""
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": CONFIG_VOLUME, "configMap": {"name": _config_map_name(job), "items": items}}


def service_account(job: MPIJob, name: str) -> JSON:
    return _object_body(job, "v1", "ServiceAccount", name)


def config_map(job: MPIJob, files: Mapping[str, str]) -> JSON:
    return {**_object_body(job, "v1", "ConfigMap", _config_map_name(job)), "data": dict(files)}


def kubectl_role(job: MPIJob, workers: Sequence[str]) -> JSON:
    """The role of v1: it may read all pods of the namespace, and run commands in the workers."""
    read = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    # Without names the rule would allow every pod.
    rules = [read, _worker_rule("pods/exec", workers, "create")] if workers else [read]
    return _role(job, launcher_name(job), rules)


def agent_role(job: MPIJob, workers: Sequence[str]) -> JSON:
    """A role that may read the workers and run commands in them. A WebSocket starts as a GET; newer servers check both.

    The Kubeflow operator, which replaces the role of v1 when it takes a job over, does not know its name.
    """
    name = f"{launcher_name(job)}-agent"
    if not workers:
        return _role(job, name, [_worker_rule("pods", [launcher_name(job)], "get")])
    rules = [_worker_rule("pods", workers, "get"), _worker_rule("pods/exec", workers, "create", "get")]
    return _role(job, name, rules)


def _worker_rule(resource: str, workers: Sequence[str], *verbs: str) -> JSON:
    return {"apiGroups": [""], "resources": [resource], "resourceNames": list(workers), "verbs": list(verbs)}


def _role(job: MPIJob, name: str, rules: list[JSON]) -> JSON:
    return {**_object_body(job, f"{RBAC_GROUP}/v1", "Role", name), "rules": rules}


def role_binding(job: MPIJob, role: str, account_name: str) -> JSON:
    """The binding of a role, with its name."""
    return {
        **_object_body(job, f"{RBAC_GROUP}/v1", "RoleBinding", role),
        "subjects": [{"kind": "ServiceAccount", "name": account_name, "namespace": job.metadata.namespace}],
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": role},
    }


def _config_map_name(job: MPIJob) -> str:
    return f"{job.metadata.name}-config"


def _object_body(job: MPIJob, version: str, kind: str, name: str) -> JSON:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"app": job.metadata.name}}}
