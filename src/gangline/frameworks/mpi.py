"""MPI: a launcher that starts its ranks in workers with a script instead of ssh. It decides success."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.kinds import MPIJOB, MPIJob
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages, mpi_objects
from gangline.frameworks.mpi_objects import (
    CONFIG_VOLUME,
    DELIVERED_AGENT,
    DISCOVERY_SCRIPT,
    EXEC_SCRIPT,
    HOSTFILE,
    HYDRA_HOSTFILE,
    RBAC_GROUP,
    config_path,
    config_volume,
    launcher_name,
)
from gangline.frameworks.replica_counts import MASTER_ROLE_LABELS, WORKER, replica_count
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import with_defaults
from gangline.jobs.framework import Addresses, Companion, ConditionText, EnvTarget, PodEdits, Problem, variables
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Gang, Member, is_active

LAUNCHER = UNINDEXED_TYPE
CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS = (
    "configmaps",
    "serviceaccounts",
    f"roles.{RBAC_GROUP}",
    f"rolebindings.{RBAC_GROUP}",
)
KUBECTL_VOLUME = "mpi-job-kubectl"
_KUBECTL_MOUNT: JSON = {"name": KUBECTL_VOLUME, "mountPath": mpi_objects.KUBECTL_FOLDER}
_CONFIG_MOUNT: JSON = {"name": CONFIG_VOLUME, "mountPath": mpi_objects.CONFIG_FOLDER}
AGENT_CONTAINER = "gangline-agent"
_EXECUTABLE_MODE, _READABLE_MODE = 0o555, 0o444

INTEL_MPI_VARIABLES = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": config_path(EXEC_SCRIPT)}
AGENT_MPI_VARIABLES = {
    # The variables of Open MPI 4 under their names in Open MPI 5 and MPICH.
    "PRTE_MCA_plm_ssh_agent": config_path(EXEC_SCRIPT),
    "PRTE_MCA_prte_default_hostfile": config_path(HOSTFILE),
    "HYDRA_LAUNCHER_EXEC": config_path(EXEC_SCRIPT),
    "HYDRA_HOST_FILE": config_path(HYDRA_HOSTFILE),
}
"""More variables of the launcher where an agent is used instead of kubectl.

On one machine the node sets, besides, what pods need that share its cores, host name and network.
"""
DELIVERED_AGENT_VARIABLES = {
    **AGENT_MPI_VARIABLES,
    # From 65 hosts on Open MPI would start daemons from workers, which have no agent.
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
}
KUBECTL_DELIVERY_IMAGE = "kubeflow/kubectl-delivery:latest"
"""The image of v1's init container."""


