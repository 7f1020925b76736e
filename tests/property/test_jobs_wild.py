"""Any order of things: what must hold of a job holds at every write, and in the end the operator is done.

Pods move, people edit, the server answers wrongly, caches lag and skip, the operator dies, the job is deleted and made
anew; nothing waits for anything. Every write of the operator's is judged (`Rules`). Then faults stop, and the
operator must come to rest within a few looks, in a state that is right and stays so.
"""

import pytest
from hypothesis import HealthCheck, given, settings

from gangline.testing import strategies
from gangline.testing.converge import bring_to_rest, run_blocking
from gangline.testing.happenings import (
    EDITS,
    AllStart,
    Delivers,
    History,
    Kubelets,
    Looks,
    Passes,
    Relists,
    Troubles,
    Users,
    Waits,
)
from gangline.testing.world.invariants import check_at_rest
from gangline.testing.world.server import controller_uid
from gangline.testing.world.world import World
from support.property.job_histories import GeneratedJob, example_count, generated_jobs


async def plays(team: GeneratedJob, history: History) -> World:
    """A history, judged at every write."""
    world = team.world()
    for happening in history:
        await happening.happen(world)
    return world


LOOK = Looks()
PODS = 1
"""The number of the pods' view."""
FOUND: dict[str, tuple[GeneratedJob, History]] = {
    "pods that die of suspension do not fail the resumed job": (
        GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "Never"}, {}),
        [
            LOOK,
            AllStart(),
            LOOK,
            Users("suspend"),
            LOOK,
            Users("resume"),
            LOOK,
            Kubelets("fail 137", 0),
            LOOK,
        ],
    ),
    "nor are they a restart of the team": (
        GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "OnFailure"}, {"restartScope": "Job"}, slow_deletion=True),
        [LOOK, Users("suspend"), LOOK, Users("resume")],
    ),
    "a delete that is answered 409 is tried again": (
        GeneratedJob(
            "XGBoostJob",
            {"Master": 1, "Worker": 1},
            {"Master": "Never", "Worker": "Never"},
            {"activeDeadlineSeconds": 100},
        ),
        [LOOK, Waits(700), Troubles(1, 403), Troubles(5, 409), LOOK, LOOK],
    ),
    "a suspended job that was scaled counts what is asked for": (
        GeneratedJob("TFJob", {"Worker": 2}, {"Worker": "Never"}, {}),
        [LOOK, Users("scale", 0), Users("suspend")],
    ),
    "a pod that shows up after the end does not undo it": (
        GeneratedJob("MPIJob", {"Launcher": 1}, {"Launcher": "OnFailure"}, {"activeDeadlineSeconds": 100}),
        [LOOK, Delivers(0, 1), Waits(700), Passes()],
    ),
    "a pod that came and went unseen is missed": (
        GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "Never"}, {}),
        [LOOK, Users("delete pod", 1), Relists(PODS)],
    ),
    "a restart is not counted again when its pod was lost from sight": (
        GeneratedJob("MPIJob", {"Launcher": 1, "Worker": 2}, {"Launcher": "Always", "Worker": "Always"}, {}),
        [LOOK, Kubelets("fail 137", 0), LOOK, Users("take job label off pod", 0)],
    ),
    "nor when its pod was scaled away and got its seat back before it was gone": (
        GeneratedJob("JAXJob", {"Worker": 3}, {"Worker": "Always"}, {}),
        [LOOK, AllStart(), Kubelets("fail 137", 2), LOOK, Users("scale", 0), LOOK, Users("scale", 2), LOOK],
    ),
    "nor is a failure that was written down before the operator died": (
        GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "ExitCode"}, {}),
        [
            LOOK,
            AllStart(),
            LOOK,
            Kubelets("fail 137", 0),
            Troubles(1, "dies"),
            LOOK,
            Users("take job label off pod", 0),
        ],
    ),
    "a pod without a number is sent away too": (
        GeneratedJob("XGBoostJob", {"Master": 1, "Worker": 2}, {"Master": "Never", "Worker": "OnFailure"}, {}),
        [LOOK, Users("scale", 0), Users("take index off pod", 1)],
    ),
    "a job that is no more adopts nobody": (
        GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "Never"}, {}),
        [
            LOOK,
            LOOK,
            Users("orphan pod", 0),
            Delivers(0, None),
            Delivers(PODS, None),
            Users("make job anew"),
            Passes(),
        ],
    ),
    "a stranger in the place of a failed pod is spared": (
        GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "ExitCode"}, {}),
        [
            LOOK,
            AllStart(),
            LOOK,
            Kubelets("fail 137", 0),
            Delivers(0, None),
            Delivers(PODS, None),
            Users("usurp pod", 0),
            Passes(),
        ],
    ),
}


@pytest.mark.parametrize(("team", "history"), FOUND.values(), ids=FOUND.keys())
async def test_histories_that_once_went_wrong_go_well(team: GeneratedJob, history: History) -> None:
    world = await plays(team, history)
    await bring_to_rest(world)
    await check_at_rest(world)


@pytest.mark.parametrize("site", ["cluster", "one service per job"])
async def test_a_service_that_lost_its_owner_is_adopted(site: str) -> None:
    team = GeneratedJob("JAXJob", {"Worker": 2}, {"Worker": "Never"}, {}, site=site)
    world = await plays(team, [LOOK, Users("orphan service"), LOOK])
    assert world.body is not None
    assert {controller_uid(found) for found in world.server.list_objects("services")} == {world.body["metadata"]["uid"]}


@settings(
    max_examples=example_count(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(generated_jobs(), strategies.histories())
def test_what_must_hold_of_a_job_holds_and_the_operator_comes_to_rest(team: GeneratedJob, history: History) -> None:
    async def example() -> None:
        world = await plays(team, history)
        await bring_to_rest(world)
        await check_at_rest(world)

    run_blocking(example)


@settings(
    max_examples=example_count(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(generated_jobs(), strategies.histories())
def test_a_job_deleted_at_any_moment_leaves_nothing_behind(team: GeneratedJob, history: History) -> None:
    async def example() -> None:
        world = await plays(team, history)
        EDITS["delete job"](world, 0)
        await bring_to_rest(world)
        assert not world.server.objects

    run_blocking(example)
