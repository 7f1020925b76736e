"""MPI: a launcher that starts its ranks in workers, by a script instead of ssh; success by the launcher."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.kinds import MPIJOB, MPIJob
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages, mpi_hosts, mpi_objects
from gangline.frameworks.mpi_hosts import DISCOVERY_SCRIPT, EXEC_SCRIPT, HOSTFILE, HYDRA_HOSTFILE, config_path
from gangline.frameworks.mpi_objects import CONFIG_VOLUME, RBAC_GROUP, config_volume, launcher_name
from gangline.frameworks.replica_counts import (
    MASTER_ROLE_LABELS,
    WORKER,
    all_succeeded,
    pod_counts,
    replica_count,
)
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import with_defaults
from gangline.jobs.framework import (
    Addresses,
    Companion,
    ConditionText,
    EnvTarget,
    PodEdits,
    Problem,
    Verdict,
    variables,
)
from gangline.jobs.pods.replicas import Gang, Member, is_active, member_name

LAUNCHER = "Launcher"
CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS = (
    "configmaps",
    "serviceaccounts",
    f"roles.{RBAC_GROUP}",
    f"rolebindings.{RBAC_GROUP}",
)
KUBECTL_VOLUME = "mpi-job-kubectl"
_KUBECTL_MOUNT: JSON = {"name": KUBECTL_VOLUME, "mountPath": mpi_hosts.KUBECTL_FOLDER}
_CONFIG_MOUNT: JSON = {"name": CONFIG_VOLUME, "mountPath": mpi_hosts.CONFIG_FOLDER}
_EXECUTABLE_MODE, _READABLE_MODE = 0o555, 0o444

INTEL_MPI_VARIABLES = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": config_path(EXEC_SCRIPT)}
LOCAL_MPI_VARIABLES = {
    # What Open MPI 4 is told under other names, for Open MPI 5 and MPICH.
    "PRTE_MCA_plm_ssh_agent": config_path(EXEC_SCRIPT),
    "PRTE_MCA_prte_default_hostfile": config_path(HOSTFILE),
    "HYDRA_LAUNCHER_EXEC": config_path(EXEC_SCRIPT),
    "HYDRA_HOST_FILE": config_path(HYDRA_HOSTFILE),
}
"""More for the launcher where an agent stands in for kubectl, that is, on one machine.

