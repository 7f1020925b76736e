"""PaddlePaddle: collective training with workers alone, or parameter servers (masters) and workers."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import PADDLEJOB, PaddleJob
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages
from gangline.frameworks.replica_counts import (
    MASTER,
    MASTER_ROLE_LABELS,
    WORKER,
    all_succeeded,
    elastic_bounds,
    pod_counts,
    replica_count,
    total_replicas,
)
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import with_defaults
from gangline.jobs.framework import Addresses, EnvTarget, PodEdits, Problem, Verdict, variables
from gangline.jobs.pods.replicas import Gang, Member

_POD_IP_VARIABLE = {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


class Paddle(TeamFramework[PaddleJob]):
    """PaddleJob."""

    facts = PADDLEJOB
    collective = True

    def default(self, job: PaddleJob) -> PaddleJob:
        job = with_defaults(job, PADDLEJOB)
        elastic, worker = job.spec.elastic_policy, job.spec.paddle_replica_specs.get(WORKER)
        if elastic is None or worker is None:
            return job
        bounds = elastic_bounds(elastic.min_replicas, elastic.max_replicas, worker.replicas)
        elastic = msgspec.structs.replace(elastic, **bounds)
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, elastic_policy=elastic))

    def validate(self, job: PaddleJob) -> Iterable[Problem]:
        if job.spec.elastic_policy is not None and WORKER not in self.replicas(job):
            yield Problem("spec.paddleReplicaSpecs", "has no Worker, which elasticPolicy needs; write one")

    def wiring(self, job: PaddleJob, member: Member, addresses: Addresses) -> PodEdits:
        replicas, leader = self.replicas(job), self._leader_type(job)
        env = (
            *variables(
                PYTHONUNBUFFERED="1", PADDLE_JOB_ID=job.metadata.name, PADDLE_NNODES=str(total_replicas(replicas))
            ),
            *_master_variables(member, Member(leader, 0), addresses),
            *(_role_variables(member) if leader == MASTER else ()),
        )
        labels = MASTER_ROLE_LABELS if member.type == MASTER else {}
        return PodEdits(env=env, into=EnvTarget.EVERY, labels=labels)

    def verdict(self, job: PaddleJob, gang: Gang) -> Verdict:
        leader = self._leader_type(job)
        succeeded = all_succeeded(self.replicas(job), gang, leader)
        running = pod_counts(gang, leader).active > 0
        return condition_messages.job_verdict(job, succeeded=succeeded, running=running, led=leader == MASTER)

    def ignored_fields(self, job: Any) -> Iterable[Problem]:
        assert isinstance(job, PaddleJob)
        if job.spec.elastic_policy is not None:
            yield Problem("spec.elasticPolicy", "has no effect, as in v1; write the replicas you want")

    def _leader_type(self, job: PaddleJob) -> str:
        return MASTER if replica_count(self.replicas(job), MASTER) else WORKER


def _master_variables(member: Member, leader: Member, addresses: Addresses) -> tuple[JSON, ...]:
    """The address of the leader. The leader itself gets its pod's IP: its name may not resolve yet."""
    address = addresses.of(leader)
    if member == leader:
        return (_POD_IP_VARIABLE, *variables(PADDLE_MASTER=f"$(POD_IP_DUMMY):{address.port}"))
    return variables(PADDLE_MASTER=f"{address.name}:{address.port}")


def _role_variables(member: Member) -> tuple[JSON, ...]:
    """Each pod runs one parameter server or one trainer."""
    if member.type == MASTER:
        return variables(PADDLE_SERVER_NUM="1")
    return variables(PADDLE_TRAINER_NUM="1")
