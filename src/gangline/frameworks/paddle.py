"""PaddlePaddle: collective with workers alone, or parameter servers (masters) and workers."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.api.kubeflow.paddlejob import PADDLEJOB, PaddleJob
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages
from gangline.frameworks.replica_counts import (
    MASTER,
    MASTER_ROLE,
    WORKER,
    all_succeeded,
    counts,
    elastic_bounds,
    size,
    total,
)
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import defaulted
from gangline.jobs.framework import Addresses, Into, PodEdits, Problem, Verdict, variables
from gangline.jobs.pods.replicas import Gang, Member

_OWN_ADDRESS = {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


class Paddle(TeamFramework[PaddleJob]):
    """PaddleJob."""

    facts = PADDLEJOB

    def default(self, job: PaddleJob) -> PaddleJob:
        job = defaulted(job, PADDLEJOB)
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
        replicas, leader = self.replicas(job), self._leader(job)
        env = (
            *variables(
                PYTHONUNBUFFERED="1",
                PADDLE_JOB_ID=job.metadata.name,
                PADDLE_NNODES=str(total(replicas)),
            ),
            *_meeting(member, Member(leader, 0), addresses),
            *(_share(member) if leader == MASTER else ()),
        )
        labels = MASTER_ROLE if member.type == MASTER else {}
        return PodEdits(env=env, into=Into.EVERY, labels=labels)

    def verdict(self, job: PaddleJob, gang: Gang) -> Verdict:
        leader = self._leader(job)
        succeeded = all_succeeded(self.replicas(job), gang, leader)
        running = counts(gang, leader).active > 0
        return condition_messages.verdict(job, succeeded=succeeded, running=running, led=leader == MASTER)

    def ignored(self, job: Any) -> Iterable[Problem]:
        assert isinstance(job, PaddleJob)
        if job.spec.elastic_policy is not None:
            yield Problem("spec.elasticPolicy", "has no effect, as in v1; write the replicas you want")

    def _leader(self, job: PaddleJob) -> str:
        return MASTER if size(self.replicas(job), MASTER) else WORKER


def _meeting(member: Member, leader: Member, addresses: Addresses) -> tuple[JSON, ...]:
    """Where all meet. The leader listens there, on its own number: its name may not resolve yet."""
    place = addresses.of(leader)
    if member == leader:
        return (_OWN_ADDRESS, *variables(PADDLE_MASTER=f"$(POD_IP_DUMMY):{place.port}"))
    return variables(PADDLE_MASTER=f"{place.name}:{place.port}")


def _share(member: Member) -> tuple[JSON, ...]:
    """Each pod is one server or one trainer."""
    if member.type == MASTER:
        return variables(PADDLE_SERVER_NUM="1")
    return variables(PADDLE_TRAINER_NUM="1")
