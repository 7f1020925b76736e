"""MPI: a launcher that starts its ranks in workers, by a script instead of ssh; success by the launcher."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.mpijob import MPIJOB, MPIJob
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages, mpi_hosts, mpi_objects
from gangline.frameworks.mpi_hosts import DISCOVERY, HOSTS, HYDRA_HOSTS, SCRIPT, in_folder
from gangline.frameworks.mpi_objects import CONFIG_VOLUME, RBAC, config_volume, launcher_name
from gangline.frameworks.replica_counts import MASTER_ROLE, WORKER, all_succeeded, counts, size
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import defaulted
from gangline.jobs.framework import Addresses, Companion, Into, PodEdits, Problem, Told, Verdict, variables
from gangline.jobs.pods.replicas import Gang, Member, active, seat_name

LAUNCHER = "Launcher"
CONFIGS, ACCOUNTS, ROLES, BINDINGS = "configmaps", "serviceaccounts", f"roles.{RBAC}", f"rolebindings.{RBAC}"
KUBECTL_VOLUME = "mpi-job-kubectl"
_KUBECTL_MOUNT: JSON = {"name": KUBECTL_VOLUME, "mountPath": mpi_hosts.KUBECTL_FOLDER}
_CONFIG_MOUNT: JSON = {"name": CONFIG_VOLUME, "mountPath": mpi_hosts.CONFIG_FOLDER}
_RUNNABLE, _READABLE = 0o555, 0o444

INTEL = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": in_folder(SCRIPT)}
LOCAL = {
    # What Open MPI 4 is told under other names, for Open MPI 5 and MPICH.
    "PRTE_MCA_plm_ssh_agent": in_folder(SCRIPT),
    "PRTE_MCA_prte_default_hostfile": in_folder(HOSTS),
    "HYDRA_LAUNCHER_EXEC": in_folder(SCRIPT),
    "HYDRA_HOST_FILE": in_folder(HYDRA_HOSTS),
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

    resources: tuple[str, ...] = (CONFIGS, ACCOUNTS, ROLES, BINDINGS)
    inseparable = True

    def __init__(
        self, delivery_image: str = "kubeflow/kubectl-delivery:latest", agent: str | None = None
    ) -> None:
        self._delivery_image, self._agent = delivery_image, agent

    def default(self, job: MPIJob) -> MPIJob:
        written = job.spec
        policy = written.run_policy.clean_pod_policy or written.clean_pod_policy
        run_policy = msgspec.structs.replace(written.run_policy, clean_pod_policy=policy)
        slots = 1 if written.slots_per_worker is None else written.slots_per_worker
        spec = msgspec.structs.replace(written, run_policy=run_policy, slots_per_worker=slots)
        job = defaulted(msgspec.structs.replace(job, spec=spec), MPIJOB)
        agreed = job.spec.run_policy.clean_pod_policy
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, clean_pod_policy=agreed))

    def validate(self, job: MPIJob) -> Iterable[Problem]:
        replicas = self.replicas(job)
        if LAUNCHER not in replicas:
            yield Problem("spec.mpiReplicaSpecs", "has no Launcher; write one, with replicas: 1")
        elif size(replicas, LAUNCHER) != 1:
            path = f"spec.mpiReplicaSpecs.{LAUNCHER}.replicas"
            yield Problem(path, f"is {size(replicas, LAUNCHER)}; write 1")

    def wiring(self, job: MPIJob, member: Member, addresses: Addresses) -> PodEdits:
        return self._launcher(job) if member.type == LAUNCHER else self._worker(job)

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]:
        """The files for launcher and workers, and the right to run commands in the workers."""
        assert isinstance(job, MPIJob)
        if _over(gang):
            # As v1: nothing is written any more, so that what the launcher last saw stays to be read.
            return ()
        account = (_template(job, LAUNCHER).get("spec") or {}).get("serviceAccountName") or launcher_name(job)
        workers = [seat_name(job.metadata.name, seat) for seat in gang.seats if seat.type == WORKER]
        running = [pod.metadata.name for _, pod in gang.of_type(WORKER) if active(pod)]
        files = self._files(job, workers, running)
        return (
            Companion(ACCOUNTS, mpi_objects.account(job, account), anyones=True),
            Companion(CONFIGS, mpi_objects.config(job, files), ("data",)),
            Companion(ROLES, mpi_objects.role(job, workers), ("rules",)),
            Companion(BINDINGS, mpi_objects.binding(job, account), ("subjects",)),
        )

    def cleared(self, job: Any, gang: Gang) -> Iterable[str]:
        return (WORKER,) if _over(gang) else ()

    def verdict(self, job: MPIJob, gang: Gang) -> Verdict:
        succeeded = all_succeeded(self.replicas(job), gang, LAUNCHER)
        return condition_messages.verdict(
            job, succeeded=succeeded, running=counts(gang, LAUNCHER).active > 0, led=True
        )

    def failure(self, job: MPIJob, kind: str, count: int) -> Told:
        # Twice the kind: v1 says so, and clients match on it.
        return msgspec.structs.replace(
            condition_messages.failure(job, kind, count), reason="MPIJobMPIJobFailed"
        )

    def restarting(self, job: MPIJob, kind: str, count: int) -> str:
        return condition_messages.restarting(job, kind, count)

    def _worker(self, job: MPIJob) -> PodEdits:
        volume = config_volume(job, {SCRIPT: _RUNNABLE})
        # Until somebody runs a command in it.
        return PodEdits(mounts=(_CONFIG_MOUNT,), volumes=(volume,), command=("sleep",), args=("365d",))

    def _launcher(self, job: MPIJob) -> PodEdits:
        modes = {SCRIPT: _RUNNABLE, HOSTS: _READABLE, DISCOVERY: _RUNNABLE}
        edits = PodEdits(
            env=tuple(self._env(_template(job, LAUNCHER))),
            into=Into.FIRST,
            labels=MASTER_ROLE,
            service_account=launcher_name(job),
        )
        if self._agent is not None:
            volume = config_volume(job, {**modes, HYDRA_HOSTS: _READABLE})
            return msgspec.structs.replace(edits, volumes=(volume,), mounts=(_CONFIG_MOUNT,))
        return msgspec.structs.replace(
            edits,
            volumes=({"name": KUBECTL_VOLUME, "emptyDir": {}}, config_volume(job, modes)),
            mounts=(_KUBECTL_MOUNT, _CONFIG_MOUNT),
            init_containers=(self._delivery(job.metadata.namespace),) if self._delivery_image else (),
        )

    def _env(self, template: JSON) -> Iterator[JSON]:
        yield from variables(
            OMPI_MCA_plm_rsh_agent=in_folder(SCRIPT), OMPI_MCA_orte_default_hostfile=in_folder(HOSTS)
        )
        if not _works(template):
            # There, and empty: else NVIDIA's runtime gives a launcher that asked for no GPU those of its node.
            yield {"name": "NVIDIA_VISIBLE_DEVICES"}
            yield {"name": "NVIDIA_DRIVER_CAPABILITIES"}
        yield from _unless_given(template, INTEL if self._agent is None else {**INTEL, **LOCAL})

    def _delivery(self, namespace: str) -> JSON:
        amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
        return {
            "name": "kubectl-delivery",
            "image": self._delivery_image,
            "imagePullPolicy": "IfNotPresent",
            "env": list(variables(TARGET_DIR=mpi_hosts.KUBECTL_FOLDER, NAMESPACE=namespace)),
            "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
            "resources": {"limits": amounts, "requests": amounts},
        }

    def _files(self, job: MPIJob, workers: list[str], running: list[str]) -> dict[str, str]:
        slots = 1 if job.spec.slots_per_worker is None else job.spec.slots_per_worker
        launcher = launcher_name(job) if _works(_template(job, LAUNCHER)) else ""
        hosts = [launcher, *workers] if launcher else workers
        files = {
            HOSTS: mpi_hosts.hostfile(hosts, slots),
            DISCOVERY: mpi_hosts.discovery(launcher, running, slots),
        }
        if self._agent is None:
            return {**files, SCRIPT: mpi_hosts.kubectl_script(job.spec.main_container)}
        script = mpi_hosts.agent_script(self._agent, job.spec.main_container)
        return {**files, SCRIPT: script, HYDRA_HOSTS: mpi_hosts.hydra_hostfile(hosts, slots)}


def _over(gang: Gang) -> bool:
    pod = gang.pods.get(Member(LAUNCHER, 0))
    return pod is not None and pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _template(job: MPIJob, kind: str) -> JSON:
    spec = job.spec.mpi_replica_specs.get(kind)
    return spec.template if spec is not None else {}


def _unless_given(template: JSON, wanted: Mapping[str, str]) -> tuple[JSON, ...]:
    """Variables for the first container, but for those that the user set there."""
    first = (_containers(template) or [{}])[0]
    given = {each.get("name") for each in first.get("env") or []}
    return variables(**{name: value for name, value in wanted.items() if name not in given})


def _containers(template: JSON) -> list[JSON]:
    return (template.get("spec") or {}).get("containers") or []


def _works(template: JSON) -> bool:
    """Whether the launcher has GPUs, and so computes like a worker."""
    limits = ((found.get("resources") or {}).get("limits") or {} for found in _containers(template))
    return any("gpu" in name for each in limits for name in each)
