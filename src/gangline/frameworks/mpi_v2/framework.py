"""MPIJob `kubeflow.org/v2beta1` as a framework: defaults, validation, and what is where no SSH is."""

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.kinds import (
    DEFAULT_SSH_PATH,
    MPIJOB_V2,
    LauncherCreationPolicy,
    MpiImplementation,
    MPIJobV2,
)
from gangline.api.kubeflow.training import CleanPodPolicy, ReplicaSpec, RestartPolicy
from gangline.api.meta import JSON
from gangline.api.names import MAX_DNS_LABEL_LENGTH
from gangline.frameworks import condition_messages, mpi_objects
from gangline.frameworks.mpi_v2 import objects
from gangline.frameworks.mpi_v2.objects import LAUNCHER
from gangline.frameworks.mpi_v2.plan import launcher_job_plan
from gangline.frameworks.replica_counts import MASTER_ROLE_LABELS, WORKER, replica_count
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import with_defaults
from gangline.jobs.framework import (
    BATCH_JOBS,
    Addresses,
    Companion,
    ConditionText,
    EnvTarget,
    PodEdits,
    Problem,
    variables,
)
from gangline.jobs.plan.actions import JobPlan
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.pods.replicas import Gang, Member, is_active, member_name

CONFIG_MAPS = "configmaps"
DEFAULT_BACKOFF_LIMIT = 6
"""How often Kubernetes starts a Job again whose backoffLimit is not set."""
AGENT_SCRIPT, HYDRA_HOSTFILE = "agent.sh", "hydra-hostfile"
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_RESTART_POLICIES = (RestartPolicy.NEVER, RestartPolicy.ON_FAILURE)


class _MpiV2(TeamFramework[MPIJobV2]):
    facts = MPIJOB_V2
    collective = True
    all_or_nothing = True

    def default(self, job: MPIJobV2) -> MPIJobV2:
        spec = job.spec
        replicas = dict(spec.mpi_replica_specs)
        if (launcher := replicas.get(LAUNCHER)) is not None and not launcher.restart_policy:
            replicas[LAUNCHER] = msgspec.structs.replace(launcher, restart_policy=RestartPolicy.ON_FAILURE.value)
        spec = msgspec.structs.replace(
            spec,
            mpi_replica_specs=replicas,
            slots_per_worker=1 if spec.slots_per_worker is None else spec.slots_per_worker,
            mpi_implementation=spec.mpi_implementation or MpiImplementation.OPEN_MPI.value,
            ssh_auth_mount_path=spec.ssh_auth_mount_path or DEFAULT_SSH_PATH,
            launcher_creation_policy=spec.launcher_creation_policy or LauncherCreationPolicy.AT_STARTUP.value,
        )
        return with_defaults(msgspec.structs.replace(job, spec=spec), MPIJOB_V2)

    def validate(self, job: MPIJobV2) -> Iterable[Problem]:
        replicas, path = self.replicas(job), f"spec.{MPIJOB_V2.replicas}"
        yield from _name_problems(job.metadata.name, replica_count(replicas, WORKER))
        if LAUNCHER not in replicas:
            yield Problem(path, "has no Launcher; write one, with replicas: 1")
        elif replica_count(replicas, LAUNCHER) != 1:
            yield Problem(f"{path}.{LAUNCHER}.replicas", f"is {replica_count(replicas, LAUNCHER)}; write 1")
        if WORKER in replicas and replica_count(replicas, WORKER) < 1:
            yield Problem(f"{path}.{WORKER}.replicas", f"is {replica_count(replicas, WORKER)}; write 1 or more")
        for kind, spec in replicas.items():
            if spec.restart_policy not in _RESTART_POLICIES:
                policies = " or ".join(_RESTART_POLICIES)
                yield Problem(f"{path}.{kind}.restartPolicy", f'is "{spec.restart_policy}"; write {policies}')
        yield from _value_problems(job)


