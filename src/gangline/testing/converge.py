"""Whatever happens to the operator, a job comes to the same end: shown for any framework, by stories.

In a story one thing happens to a job at a time, and then the operator works until it is done. It is played twice: in a
calm world, and in a rough one where the operator dies between any two calls, the server answers wrongly or not at all,
and caches show one change at a time.
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from random import Random
from typing import Any, NamedTuple, TypeVar

import msgspec

from gangline.api.kubeflow.training import ROUND_ANNOTATION, ConditionType, RestartPolicy
from gangline.api.meta import JSON
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Framework, J
from gangline.jobs.site import Site
from gangline.testing.faults import Fault
from gangline.testing.happenings import (
    EDITS,
    POD_MOVES,
    STEADY_EDITS,
    STORY_FAULTS,
    WAIT_SECONDS,
    AllStart,
    AllSucceed,
    Happening,
    Kubelets,
    Passes,
    Users,
    Waits,
)
from gangline.testing.world.invariants import Invariants, check_at_rest, check_restart_count
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.server import controller_uid
from gangline.testing.world.world import World

T = TypeVar("T")

STORY_LENGTH = 14
"""Steps of a story that a seed makes."""
MAX_DIFFERENCES = 8
"""Differences of two worlds that are told; more are of no help."""
RETRY_HORIZON = timedelta(minutes=6)
"""By then the operator's alarms have tried again what was refused, and gave up waiting for what caches never showed."""


class Step(NamedTuple):
    """What happens, and what goes wrong while the operator sees to it."""

    happens: Happening
    wrong: tuple[Fault, ...] = ()
    lags: tuple[int, ...] = ()


def assert_converges(
    framework: Framework[J],
    job: JSON,
    *,
    seed: int = 0,
    stories: int = 20,
    story: Sequence[Step] | None = None,
    site: Site = Site(),  # noqa: B008 - frozen
    edits: Sequence[str] = STEADY_EDITS,
) -> None:
    """Play stories of a job, calmly and roughly: the operator does right at every write, and both come to the same end.

    Raises `AssertionError` with the shortest story found that goes wrong; the same seed finds it again, and `story`
    plays one of your own (`random_story`, or a list of `Step`). `job` is a manifest that can run; `edits` are what
    people may do to it, of `gangline.testing.happenings.EDITS`. Needs no server; may be called with
    an event loop and without. A story takes about 50 ms.
    """
    _assert_can_run(framework, job)
    if story is None:
        _assert_succeeds(framework, job, site)
    told = [story] if story is not None else [random_story(each, edits) for each in range(seed, seed + stories)]
    for number, steps in enumerate(told):
        which = f"the story of seed {seed + number}" if story is None else "the story"
        wrong = _story_failure(framework, job, site, steps)
        if wrong is not None:
            short, wrong = shrunk_story(lambda steps: _story_failure(framework, job, site, steps), steps, wrong)
            raise AssertionError(f"{wrong}\n{which}, as short as it gets:\n{_story_text(short)}") from wrong


def assert_survives(
    framework: Framework[J],
    job: JSON,
    history: Sequence[Happening],
    *,
    site: Site = Site(),  # noqa: B008 - frozen
) -> World:
    """Let things happen in any order, none waiting for another: every write is right, and in the end the operator rests.

    Gives the world as it is then. A history may hold what a story may not: caches that lag and skip, faults at any
    moment, and a job that is made anew.
    """

    async def survive() -> World:
        world = World(framework, job, site, Invariants().judge)
        for happening in history:
            await happening.happen(world)
        await bring_to_rest(world)
        await check_at_rest(world)
        return world

    return run_blocking(survive)


