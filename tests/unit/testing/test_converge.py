"""`assert_converges` passes correct frameworks, and reports a short, repeatable story for others."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import yaml

from gangline.api.meta import JSON
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.site import ServiceMode, Site
from gangline.operator import Addresses, Gang, JobOutcome, Member, PodEdits, Verdict, variables
from gangline.testing import Fault, Step, World, assert_converges, assert_survives, random_story
from gangline.testing.converge import shrunk_story
from gangline.testing.happenings import AllStart, Crashes, Kubelets, Looks, Users, Waits
from relay_operator import Relay, RelayJob

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom-operator"
HOUR, FAILS = Waits(3600), Kubelets("fail 1", 0)
JOB: JSON = yaml.safe_load((EXAMPLE / "relayjob.yaml").read_text())


@pytest.mark.parametrize(
    "site",
    [Site(), Site(services=ServiceMode.PER_JOB), Site(shared_host=True)],
    ids=["cluster", "one service per job", "one machine"],
)
def test_a_framework_that_only_looks_at_its_job_converges(site: Site) -> None:
    assert_converges(Relay(), JOB, stories=5, site=site)


async def test_it_may_be_called_where_an_event_loop_runs() -> None:
    assert_converges(Relay(), JOB, stories=1)


class Counting(Relay):
    """Numbers the pods with a counter in memory: after a crash of the operator the numbers differ."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def wiring(self, job: RelayJob, member: Member, addresses: Addresses) -> PodEdits:
        edits = super().wiring(job, member, addresses)
        return msgspec.structs.replace(edits, env=(*edits.env, *variables(N=str(next(self._numbers)))))


def test_a_framework_that_remembers_is_found_out_by_a_short_story() -> None:
    with pytest.raises(AssertionError) as error:
        assert_converges(Counting(), JOB, seed=7)
    text = str(error.value)
    assert "objects.pods/relay-coordinator-0.spec.containers[0].env[4].value" in text
    assert text.endswith("the story of seed 7, as short as it gets:\n  0. the operator sees the job")


def test_the_shortest_story_has_only_what_matters() -> None:
    def failure(steps: Sequence[Step]) -> AssertionError | None:
        """Fails if a pod fails after the wait and the operator crashes."""
        happened = [(step.happens, bool(step.wrong)) for step in steps]
        if (HOUR, False) in happened and (FAILS, True) in happened:
            return AssertionError(f"{len(steps)} steps")
        return None

    fault = (Fault(0, "dies"),)
    story = [
        Step(AllStart(), fault, (1, 2)),
        Step(HOUR),
        Step(Waits(1)),
        Step(FAILS, fault),
        Step(Users("scale")),
    ]
    wrong = failure(story)
    assert wrong is not None
    short, told = shrunk_story(failure, story, wrong)
    assert short == [Step(HOUR), Step(FAILS, fault)]
    assert str(told) == "2 steps"


def test_a_mistake_in_the_framework_is_raised_with_its_story() -> None:
    class Broken(Relay):
        def wiring(self, job: RelayJob, member: Member, addresses: Addresses) -> PodEdits:
            return PodEdits(env=variables(NEXT=str(addresses.of(Member("Nobody", 0)))))

    with pytest.raises(KeyError) as error:
        assert_converges(Broken(), JOB, story=random_story(1))
    assert error.value.__notes__[0].startswith("in this story:\n  0. the operator sees the job")


def test_a_job_that_never_succeeds_is_told() -> None:
    class Endless(Relay):
        def verdict(self, job: RelayJob, gang: Gang) -> Verdict:
            return Verdict(JobOutcome.RUNNING)

    with pytest.raises(AssertionError, match="all pods succeeded, and the job did not"):
        assert_converges(Endless(), JOB)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "TFJob"}, r"the job is TFJob of example\.com/v1; the framework runs RelayJob"),
        ({"spec": {}}, "the job cannot be read: Object missing required field `relayReplicaSpecs`"),
        ({"spec": {"relayReplicaSpecs": {"Cook": {}}}}, r"cannot run: spec\.relayReplicaSpecs\.Cook: is no"),
    ],
)
def test_a_job_that_cannot_run_shows_nothing_and_is_told(change: JSON, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        assert_converges(Relay(), {**JOB, **change})


def test_a_seed_gives_the_same_story_every_time() -> None:
    assert random_story(3) == random_story(3) != random_story(4)
    assert not [step for step in random_story(3, edits=()) if isinstance(step.happens, Users)]


def test_a_history_may_do_anything_and_the_world_it_leaves_can_be_looked_at() -> None:
    world: World = assert_survives(
        Relay(), JOB, [Looks(), AllStart(), Looks(), Crashes(), Kubelets("fail 1", 0), Looks()]
    )
    assert world.job.status.first_failure.replica == "coordinator-0"
    assert world.key.name == "relay"


def test_a_site_with_gangs_is_refused() -> None:
    with pytest.raises(ValueError, match="leave `gang_scheduler` out of the site"):
        assert_converges(Relay(), JOB, site=Site(gang_scheduler=Volcano()))
