"""JAX: workers around a coordinator, which is worker 0. The job succeeds when all workers have."""

from gangline.api.kubeflow.kinds import JAXJOB, JAXJob
from gangline.frameworks import condition_messages
from gangline.frameworks.replica_counts import MASTER_ROLE_LABELS, WORKER, all_succeeded, pod_counts, total_replicas
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.framework import Addresses, EnvTarget, PodEdits, Verdict, variables
from gangline.jobs.pods.replicas import Gang, Member

COORDINATOR = Member(WORKER, 0)


class Jax(TeamFramework[JAXJob]):
    """JAXJob."""

    facts = JAXJOB
    collective = True

    def wiring(self, job: JAXJob, member: Member, addresses: Addresses) -> PodEdits:
        coordinator = addresses.of(COORDINATOR)
        env = variables(
            PYTHONUNBUFFERED="1",
            COORDINATOR_PORT=str(coordinator.port),
            COORDINATOR_ADDRESS=coordinator.name,
            NUM_PROCESSES=str(total_replicas(self.replicas(job))),
            PROCESS_ID=str(member.index),
        )
        return PodEdits(env=env, into=EnvTarget.EVERY, labels=MASTER_ROLE_LABELS if member == COORDINATOR else {})

    def verdict(self, job: JAXJob, gang: Gang) -> Verdict:
        succeeded = all_succeeded(self.replicas(job), gang, WORKER)
        return condition_messages.job_verdict(
            job, succeeded=succeeded, running=pod_counts(gang, WORKER).active > 0, led=False
        )