def random_story(seed: int, edits: Sequence[str] = STEADY_EDITS, length: int = STORY_LENGTH) -> list[Step]:
    """A story by a seed: pods move, people edit, time goes by, and things go wrong."""
    dice = Random(seed)  # noqa: S311 - a seed is to be repeatable
    steps = [_random_step(dice, edits) for _ in range(length)]
    # Most of what can happen happens to pods that run.
    return [steps[0]._replace(happens=AllStart()), *steps[1:]]


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Something asynchronous on a loop of its own; in a thread of its own, where a loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner() as runner:
            return runner.run(work())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: run_blocking(work)).result()


async def play_story(world: World, steps: Sequence[Step], *, calm: bool) -> list[str]:
    """A picture of the world after each step; everything must be right at the end."""
    pictures = []
    for step in (Step(Passes()), *steps):
        lags = () if calm else step.lags
        world.faults.add(*(() if calm else step.wrong))
        if isinstance(step.happens, Waits):
            await world.pass_time(timedelta(seconds=step.happens.seconds), lags)
        else:
            await step.happens.happen(world)
            await world.settle(lags)
        world.faults.clear()
        check_restart_count(world)
        pictures.append(comparable_state(world))
    await world.pass_time(RETRY_HORIZON)
    for _ in range(3):
        Kubelet(world).finish()
        await world.settle()
    await check_at_rest(world)
    pictures.append(comparable_state(world))
    return pictures


async def bring_to_rest(world: World) -> None:
    """No more faults: the operator, the kubelet and the garbage collector come to an end of it."""
    world.faults.clear()
    EDITS["squatters leave"](world, 0)
    for _ in range(4):
        await world.settle()
        Kubelet(world).finish()
    await world.pass_time(RETRY_HORIZON)
    for _ in range(4):
        Kubelet(world).finish()
        await world.settle()


def comparable_state(world: World) -> str:
    """The job's status and all objects, as JSON, without what is accidental: uids and versions."""
    objects = {
        f"{kind}/{name}": _comparable_object(world, kind, found) for (kind, name), found in world.server.objects.items()
    }
    status = dict((world.body or {}).get("status") or {})
    if "conditions" in status:
        # When a job was blocked last, and by what first, is the server's doing.
        status["conditions"] = [each for each in status["conditions"] if each["type"] != "Blocked"]
    found = {"status": status, "objects": objects, "alarm": str(world.alarm)}
    text = msgspec.json.encode(found, order="deterministic").decode()
    return re.sub(r"uid-\d+", lambda uid: _uid_name(world, uid[0]), text)


def _uid_name(world: World, uid: str) -> str:
    """What a uid was, and of jobs which one of that name."""
    # Of a job's objects there may have been one more, which did nothing: made by an operator that began with an old
    # view of the job, and sent away when it saw the new one.
    named = world.server.names_by_uid[uid]
    return named if named.startswith(f"{world.plural}/") else named.partition("#")[0]


def _comparable_object(world: World, kind: str, found: JSON) -> JSON:
    metadata = found["metadata"]
    return {
        "uid": metadata["uid"],
        "owner": controller_uid(found),
        "labels": metadata.get("labels"),
        "round": (metadata.get("annotations") or {}).get(ROUND_ANNOTATION),
        "going": "deletionTimestamp" in metadata,
        "data": found.get("data"),
        "phase": found["status"]["phase"] if kind == "pods" else None,
        "lives": world.server.start_counts[metadata["name"]] if kind == "pods" else None,
        # On one machine the ports that pods are told are whatever was free.
        "spec": found.get("spec") if kind == "pods" and not world.site.shared_host else None,
    }


def differences(calm: str, rough: str) -> Iterator[str]:
    """Where two pictures differ."""
    if calm != rough:
        yield from _differences(json.loads(calm), json.loads(rough), "")


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}):
            yield from _differences(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, f"{path}[{index}]")
    elif one != other:
        yield f"{path}: {json.dumps(one)} in the calm world, {json.dumps(other)} in the rough one"


