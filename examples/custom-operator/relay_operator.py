"""A job operator in one file: RelayJob, a made-up framework in which members hand a baton round.

gangline crd relay_operator.py | kubectl apply -f -
python relay_operator.py --help
"""

from typing import ClassVar

from gangline.operator import (
    Addresses,
    ApiStruct,
    JobKind,
    Member,
    PodEdits,
    Port,
    ReplicaSpec,
    RunPolicy,
    TeamFramework,
    TrainingJob,
    run,
    variables,
)

COORDINATOR, MEMBER = "Coordinator", "Member"


class RelayJobSpec(ApiStruct, frozen=True):
    relay_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    laps: int = 1


class RelayJob(TrainingJob, frozen=True, kw_only=True):
    API_VERSION: ClassVar[str] = "example.com/v1"
    KIND: ClassVar[str] = "RelayJob"
    spec: RelayJobSpec


RELAYJOB = JobKind(
    model=RelayJob,
    plural="relayjobs",
    replicas="relayReplicaSpecs",
    attribute="relay_replica_specs",
    types=(COORDINATOR, MEMBER),
    container="relay",
    port=Port("relay-port", 5000),
    single=(COORDINATOR,),
    needed=COORDINATOR,
)


class Relay(TeamFramework[RelayJob]):
    """Everybody is told who comes next. The job runs, succeeds and fails with its coordinator."""

    facts = RELAYJOB

    def wiring(self, job: RelayJob, member: Member, addresses: Addresses) -> PodEdits:
        members = self.replicas(job).get(MEMBER, ReplicaSpec()).replicas or 0
        index = 0 if member.type == COORDINATOR else member.index + 1
        following = Member(MEMBER, index) if index < members else Member(COORDINATOR, 0)
        return PodEdits(
            env=variables(
                RELAY_PORT=str(addresses.of(member).port),
                RELAY_NEXT=str(addresses.of(following)),
                RELAY_LAPS=str(job.spec.laps),
                RELAY_ROLE=member.type.lower(),
            )
        )


if __name__ == "__main__":
    run(Relay())
