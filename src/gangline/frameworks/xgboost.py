"""XGBoost and LightGBM: a master that runs the tracker, and workers. The job succeeds when the master has."""

from collections.abc import Iterable

from gangline.api.kubeflow.kinds import XGBOOSTJOB, XGBoostJob
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages
from gangline.frameworks.memo import LastResult
from gangline.frameworks.replica_counts import MASTER, MASTER_ROLE_LABELS, WORKER, replica_count, total_replicas
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.framework import Addresses, ConditionText, EnvTarget, PodEdits, Problem, variables
from gangline.jobs.pods.replicas import Member


class XGBoost(TeamFramework[XGBoostJob]):
    """XGBoostJob."""

    facts = XGBOOSTJOB
    collective = True

    def __init__(self) -> None:
        self._last_worker_names: LastResult[str] = LastResult()

    def validate(self, job: XGBoostJob) -> Iterable[Problem]:
        replicas = self.replicas(job)
        if MASTER not in replicas:
            yield Problem("spec.xgbReplicaSpecs", "has no Master; write one, with replicas: 1")
        elif replica_count(replicas, MASTER) != 1:
            yield Problem(f"spec.xgbReplicaSpecs.{MASTER}.replicas", f"is {replica_count(replicas, MASTER)}; write 1")

    def wiring(self, job: XGBoostJob, member: Member, addresses: Addresses) -> PodEdits:
        replicas, leader = self.replicas(job), addresses.of(Member(MASTER, 0))
        first_rank = 0 if member.type == MASTER else replica_count(replicas, MASTER)
        env = variables(
            MASTER_PORT=str(leader.port),
            MASTER_ADDR=leader.name,
            WORLD_SIZE=str(total_replicas(replicas)),
            RANK=str(first_rank + member.index),
            PYTHONUNBUFFERED="1",
        )
        labels = MASTER_ROLE_LABELS if member.type == MASTER else {}
        return PodEdits(
            env=(*env, *self._worker_variables(job, member, addresses)), into=EnvTarget.EVERY, labels=labels
        )

    def running_text(self, job: XGBoostJob) -> ConditionText:
        """v1 sets condition Running at the end of every job of this kind, and of no other."""
        return condition_messages.running_text(job)

    def restart_message(self, job: XGBoostJob, kind: str, count: int) -> str:
        return condition_messages.restart_message(job, kind, count)

    def _worker_variables(self, job: XGBoostJob, member: Member, addresses: Addresses) -> tuple[JSON, ...]:
        """The variables for LightGBM: port and names of the workers."""
        count = replica_count(self.replicas(job), WORKER)
        if not count:
            return ()
        # One port stands for all workers. Where each worker has its own, it gets the port on which it listens.
        port = addresses.of(member if member.type == WORKER else Member(WORKER, 0)).port
        names = self._last_worker_names.result_for(lambda: _joined_names(count, addresses), job, addresses)
        return variables(WORKER_PORT=str(port), WORKER_ADDRS=names)


def _joined_names(workers: int, addresses: Addresses) -> str:
    return ",".join(addresses.of(Member(WORKER, index)).name for index in range(workers))
