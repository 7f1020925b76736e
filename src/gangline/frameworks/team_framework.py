"""A base class for frameworks, with everything that most of them have in common."""

from collections.abc import Iterable, Mapping
from typing import Any, Generic

from gangline.api.kubeflow.training import JobKind, ReplicaSpec, RunPolicy
from gangline.frameworks import condition_messages
from gangline.frameworks.ranks import single_rank
from gangline.frameworks.replica_counts import all_succeeded, pod_counts
from gangline.jobs.defaults import with_defaults
from gangline.jobs.framework import Addresses, ConditionText, J, PodEdits, Problem, Verdict
from gangline.jobs.pods.replicas import Gang, Member


class TeamFramework(Generic[J]):
    """A framework led by its first replica type: a job runs while that type does, and succeeds when all of it has.

    A subclass sets `facts` and defines `wiring`. It may override everything else.
    """

    facts: JobKind

    def default(self, job: J) -> J:
        return with_defaults(job, self.facts)

    def validate(self, job: J) -> Iterable[Problem]:
        return ()

    def replicas(self, job: J) -> Mapping[str, ReplicaSpec]:
        replicas: Mapping[str, ReplicaSpec] = getattr(_spec(job), self.facts.attribute)
        return replicas

    def run_policy(self, job: J) -> RunPolicy:
        policy: RunPolicy = _spec(job).run_policy
        return policy

    def wiring(self, job: J, member: Member, addresses: Addresses) -> PodEdits:
        raise NotImplementedError(f"{type(self).__name__} must say how a member finds the others")

    def verdict(self, job: J, gang: Gang) -> Verdict:
        leader = self.leader(job)
        succeeded = all_succeeded(self.replicas(job), gang, leader)
        return condition_messages.job_verdict(
            job, succeeded=succeeded, running=pod_counts(gang, leader).active > 0, led=True
        )

    def leader(self, job: J) -> str:
        """The replica type by which the job is judged."""
        return self.facts.needed or self.facts.types[0]

    def failure(self, job: J, kind: str, count: int) -> ConditionText:
        return condition_messages.failure_text(job, kind, count)

    def tolerates(self, job: J, kind: str) -> bool:
        return False

    def rank(self, job: J, member: Member) -> int | None:
        counts = {kind: replica.replicas or 0 for kind, replica in self.replicas(job).items()}
        return single_rank(self.facts.kind, _spec(job), counts, str(member))


def _spec(job: Any) -> Any:
    return job.spec
