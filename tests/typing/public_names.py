"""What type checkers make of the public API: `make check` reads this, and a test does.

Right uses pass as they are. Wrong ones carry the complaint that mypy must have; one that is not needed is an error too
(`warn_unused_ignores`). Nothing here is run.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, assert_type

import gangline
from gangline import AsyncTrainingClient, Job, Replica, TrainingClient, pytorch_job
from gangline.operator import (
    JSON,
    Addresses,
    ApiStruct,
    Framework,
    Gang,
    JobKind,
    JobOutcome,
    Key,
    Member,
    PodEdits,
    Port,
    Problem,
    ReplicaSpec,
    RunPolicy,
    TeamFramework,
    TrainingJob,
    Verdict,
    run,
    variables,
)
from gangline.testing import (
    FakeClock,
    Fault,
    Faults,
    OperatorCluster,
    Step,
    ThreadedCluster,
    assert_converges,
    assert_survives,
    operator_cluster,
    random_story,
    threaded_cluster,
)
from gangline.testing.happenings import AllStart, Waits


class RopeSpec(ApiStruct, frozen=True):
    rope_replica_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()
    knots: int = 1


class RopeJob(TrainingJob, frozen=True, kw_only=True):
    API_VERSION: ClassVar[str] = "example.com/v1"
    KIND: ClassVar[str] = "RopeJob"
    spec: RopeSpec


ROPEJOB = JobKind(
    model=RopeJob,
    plural="ropejobs",
    replicas="ropeReplicaSpecs",
    attribute="rope_replica_specs",
    types=("End", "Knot"),
    container="rope",
    port=Port("rope-port", 4000),
)


# A framework: right


class Rope(TeamFramework[RopeJob]):
    facts = ROPEJOB

    def wiring(self, job: RopeJob, member: Member, addresses: Addresses) -> PodEdits:
        assert_type(job.spec.knots, int)
        assert_type(addresses.of(member).port, int)
        return PodEdits(env=variables(KNOTS=str(job.spec.knots)))

    def validate(self, job: RopeJob) -> Iterable[Problem]:
        return [Problem("spec.knots", "is negative; write 0 or more")] if job.spec.knots < 0 else []

    def verdict(self, job: RopeJob, gang: Gang) -> Verdict:
        return Verdict(JobOutcome.RUNNING)


framework: Framework[RopeJob] = Rope()


# A framework: wrong


class ForgetsTheAddresses(TeamFramework[RopeJob]):
    def wiring(self, job: RopeJob, member: Member) -> PodEdits:  # type: ignore[override]
        return PodEdits()


class GivesADict(TeamFramework[RopeJob]):
    def wiring(self, job: RopeJob, member: Member, addresses: Addresses) -> dict[str, str]:  # type: ignore[override]
        return {}


class SaysYes(TeamFramework[RopeJob]):
    def verdict(self, job: RopeJob, gang: Gang) -> bool:  # type: ignore[override]
        return True


class OfAnotherKind(TeamFramework[int]):  # type: ignore[type-var]
    pass


class NoFramework:
    facts = ROPEJOB


unfit: Framework[RopeJob] = NoFramework()  # type: ignore[assignment]
misread = PodEdits(env="KNOTS=1")  # type: ignore[arg-type]
misspelled = PodEdits(enviroment=())  # type: ignore[call-arg]
unnumbered = Port("rope-port", "4000")  # type: ignore[arg-type]
portless = JobKind(model=RopeJob, plural="ropejobs")  # type: ignore[call-arg]


def frozen(job: RopeJob) -> None:
    job.spec.knots = 2  # type: ignore[misc]


def started() -> None:
    run(Rope())
    run(NoFramework())  # type: ignore[arg-type]


# Testing


async def tested(job: JSON) -> None:
    async with operator_cluster(Rope(), folder=Path()) as cluster:
        assert_type(cluster, OperatorCluster[RopeJob])
        assert_type((await cluster.run(job)).spec.knots, int)
        await cluster.until(Key("default", "rope"), lambda found: found.spec.knots > 1)
        await cluster.until(Key("default", "rope"), lambda found: found.spec.ends > 1)  # type: ignore[attr-defined]
    assert_converges(Rope(), job, seed=3, story=[Step(AllStart(), (Fault(0, "dies"),))])
    assert_converges(Rope(), "rope.yaml")  # type: ignore[arg-type]
    assert_survives(Rope(), job, [Waits(3)])
    assert_survives(Rope(), job, [Fault(0, 409)])  # type: ignore[list-item]
    assert_type(random_story(1), list[Step])
    Faults([(0, "dies")])  # type: ignore[list-item]
    FakeClock().advance(3)  # type: ignore[arg-type, unused-coroutine]


def threaded() -> None:
    with threaded_cluster() as cluster:
        assert_type(cluster, ThreadedCluster)
        assert_type(cluster.run(lambda client: client.get(RopeJob, Key("default", "rope"))), RopeJob)


# The SDK


def submitted(client: TrainingClient) -> None:
    job = pytorch_job("mnist", worker=Replica("train:1", ["python", "train.py"], replicas=2))
    assert_type(job, Job)
    assert_type(client.create_job(job), Job)
    client.wait_for_job_conditions("mnist", wait_timeout="ten minutes")  # type: ignore[arg-type]
    client.make_job(job)  # type: ignore[attr-defined]


async def submitted_async(client: AsyncTrainingClient) -> None:
    assert_type(await client.create_job({"kind": "TFJob"}), Job)


def unknown() -> Any:
    return gangline.nothing  # type: ignore[attr-defined]
