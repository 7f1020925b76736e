"""JAX: equal workers around a coordinator, which is worker 0; success by all."""

from collections.abc import Iterable, Mapping

from gangline.api.jaxjob import JAXJOB, JAXJob
from gangline.api.training import JobKind, ReplicaSpec, RunPolicy
from gangline.frameworks import texts
from gangline.frameworks.team import MASTER_ROLE, WORKER, all_succeeded, counts, total
from gangline.jobs.framework import Addresses, Into, PodEdits, Problem, Told, Verdict, variables
from gangline.jobs.gang import Gang, Member
from gangline.jobs.intake import defaulted

COORDINATOR = Member(WORKER, 0)


class Jax:
    """JAXJob."""

    @property
    def facts(self) -> JobKind:
        return JAXJOB

    def default(self, job: JAXJob) -> JAXJob:
        return defaulted(job, JAXJOB)

    def validate(self, job: JAXJob) -> Iterable[Problem]:
        return ()

    def replicas(self, job: JAXJob) -> Mapping[str, ReplicaSpec]:
        return job.spec.jax_replica_specs

    def run_policy(self, job: JAXJob) -> RunPolicy:
        return job.spec.run_policy

    def wiring(self, job: JAXJob, member: Member, addresses: Addresses) -> PodEdits:
        coordinator = addresses.of(COORDINATOR)
        env = variables(
            PYTHONUNBUFFERED="1",
            COORDINATOR_PORT=str(coordinator.port),
            COORDINATOR_ADDRESS=coordinator.name,
            NUM_PROCESSES=str(total(self.replicas(job))),
            PROCESS_ID=str(member.index),
        )
        return PodEdits(env=env, into=Into.EVERY, labels=MASTER_ROLE if member == COORDINATOR else {})

    def verdict(self, job: JAXJob, gang: Gang) -> Verdict:
        succeeded = all_succeeded(self.replicas(job), gang, WORKER)
        return texts.verdict(job, succeeded=succeeded, running=counts(gang, WORKER).active > 0, led=False)

    def failure(self, job: JAXJob, kind: str, count: int) -> Told:
        return texts.failure(job, kind, count)

    def tolerates(self, job: JAXJob, kind: str) -> bool:
        return False
