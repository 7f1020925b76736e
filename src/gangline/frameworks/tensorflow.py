"""TensorFlow: TF_CONFIG, and success by the chief or by worker 0."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gangline.api.core import PodPhase
from gangline.api.kubeflow.kinds import TFJOB, TFJob
from gangline.api.kubeflow.training import ReplicaSpec
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages
from gangline.frameworks.memo import LastResult
from gangline.frameworks.replica_counts import (
    MASTER,
    MASTER_ROLE_LABELS,
    WORKER,
    all_succeeded,
    pod_counts,
    replica_count,
)
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.framework import Addresses, ConditionText, PodEdits, Problem, Verdict, variables
from gangline.jobs.pods.replicas import Gang, Member, terminated_state

CHIEF, PS = "Chief", "PS"
LEADER_TYPES = (CHIEF, MASTER)
"""Two names of one role."""
FIRST_WORKER = Member(WORKER, 0)
ALL_WORKERS = "AllWorkers"


class TensorFlow(TeamFramework[TFJob]):
    """TFJob."""

    facts = TFJOB

    def __init__(self) -> None:
        self._last_cluster_spec: LastResult[msgspec.Raw] = LastResult()

    def validate(self, job: TFJob) -> Iterable[Problem]:
        replicas = self.replicas(job)
        if all(replica_count(replicas, kind) for kind in LEADER_TYPES):
            yield Problem("spec.tfReplicaSpecs", "has both Chief and Master, two names of one role; write one")
        for kind in LEADER_TYPES:
            if replica_count(replicas, kind) > 1:
                path = f"spec.tfReplicaSpecs.{kind}.replicas"
                yield Problem(path, f"is {replica_count(replicas, kind)}; write 1, for TensorFlow knows one chief")

    def wiring(self, job: TFJob, member: Member, addresses: Addresses) -> PodEdits:
        chief = self._chief_type(job)
        leads = member.type == chief if chief else member == FIRST_WORKER
        return PodEdits(env=self._env(job, member, addresses), labels=MASTER_ROLE_LABELS if leads else {})

    def verdict(self, job: TFJob, gang: Gang) -> Verdict:
        chief = self._chief_type(job)
        succeeded = all_succeeded(self.replicas(job), gang, chief or WORKER)
        if not chief and job.spec.success_policy != ALL_WORKERS:
            succeeded = succeeded or self._first_worker_succeeded(gang)
        running = pod_counts(gang, chief or WORKER).active > 0
        return condition_messages.job_verdict(job, succeeded=succeeded, running=running, led=False)

    def failure(self, job: TFJob, kind: str, count: int) -> ConditionText:
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        return ConditionText("TFJobFailed", f"TFJob {name} has failed because {count} {kind} replica(s) failed.")

    def tolerates(self, job: TFJob, kind: str) -> bool:
        return job.spec.enable_dynamic_worker and kind == WORKER

    def _chief_type(self, job: TFJob) -> str:
        """The replica type in charge; empty if worker 0 is."""
        return next((kind for kind in LEADER_TYPES if replica_count(self.replicas(job), kind)), "")

    def _first_worker_succeeded(self, gang: Gang) -> bool:
        pod = gang.pods.get(FIRST_WORKER)
        if pod is None or pod.status.phase != PodPhase.SUCCEEDED:
            return False
        ended = terminated_state(pod, TFJOB.container)
        return ended is not None and ended.exit_code == 0

    def _env(self, job: TFJob, member: Member, addresses: Addresses) -> tuple[JSON, ...]:
        replicas = self.replicas(job)
        if sum(replica_count(replicas, kind) for kind in TFJOB.types) == 1:
            # Alone: TensorFlow trains locally when it is told of no cluster.
            return ()
        config: JSON
        if job.spec.enable_dynamic_worker:
            config = _sparse_config(replicas, member, addresses)
        else:
            cluster = self._last_cluster_spec.result_for(lambda: _cluster_spec(replicas, addresses), job, addresses)
            config = {"cluster": cluster, "task": _task_spec(member), "environment": "cloud"}
        return variables(TF_CONFIG=msgspec.json.encode(config).decode())


def _cluster_spec(replicas: Mapping[str, ReplicaSpec], addresses: Addresses) -> msgspec.Raw:
    listed = {kind.lower(): _type_addresses(replicas, kind, addresses) for kind in sorted(replicas, key=str.lower)}
    return msgspec.Raw(msgspec.json.encode(listed))


def _sparse_config(replicas: Mapping[str, ReplicaSpec], member: Member, addresses: Addresses) -> JSON:
    """What stays true while workers come and go: each knows itself, and a worker the parameter servers."""
    workers: dict[str, str] = {}
    servers: list[str] = []
    if member.type == WORKER:
        workers = {str(member.index): str(addresses.of(member))}
        servers = _type_addresses(replicas, PS, addresses)
    elif member.type == PS:
        servers = [str(addresses.of(member))]
    return {"cluster": {"worker": workers, "ps": servers}, "task": _task_spec(member)}


def _type_addresses(replicas: Mapping[str, ReplicaSpec], kind: str, addresses: Addresses) -> list[str]:
    return [str(addresses.of(Member(kind, index))) for index in range(replica_count(replicas, kind))]


def _task_spec(member: Member) -> dict[str, Any]:
    return {"type": member.type.lower(), "index": member.index}
