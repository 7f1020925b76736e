"""No two rounds of a team meet, in any order of events: `Invariants` checks every pod that the operator creates."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.kubeflow.training import ROUND_ANNOTATION
from gangline.testing.converge import bring_to_rest, run_blocking
from gangline.testing.happenings import (
    AllStart,
    Collects,
    Crashes,
    Delivers,
    Happening,
    History,
    Kubelets,
    Looks,
    Passes,
    Relists,
    Troubles,
    Users,
    Waits,
)
from gangline.testing.strategies import INDEX_STRATEGY
from gangline.testing.world.invariants import check_at_rest
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World
from support.property.job_histories import GeneratedJob, example_count

LOOK, PODS = Looks(), 1
BEGINNING: History = [LOOK, AllStart(), LOOK, LOOK]


def team(
    site: str = "cluster", policy: str = "ExitCode", scope: str = "Replica", *, slow_deletion: bool = True
) -> GeneratedJob:
    return GeneratedJob(
        "JAXJob", {"Worker": 3}, {"Worker": policy}, {"restartScope": scope}, site=site, slow_deletion=slow_deletion
    )


async def play(job: GeneratedJob, history: History) -> World:
    world = job.world()
    for happening in history:
        await happening.happen(world)
    return world


# Name, job, history, and the number of the last round.
STORIES: dict[str, tuple[GeneratedJob, History, int]] = {
    "a replica is killed, and its peers end one after the other": (
        team(scope="Job", slow_deletion=False),
        [Kubelets("fail 137", 0), LOOK, LOOK, Kubelets("vanish", 0), LOOK, LOOK, Kubelets("vanish", 0), LOOK],
        1,
    ),
    "somebody deletes a pod, and the others end first": (
        team(scope="Job"),
        [Users("delete pod", 1), LOOK, LOOK, Kubelets("vanish", 0), LOOK, Kubelets("vanish", 1), LOOK],
        1,
    ),
    "a pod loses its label, and the cache shows it no more": (
        team(scope="Job"),
        [Users("take job label off pod", 2), LOOK, LOOK, Kubelets("vanish", 0), Kubelets("vanish", 0), LOOK, LOOK],
        1,
    ),
    "a pod loses its owner": (
        team(scope="Job"),
        [Users("orphan pod", 2), LOOK, LOOK, Kubelets("vanish", 0), Kubelets("vanish", 0), LOOK, LOOK],
        1,
    ),
    "the operator dies in the middle of the deletions": (
        team(scope="Job", slow_deletion=False),
        [Kubelets("fail 137", 0), Troubles(2, "dies"), LOOK, Crashes(), LOOK, Kubelets("vanish", 0), LOOK, Crashes(), LOOK],
        1,
    ),
    "the new operator sees the pods of today and the job of yesterday": (
        team(scope="Job", slow_deletion=False),
        [Kubelets("fail 137", 0), LOOK, Crashes(), Delivers(PODS, None), Passes(), Kubelets("vanish", 0), Passes(), LOOK],
        1,
    ),
    "suspended and resumed while its pods end": (
        team(scope="Job"),
        [Users("suspend"), LOOK, Users("resume"), LOOK, Kubelets("vanish", 0), LOOK, LOOK],
        1,
    ),
    "suspended and resumed, with one service for all": (
        team("one service per job", scope="Job"),
        [Users("suspend"), LOOK, Users("resume"), LOOK, Kubelets("vanish", 0), LOOK, LOOK],
        1,
    ),
    "a port is taken": (
        team("one machine", "Never"),
        [Kubelets("clash", 0), LOOK, LOOK, Kubelets("vanish", 0), LOOK, Kubelets("vanish", 0), LOOK],
        1,
    ),
    "suspended in the middle of a restart": (
        team(scope="Job", slow_deletion=False),
        [Kubelets("fail 137", 0), LOOK, Users("suspend"), LOOK, Users("resume"), LOOK, Kubelets("vanish", 0), LOOK],
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("job", "history", "last_round"), STORIES.values(), ids=STORIES.keys())
async def test_a_new_round_begins_when_the_last_one_is_gone(
    job: GeneratedJob, history: History, last_round: int
) -> None:
    world = await play(job, [*BEGINNING, *history])
    assert world.job.status.ledger.round == last_round
    await bring_to_rest(world)
    await check_at_rest(world)
    rounds = [(pod["metadata"].get("annotations") or {}).get(ROUND_ANNOTATION, "0") for pod in world.pods()]
    assert rounds == [str(last_round)] * 3


async def test_a_resumed_job_of_scope_replica_waits_for_its_old_pods_without_a_round() -> None:
    world = await play(team(), [*BEGINNING, Users("suspend"), LOOK, Users("resume"), LOOK, Kubelets("vanish", 0), LOOK])
    assert [pod["metadata"]["name"] for pod in world.pods()] == ["job-worker-1", "job-worker-2"]
    await bring_to_rest(world)
    assert len(world.pods()) == 3
    assert not any(ROUND_ANNOTATION in (pod["metadata"].get("annotations") or {}) for pod in world.pods())


async def test_a_pod_that_never_ends_holds_up_the_next_round_and_is_named() -> None:
    world = await play(team(scope="Job"), [*BEGINNING, Kubelets("fail 137", 0), LOOK])
    await world.pass_time(timedelta(minutes=10))
    assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods())
    (blocked,) = [one for one in world.job.status.conditions if one.type == "Blocked"]
    assert blocked.reason == "PodStillTerminating"
    assert [event.reason for event in world.operator.recorded_events.events].count("PodStillTerminating") == 1
    await check_at_rest(world)
    Kubelet(world).finish()
    await world.settle()
    assert not any(one.type == "Blocked" for one in world.job.status.conditions)
    assert len(world.pods()) == 3


HAPPENINGS: st.SearchStrategy[Happening] = st.one_of(
    st.just(LOOK),
    st.just(LOOK),
    st.just(AllStart()),
    st.builds(Kubelets, st.sampled_from(["fail 137", "fail 137", "evict", "clash", "start"]), INDEX_STRATEGY),
    st.builds(Kubelets, st.just("vanish"), INDEX_STRATEGY),
    st.builds(
        Users,
        st.sampled_from(
            ["delete pod", "orphan pod", "take job label off pod", "suspend", "resume", "resume", "scale", "delete service"]
        ),
        INDEX_STRATEGY,
    ),
    st.builds(Delivers, INDEX_STRATEGY, st.sampled_from([1, 2, None])),
    st.builds(Relists, INDEX_STRATEGY),
    st.just(Passes()),
    st.just(Crashes()),
    st.builds(Troubles, st.integers(0, 6), st.sampled_from(["dies", "dies after", "lost", 409, 500])),
    st.builds(Waits, st.sampled_from([1, 30, 700])),
    st.just(Collects()),
)  # fmt: skip


@settings(
    max_examples=example_count(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(
    st.builds(team, st.sampled_from(["cluster", "one service per job", "one machine"]),
              st.sampled_from(["ExitCode", "OnFailure"]), slow_deletion=st.booleans(),
              scope=st.sampled_from(["Job", "Job", "Replica"])),
    st.lists(HAPPENINGS, min_size=15, max_size=40),
)  # fmt: skip
def test_no_two_rounds_meet_whatever_happens(job: GeneratedJob, history: History) -> None:
    async def example() -> None:
        world = await play(job, [*BEGINNING, *history])
        await bring_to_rest(world)
        await check_at_rest(world)

    run_blocking(example)