class Mpi(TeamFramework[MPIJob]):
    """MPIJob.

    The launcher starts processes in its workers in one of three ways:

    - with the agent in `agent_image`, that of gangline, which an init container copies;
    - with `agent`, a command that the node has; without an init container;
    - without both as in v1: with a kubectl that an init container of `delivery_image` copies. An empty image means no
      init container.

    With an agent Open MPI 5 and MPICH get their hosts too. `launcher_account` is an existing service account for
    launchers: then no account, role or role binding is created.
    """

    facts = MPIJOB
    collective = True

    all_or_nothing = True

    def __init__(
        self,
        delivery_image: str = KUBECTL_DELIVERY_IMAGE,
        agent: str | None = None,
        *,
        agent_image: str = "",
        launcher_account: str = "",
    ) -> None:
        self._delivery_image, self._agent_image, self._launcher_account = delivery_image, agent_image, launcher_account
        self._agent = agent
        access = () if launcher_account else (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
        self.resources: tuple[str, ...] = (CONFIG_MAPS, *access)

    def default(self, job: MPIJob) -> MPIJob:
        spec = job.spec
        policy = spec.run_policy.clean_pod_policy or spec.clean_pod_policy
        run_policy = msgspec.structs.replace(spec.run_policy, clean_pod_policy=policy)
        slots = 1 if spec.slots_per_worker is None else spec.slots_per_worker
        spec = msgspec.structs.replace(spec, run_policy=run_policy, slots_per_worker=slots)
        job = with_defaults(msgspec.structs.replace(job, spec=spec), MPIJOB)
        policy = job.spec.run_policy.clean_pod_policy
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, clean_pod_policy=policy))

    def validate(self, job: MPIJob) -> Iterable[Problem]:
        replicas = self.replicas(job)
        if LAUNCHER not in replicas:
            yield Problem("spec.mpiReplicaSpecs", "has no Launcher; write one, with replicas: 1")
        elif replica_count(replicas, LAUNCHER) != 1:
            path = f"spec.mpiReplicaSpecs.{LAUNCHER}.replicas"
            yield Problem(path, f"is {replica_count(replicas, LAUNCHER)}; write 1")

    def wiring(self, job: MPIJob, member: Member, addresses: Addresses) -> PodEdits:
        return self._launcher_edits(job) if member.type == LAUNCHER else self._worker_edits(job)

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]:
        """The files for launcher and workers, and the right to run commands in the workers."""
        assert isinstance(job, MPIJob)
        if _launcher_has_ended(gang):
            # As in v1 nothing is written any more, so that the files show what the launcher saw last.
            return ()
        workers = [name for member, name in gang.names.items() if member.type == WORKER]
        running = [pod.metadata.name for _, pod in gang.of_type(WORKER) if is_active(pod)]
        delivered = self._has_delivered_agent(gang)
        files = self._config_files(job, workers, running, DELIVERED_AGENT if delivered else self._agent)
        config_map = Companion(CONFIG_MAPS, mpi_objects.config_map(job, files), ("data",))
        if self._launcher_account:
            return (config_map,)
        account = (_template(job, LAUNCHER).get("spec") or {}).get("serviceAccountName") or launcher_name(job)
        role = mpi_objects.agent_role(job, workers) if delivered else mpi_objects.kubectl_role(job, workers)
        binding = mpi_objects.role_binding(job, role["metadata"]["name"], account)
        return (
            Companion(SERVICE_ACCOUNTS, mpi_objects.service_account(job, account), anyones=True),
            config_map,
            Companion(ROLES, role, ("rules",)),
            Companion(ROLE_BINDINGS, binding, ("subjects",)),
        )

    def reset_types(self, job: Any, gang: Gang) -> Iterable[str]:
        return (WORKER,) if _launcher_has_ended(gang) else ()

    def failure(self, job: MPIJob, kind: str, count: int) -> ConditionText:
        # v1 writes the kind twice, and clients match on it.
        return msgspec.structs.replace(condition_messages.failure_text(job, kind, count), reason="MPIJobMPIJobFailed")

    def restart_message(self, job: MPIJob, kind: str, count: int) -> str:
        return condition_messages.restart_message(job, kind, count)

    def _has_delivered_agent(self, gang: Gang) -> bool:
        """Whether the launcher has the agent of `agent_image`, or will have. One that another operator made stays as it is."""
        pod = gang.pods.get(Member(LAUNCHER, 0))
        if pod is None:
            return bool(self._agent_image)
        return any(container.name == AGENT_CONTAINER for container in pod.spec.init_containers)

    def _worker_edits(self, job: MPIJob) -> PodEdits:
        volume = config_volume(job, {EXEC_SCRIPT: _EXECUTABLE_MODE})
        # The worker sleeps; the launcher runs commands in it.
        return PodEdits(mounts=(_CONFIG_MOUNT,), volumes=(volume,), command=("sleep",), args=("365d",))

    def _launcher_edits(self, job: MPIJob) -> PodEdits:
        modes = {EXEC_SCRIPT: _EXECUTABLE_MODE, HOSTFILE: _READABLE_MODE, DISCOVERY_SCRIPT: _EXECUTABLE_MODE}
        edits = PodEdits(
            env=tuple(self._launcher_env(_template(job, LAUNCHER))),
            into=EnvTarget.FIRST,
            labels=MASTER_ROLE_LABELS,
            service_account=self._launcher_account or launcher_name(job),
        )
        kubectl_volume = {"name": KUBECTL_VOLUME, "emptyDir": {}}
        agent_files = config_volume(job, {**modes, HYDRA_HOSTFILE: _READABLE_MODE})
        if self._agent_image:
            return msgspec.structs.replace(
                edits,
                volumes=(kubectl_volume, agent_files),
                mounts=(_KUBECTL_MOUNT, _CONFIG_MOUNT),
                init_containers=(self._agent_container(job),),
            )
        if self._agent is not None:
            return msgspec.structs.replace(edits, volumes=(agent_files,), mounts=(_CONFIG_MOUNT,))
        return msgspec.structs.replace(
            edits,
            volumes=(kubectl_volume, config_volume(job, modes)),
            mounts=(_KUBECTL_MOUNT, _CONFIG_MOUNT),
            init_containers=(self._delivery_container(job.metadata.namespace),) if self._delivery_image else (),
        )

    def _launcher_env(self, template: JSON) -> Iterator[JSON]:
        yield from variables(
            OMPI_MCA_plm_rsh_agent=config_path(EXEC_SCRIPT), OMPI_MCA_orte_default_hostfile=config_path(HOSTFILE)
        )
        if not _has_gpus(template):
            # Empty: else NVIDIA's runtime gives a launcher without GPUs all those of its node.
            yield {"name": "NVIDIA_VISIBLE_DEVICES"}
            yield {"name": "NVIDIA_DRIVER_CAPABILITIES"}
        more: Mapping[str, str] = {}
        if self._agent_image:
            more = DELIVERED_AGENT_VARIABLES
        elif self._agent is not None:
            more = AGENT_MPI_VARIABLES
        yield from _unset_variables(template, {**INTEL_MPI_VARIABLES, **more})

    def _agent_container(self, job: MPIJob) -> JSON:
        """Copies the agent, then waits until the workers run, for a limited time."""
        amounts = {"cpu": "100m", "memory": "64Mi"}
        command = [mpi_objects.AGENT_PROGRAM, "install", "--hostfile", config_path(HOSTFILE)]
        return {
            "name": AGENT_CONTAINER,
            "image": self._agent_image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*command, "--launcher", launcher_name(job), mpi_objects.KUBECTL_FOLDER],
            "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
            "resources": {"limits": amounts, "requests": amounts},
            "securityContext": _restricted_context(_template(job, LAUNCHER)),
        }

    def _delivery_container(self, namespace: str) -> JSON:
        amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
        return {
            "name": "kubectl-delivery",
            "image": self._delivery_image,
            "imagePullPolicy": "IfNotPresent",
            "env": list(variables(TARGET_DIR=mpi_objects.KUBECTL_FOLDER, NAMESPACE=namespace)),
            "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
            "resources": {"limits": amounts, "requests": amounts},
        }

    def _config_files(self, job: MPIJob, workers: list[str], running: list[str], agent: str | None) -> dict[str, str]:
        slots = 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
        launcher = launcher_name(job) if _has_gpus(_template(job, LAUNCHER)) else ""
        hosts = [launcher, *workers] if launcher else workers
        files = {
            HOSTFILE: mpi_objects.hostfile(hosts, slots),
            DISCOVERY_SCRIPT: mpi_objects.discovery_script(launcher, running, slots),
        }
        if agent is None:
            return {**files, EXEC_SCRIPT: mpi_objects.kubectl_script(job.spec.main_container)}
        script = mpi_objects.agent_script(agent, job.spec.main_container)
        return {**files, EXEC_SCRIPT: script, HYDRA_HOSTFILE: mpi_objects.hydra_hostfile(hosts, slots)}


