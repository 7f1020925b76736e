"""Whatever happens to the operator, a job comes to the same end.

One thing happens to a job at a time, and then the operator works until it is done. The same history is played twice:
in a calm world, and in one where the operator dies between any two calls, the server answers wrongly or not at all,
and the caches show one change at a time. After every step both worlds must be the same, times included, and the
restarts that are counted those that there were.
"""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.meta import JSON
from jobhistories import (
    KUBELETS,
    USERS,
    WAITS,
    WRONG,
    AllStart,
    Happening,
    Team,
    Waits,
    histories,
    teams,
)
from jobkubelet import Kubelet
from jobrules import Rules, check_count, check_quiet
from jobserver import Trouble, owner_of
from jobworld import World, run


class Step(NamedTuple):
    """What happens, and what goes wrong while the operator sees to it."""

    happens: Happening
    wrong: tuple[Trouble, ...] = ()
    lags: tuple[int, ...] = ()


STEPS = st.lists(
    st.builds(
        Step,
        st.one_of(
            KUBELETS,
            KUBELETS,
            USERS,
            WAITS,
        ),
        st.lists(st.builds(Trouble, st.integers(0, 5), WRONG), max_size=2).map(tuple),
        st.lists(st.integers(0, 5), max_size=6).map(tuple),
    ),
    min_size=8,
    max_size=20,
)


async def play(team: Team, steps: Sequence[Step], *, calm: bool) -> list[JSON]:
    """The world after each step."""
    world = team.world(Rules())
    pictures = []
    for step in (Step(AllStart()), *steps):
        wrong, lags = ((), ()) if calm else (step.wrong, step.lags)
        world.trouble(*wrong)
        if isinstance(step.happens, Waits):
            await world.pass_time(timedelta(seconds=step.happens.seconds), lags)
        else:
            await step.happens.happen(world)
            await world.settle(lags)
        world.operator.client.troubles.clear()
        check_count(world)
        pictures.append(picture(world))
    # What was refused is tried again by an alarm.
    await world.pass_time(timedelta(minutes=6))
    for _ in range(3):
        Kubelet(world).finish()
        await world.settle()
    await check_quiet(world)
    pictures.append(picture(world))
    return pictures


def picture(world: World) -> JSON:
    """The job's status and all objects, without what is accidental: uids and versions."""
    objects = {f"{kind}/{name}": _seen(kind, found) for (kind, name), found in world.server.objects.items()}
    status = dict((world.body or {}).get("status") or {})
    if status.get("completionTime"):
        # The host list of an MPIJob is brought up to date in the pass of the verdict, and never after: as v1 has it.
        for each in objects.values():
            each["data"] = None
    if "conditions" in status:
        # When a job was blocked last, and by what first, is the server's doing.
        status["conditions"] = [each for each in status["conditions"] if each["type"] != "Blocked"]
    text = json.dumps({"status": status, "objects": objects, "alarm": str(world.alarm)}, sort_keys=True)
    text = re.sub(r"uid-\d+", lambda found: world.server.named[found[0]], text)
    made: JSON = json.loads(text)
    return made


def _seen(kind: str, found: JSON) -> JSON:
    metadata = found["metadata"]
    return {
        "uid": metadata["uid"],
        "owner": owner_of(found),
        "labels": metadata.get("labels"),
        "round": (metadata.get("annotations") or {}).get("training.gangline.dev/round"),
        "going": "deletionTimestamp" in metadata,
        "data": found.get("data"),
        "phase": found["status"]["phase"] if kind == "pods" else None,
    }


@settings(
    max_examples=histories(250),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(teams(), STEPS)
def test_the_end_is_the_same_whatever_happens_to_the_operator(team: Team, steps: list[Step]) -> None:
    async def example() -> None:
        calm = await play(team, steps, calm=True)
        rough = await play(team, steps, calm=False)
        for number, (one, other) in enumerate(zip(calm, rough, strict=True)):
            assert other == one, f"after step {number}"

    run(example)