What pods that share its cores, host name and network must be told comes from the node, which knows what they share.
"""


class Mpi(TeamFramework[MPIJob]):
    """MPIJob.

    In a cluster the launcher reaches its workers by a kubectl that an init container of `delivery_image` brings.
    An empty image brings none. `agent` is a command that is there already and runs another in a pod: with it there is
    no init container, and Open MPI 5 and MPICH are told their hosts too.
    """

    facts = MPIJOB

    resources: tuple[str, ...] = (CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
    all_or_nothing = True

    def __init__(self, delivery_image: str = "kubeflow/kubectl-delivery:latest", agent: str | None = None) -> None:
        self._delivery_image, self._agent = delivery_image, agent

    def default(self, job: MPIJob) -> MPIJob:
        written = job.spec
        policy = written.run_policy.clean_pod_policy or written.clean_pod_policy
        run_policy = msgspec.structs.replace(written.run_policy, clean_pod_policy=policy)
        slots = 1 if written.slots_per_worker is None else written.slots_per_worker
        spec = msgspec.structs.replace(written, run_policy=run_policy, slots_per_worker=slots)
        job = with_defaults(msgspec.structs.replace(job, spec=spec), MPIJOB)
        agreed = job.spec.run_policy.clean_pod_policy
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, clean_pod_policy=agreed))

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
            # As v1: nothing is written any more, so that what the launcher last saw stays to be read.
            return ()
        account = (_template(job, LAUNCHER).get("spec") or {}).get("serviceAccountName") or launcher_name(job)
        workers = [member_name(job.metadata.name, seat) for seat in gang.seats if seat.type == WORKER]
        running = [pod.metadata.name for _, pod in gang.of_type(WORKER) if is_active(pod)]
        files = self._config_files(job, workers, running)
        return (
            Companion(SERVICE_ACCOUNTS, mpi_objects.service_account(job, account), anyones=True),
            Companion(CONFIG_MAPS, mpi_objects.config_map(job, files), ("data",)),
            Companion(ROLES, mpi_objects.role(job, workers), ("rules",)),
            Companion(ROLE_BINDINGS, mpi_objects.role_binding(job, account), ("subjects",)),
        )

    def reset_types(self, job: Any, gang: Gang) -> Iterable[str]:
        return (WORKER,) if _launcher_has_ended(gang) else ()

    def verdict(self, job: MPIJob, gang: Gang) -> Verdict:
        succeeded = all_succeeded(self.replicas(job), gang, LAUNCHER)
        return condition_messages.job_verdict(
            job, succeeded=succeeded, running=pod_counts(gang, LAUNCHER).active > 0, led=True
        )

    def failure(self, job: MPIJob, kind: str, count: int) -> ConditionText:
        # Twice the kind: v1 says so, and clients match on it.
        return msgspec.structs.replace(condition_messages.failure_text(job, kind, count), reason="MPIJobMPIJobFailed")

    def restart_message(self, job: MPIJob, kind: str, count: int) -> str:
        return condition_messages.restart_message(job, kind, count)

    def _worker_edits(self, job: MPIJob) -> PodEdits:
        volume = config_volume(job, {EXEC_SCRIPT: _EXECUTABLE_MODE})
        # Until somebody runs a command in it.
        return PodEdits(mounts=(_CONFIG_MOUNT,), volumes=(volume,), command=("sleep",), args=("365d",))

    def _launcher_edits(self, job: MPIJob) -> PodEdits:
        modes = {EXEC_SCRIPT: _EXECUTABLE_MODE, HOSTFILE: _READABLE_MODE, DISCOVERY_SCRIPT: _EXECUTABLE_MODE}
        edits = PodEdits(
            env=tuple(self._launcher_env(_template(job, LAUNCHER))),
            into=EnvTarget.FIRST,
            labels=MASTER_ROLE_LABELS,
            service_account=launcher_name(job),
        )
        if self._agent is not None:
            volume = config_volume(job, {**modes, HYDRA_HOSTFILE: _READABLE_MODE})
            return msgspec.structs.replace(edits, volumes=(volume,), mounts=(_CONFIG_MOUNT,))
        return msgspec.structs.replace(
            edits,
            volumes=({"name": KUBECTL_VOLUME, "emptyDir": {}}, config_volume(job, modes)),
            mounts=(_KUBECTL_MOUNT, _CONFIG_MOUNT),
            init_containers=(self._delivery_container(job.metadata.namespace),) if self._delivery_image else (),
        )

    def _launcher_env(self, template: JSON) -> Iterator[JSON]:
        yield from variables(
            OMPI_MCA_plm_rsh_agent=config_path(EXEC_SCRIPT),
            OMPI_MCA_orte_default_hostfile=config_path(HOSTFILE),
        )
        if not _has_gpus(template):
            # There, and empty: else NVIDIA's runtime gives a launcher that asked for no GPU those of its node.
            yield {"name": "NVIDIA_VISIBLE_DEVICES"}
            yield {"name": "NVIDIA_DRIVER_CAPABILITIES"}
        yield from _unset_variables(
            template,
            INTEL_MPI_VARIABLES if self._agent is None else {**INTEL_MPI_VARIABLES, **LOCAL_MPI_VARIABLES},
        )

    def _delivery_container(self, namespace: str) -> JSON:
        amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
        return {
            "name": "kubectl-delivery",
            "image": self._delivery_image,
            "imagePullPolicy": "IfNotPresent",
            "env": list(variables(TARGET_DIR=mpi_hosts.KUBECTL_FOLDER, NAMESPACE=namespace)),
            "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
            "resources": {"limits": amounts, "requests": amounts},
        }

    def _config_files(self, job: MPIJob, workers: list[str], running: list[str]) -> dict[str, str]:
        slots = 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
        launcher = launcher_name(job) if _has_gpus(_template(job, LAUNCHER)) else ""
        hosts = [launcher, *workers] if launcher else workers
        files = {
            HOSTFILE: mpi_hosts.hostfile(hosts, slots),
            DISCOVERY_SCRIPT: mpi_hosts.discovery_script(launcher, running, slots),
        }
        if self._agent is None:
            return {**files, EXEC_SCRIPT: mpi_hosts.kubectl_script(job.spec.main_container)}
        script = mpi_hosts.agent_script(self._agent, job.spec.main_container)
        return {**files, EXEC_SCRIPT: script, HYDRA_HOSTFILE: mpi_hosts.hydra_hostfile(hosts, slots)}


def _launcher_has_ended(gang: Gang) -> bool:
    pod = gang.pods.get(Member(LAUNCHER, 0))
    return pod is not None and pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _template(job: MPIJob, kind: str) -> JSON:
    spec = job.spec.mpi_replica_specs.get(kind)
    return spec.template if spec is not None else {}


def _unset_variables(template: JSON, wanted: Mapping[str, str]) -> tuple[JSON, ...]:
    """Variables for the first container, but for those that the user set there."""
    first = (_containers(template) or [{}])[0]
    given = {each.get("name") for each in first.get("env") or []}
    return variables(**{name: value for name, value in wanted.items() if name not in given})


def _containers(template: JSON) -> list[JSON]:
    return (template.get("spec") or {}).get("containers") or []


def _has_gpus(template: JSON) -> bool:
    """Whether the launcher has GPUs, and so computes like a worker."""
    limits = ((found.get("resources") or {}).get("limits") or {} for found in _containers(template))
    return any("gpu" in name for each in limits for name in each)