def _launcher_has_ended(gang: Gang) -> bool:
    pod = gang.pods.get(Member(LAUNCHER, 0))
    return pod is not None and pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _template(job: MPIJob, kind: str) -> JSON:
    spec = job.spec.mpi_replica_specs.get(kind)
    return spec.template if spec is not None else {}


def _restricted_context(template: JSON) -> JSON:
    """What the restricted Pod Security Standard asks for. A pod whose user is root keeps it: its image says nothing."""
    user = ((template.get("spec") or {}).get("securityContext") or {}).get("runAsUser")
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **({} if user == 0 else {"runAsNonRoot": True}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _unset_variables(template: JSON, values: Mapping[str, str]) -> tuple[JSON, ...]:
    """These variables without those that the template sets in its first container."""
    first = (_containers(template) or [{}])[0]
    names = {variable.get("name") for variable in first.get("env") or []}
    return variables(**{name: value for name, value in values.items() if name not in names})


def _containers(template: JSON) -> list[JSON]:
    return (template.get("spec") or {}).get("containers") or []


def _has_gpus(template: JSON) -> bool:
    """Whether the launcher has GPUs, and so computes like a worker."""
    limits = ((container.get("resources") or {}).get("limits") or {} for container in _containers(template))
    return any("gpu" in name for names in limits for name in names)