class SshMpi(_MpiV2):
    """In a cluster: everything as mpi-operator has it. `domain` is the cluster's, if host names shall be full ones."""

    resources: tuple[str, ...] = (CONFIG_MAPS, BATCH_JOBS)

    def __init__(self, domain: str = "") -> None:
        self._domain = domain

    def launcher_job(self, job: Any) -> str:
        assert isinstance(job, MPIJobV2)
        return objects.launcher_name(job)

    def first_members(self, job: Any) -> int | None:
        assert isinstance(job, MPIJobV2)
        waits = job.spec.launcher_creation_policy == LauncherCreationPolicy.WAIT_FOR_WORKERS_READY
        return objects.worker_count(job) if waits else None

    def pod_spec(self, job: Any, kind: str) -> JSON:
        assert isinstance(job, MPIJobV2)
        template = objects.launcher_template(job) if kind == LAUNCHER else objects.worker_pod(job, 0, self._domain)
        spec: JSON = template["spec"]
        return spec

    def plan(self, observed: ObservedJob[Any]) -> JobPlan:
        return launcher_job_plan(observed, self._domain)

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]:
        assert isinstance(job, MPIJobV2)
        running = [pod.metadata.name for _, pod in gang.of_type(WORKER) if pod.status.phase == PodPhase.RUNNING]
        return (Companion(CONFIG_MAPS, objects.config_map(job, running, self._domain), ("data",)),)


class AgentMpi(_MpiV2):
    """On one machine, where no sshd runs: `agent` is a command on the node that runs another command in a pod.

    The launcher is a pod as in v1, since nothing here runs Jobs of Kubernetes. Workers sleep instead of running sshd.
    """

    resources: tuple[str, ...] = (CONFIG_MAPS,)

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def default(self, job: MPIJobV2) -> MPIJobV2:
        job = super().default(job)
        policy = job.spec.run_policy
        if policy.backoff_limit is None:
            policy = msgspec.structs.replace(policy, backoff_limit=DEFAULT_BACKOFF_LIMIT)
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, run_policy=policy))

    def replicas(self, job: MPIJobV2) -> Mapping[str, ReplicaSpec]:
        replicas = super().replicas(job)
        worker = replicas.get(WORKER)
        if worker is None or not _runs_sshd(worker.template):
            return replicas
        return {**replicas, WORKER: msgspec.structs.replace(worker, template=_without_command(worker.template))}

    def wiring(self, job: MPIJobV2, member: Member, addresses: Addresses) -> PodEdits:
        if member.type == LAUNCHER:
            return self._launcher_edits(job)
        role = variables(K_MPI_JOB_ROLE="worker")
        return PodEdits(env=role, into=EnvTarget.FIRST, command=("sleep",), args=("365d",))

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]:
        assert isinstance(job, MPIJobV2)
        launcher = gang.pods.get(Member(LAUNCHER, 0))
        if launcher is not None and launcher.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            return ()
        slots = job.spec.slots_per_worker or 1
        names = objects.hosts(job)
        own = [objects.launcher_name(job)] if job.spec.run_launcher_as_worker else []
        running = sorted(pod.metadata.name for _, pod in gang.of_type(WORKER) if is_active(pod))
        files = {
            objects.HOSTFILE: mpi_objects.hostfile(names, slots),
            HYDRA_HOSTFILE: mpi_objects.hydra_hostfile(names, slots),
            objects.DISCOVERY_SCRIPT: objects.discovery_script([*own, *running]),
            AGENT_SCRIPT: mpi_objects.agent_script(self._agent, ""),
        }
        metadata = {"name": objects.config_map_name(job), "labels": objects.app_labels(job)}
        return (Companion(CONFIG_MAPS, {"metadata": metadata, "data": files}, ("data",)),)

    def failure(self, job: MPIJobV2, kind: str, count: int) -> ConditionText:
        return condition_messages.failure_text(job, kind, count)

    def tolerates(self, job: MPIJobV2, kind: str) -> bool:
        # As in mpi-operator the launcher alone decides.
        return kind == WORKER

    def _launcher_edits(self, job: MPIJobV2) -> PodEdits:
        agent, hosts, hydra_hosts = (
            f"{objects.CONFIG_FOLDER}/{name}" for name in (AGENT_SCRIPT, objects.HOSTFILE, HYDRA_HOSTFILE)
        )
        modes = {AGENT_SCRIPT: 0o555, objects.DISCOVERY_SCRIPT: 0o555, objects.HOSTFILE: 0o444, HYDRA_HOSTFILE: 0o444}
        items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
        volume = {
            "name": objects.CONFIG_VOLUME,
            "configMap": {"name": objects.config_map_name(job), "items": items},
        }
        # Whatever mpiImplementation says: the machine has the MPI that it has.
        env = variables(
            K_MPI_JOB_ROLE="launcher",
            OMPI_MCA_plm_rsh_agent=agent,
            OMPI_MCA_orte_default_hostfile=hosts,
            PRTE_MCA_plm_ssh_agent=agent,
            PRTE_MCA_prte_default_hostfile=hosts,
            HYDRA_LAUNCHER_EXEC=agent,
            HYDRA_HOST_FILE=hydra_hosts,
            I_MPI_HYDRA_BOOTSTRAP="rsh",
            I_MPI_HYDRA_BOOTSTRAP_EXEC=agent,
            I_MPI_HYDRA_HOST_FILE=hydra_hosts,
        )
        return PodEdits(
            env=tuple(_unset(env, job.spec.mpi_replica_specs[LAUNCHER].template)),
            into=EnvTarget.FIRST,
            labels=MASTER_ROLE_LABELS,
            volumes=(volume,),
            mounts=({"name": objects.CONFIG_VOLUME, "mountPath": objects.CONFIG_FOLDER},),
        )