def _assert_can_run(framework: Framework[Any], job: JSON) -> None:
    facts = framework.facts
    named, expected = (job.get("apiVersion"), job.get("kind")), (facts.model.API_VERSION, facts.kind)
    assert named == expected, f"the job is {named[1]} of {named[0]}; the framework runs {expected[1]} of {expected[0]}"
    try:
        meant = framework.default(msgspec.convert(job, facts.model))
    except msgspec.ValidationError as error:
        raise AssertionError(f"the job cannot be read: {error}") from None
    wrong = "; ".join(map(str, problems(framework, meant)))
    assert not wrong, f"the job cannot run: {wrong}"


def _assert_succeeds(framework: Framework[Any], job: JSON, site: Site) -> None:
    """When all its pods succeed, the job does: unless they would be started again, or never are."""
    meant = framework.default(msgspec.convert(job, framework.facts.model))
    policies = {spec.restart_policy for spec in framework.replicas(meant).values()}
    if framework.run_policy(meant).suspend or RestartPolicy.ALWAYS in policies:
        return

    async def all_succeed() -> None:
        world = World(framework, job, site, Invariants().judge)
        await play_story(world, [Step(AllStart()), Step(AllSucceed())], calm=True)
        gone = world.body is None  # by its time to live
        assert gone or world.job.status.holds(ConditionType.SUCCEEDED), "all pods succeeded, and the job did not"

    run_blocking(all_succeed)


def _story_failure(framework: Framework[Any], job: JSON, site: Site, steps: Sequence[Step]) -> AssertionError | None:
    async def both() -> None:
        calm = await play_story(World(framework, job, site, Invariants().judge), steps, calm=True)
        rough = await play_story(World(framework, job, site, Invariants().judge), steps, calm=False)
        for number, (one, other) in enumerate(zip(calm, rough, strict=True)):
            differ = "\n  ".join(islice(differences(one, other), MAX_DIFFERENCES))
            after = "in the end" if number > len(steps) else f"after step {number}"
            assert not differ, f"{after} the worlds differ:\n  {differ}"

    try:
        run_blocking(both)
    except AssertionError as error:
        return error
    except BaseException as error:
        # A judge objects inside the task that writes; all else is the framework's own mistake.
        found = error.subgroup(AssertionError) if isinstance(error, BaseExceptionGroup) else None
        if found is not None:
            return _first_assertion(found)
        error.add_note(f"in this story:\n{_story_text(steps)}")
        raise
    return None


def _first_assertion(error: BaseException) -> AssertionError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AssertionError)
    return error


def shrunk_story(
    failure: Callable[[Sequence[Step]], AssertionError | None], steps: Sequence[Step], wrong: AssertionError
) -> tuple[Sequence[Step], AssertionError]:
    """Without the steps, and without the troubles of steps, that do not matter."""
    for index in reversed(range(len(steps))):
        without = [*steps[:index], *steps[index + 1 :]]
        calmer = [*steps[:index], Step(steps[index].happens), *steps[index + 1 :]]
        for shorter in (without, calmer):
            found = failure(shorter)
            if found is not None:
                steps, wrong = shorter, found
                break
    return steps, wrong


def _story_text(steps: Sequence[Step]) -> str:
    lines = [f"  {number}. {step}" for number, step in enumerate(steps, 1)]
    return "\n".join(["  0. the operator sees the job", *lines])


def _random_step(dice: Random, edits: Sequence[str]) -> Step:
    happens: Happening
    match dice.randrange(4):
        case 0 | 1:
            happens = Kubelets(dice.choice(POD_MOVES), dice.randrange(6)) if dice.random() < 0.7 else AllStart()
        case 2 if edits:
            happens = Users(dice.choice(edits), dice.randrange(6))
        case _:
            happens = Waits(dice.choice(WAIT_SECONDS))
    wrong = tuple(Fault(dice.randrange(6), dice.choice(STORY_FAULTS)) for _ in range(dice.randrange(3)))
    return Step(happens, wrong, tuple(dice.randrange(6) for _ in range(dice.randrange(7))))