def _name_problems(name: str, workers: int) -> Iterator[Problem]:
    host = member_name(name, Member(WORKER, max(workers - 1, 0)))
    longest = max(host, f"{name}-launcher", key=len)
    if len(longest) > MAX_DNS_LABEL_LENGTH:
        excess = len(longest) - MAX_DNS_LABEL_LENGTH
        message = f'its host name "{longest}" would be {excess} too long; write a name shorter by {excess}'
        yield Problem("metadata.name", message)
    elif not _DNS_1035.fullmatch(host):
        yield Problem(
            "metadata.name", "is no host name; write lower case letters, digits and -, beginning with a letter"
        )


def _value_problems(job: MPIJobV2) -> Iterator[Problem]:
    spec, policy = job.spec, job.spec.run_policy
    choices: tuple[tuple[str, str, Iterable[str]], ...] = (
        ("mpiImplementation", spec.mpi_implementation, MpiImplementation),
        ("runPolicy.cleanPodPolicy", policy.clean_pod_policy, CleanPodPolicy),
    )
    for field, value, allowed in choices:
        if value not in list(allowed):
            yield Problem(f"spec.{field}", f'is "{value}"; write one of {", ".join(allowed)}')
    numbers = {
        "slotsPerWorker": spec.slots_per_worker,
        "runPolicy.ttlSecondsAfterFinished": policy.ttl_seconds_after_finished,
        "runPolicy.activeDeadlineSeconds": policy.active_deadline_seconds,
        "runPolicy.backoffLimit": policy.backoff_limit,
    }
    for field, number in numbers.items():
        if (number or 0) < 0:
            yield Problem(f"spec.{field}", f"is {number}; write 0 or more")


def _runs_sshd(template: JSON) -> bool:
    """Whether the first container of a worker runs sshd, as in an image for mpi-operator."""
    words = _first_container(template).get("command") or []
    return bool(words) and str(words[0]).rpartition("/")[2] == "sshd"


def _without_command(template: JSON) -> JSON:
    copied = deepcopy(template)
    first = _first_container(copied)
    for field in ("command", "args"):
        first.pop(field, None)
    return copied


def _unset(env: Iterable[JSON], template: JSON) -> Iterator[JSON]:
    """These variables without those that the template sets."""
    names = {variable.get("name") for variable in _first_container(template).get("env") or []}
    return (variable for variable in env if variable["name"] not in names)


def _first_container(template: JSON) -> JSON:
    containers: list[JSON] = (template.get("spec") or {}).get("containers") or [{}]
    return containers[0]
