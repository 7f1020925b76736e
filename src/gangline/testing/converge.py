"""Asserts for any framework that a job comes to the same end whatever happens to the operator.

In a story one thing happens to a job at a time, and then the operator reconciles until it is done. A story is played
twice: in a calm world, and in a rough one where the operator crashes between any two requests, requests fail, and caches
receive one event at a time.
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
from gangline.base.json_diff import changed_values
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
"""Steps of a random story."""
MAX_DIFFERENCES = 8
"""Differences of two worlds that are printed; more are of no help."""
RETRY_HORIZON = timedelta(minutes=6)
"""After this time all retries and all timeouts of expectations are due."""


class Step(NamedTuple):
    """A happening, and the faults and cache lags while the operator reacts to it."""

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
    """Play stories of a job in a calm and in a rough world: every write is right, and both worlds end the same.

    Raises `AssertionError` with the shortest story found that fails. The same seed finds it again; `story` plays one of
    your own (`random_story`, or a list of `Step`). `job` is a manifest that can run; `edits` are the edits of users that
    may happen, of `gangline.testing.happenings.EDITS`. Needs no server, and works with and without an event loop. A
    story takes about 50 ms.
    """
    _assert_can_run(framework, job)
    if story is None:
        _assert_succeeds(framework, job, site)
    played = [story] if story is not None else [random_story(number, edits) for number in range(seed, seed + stories)]
    for number, steps in enumerate(played):
        title = f"the story of seed {seed + number}" if story is None else "the story"
        error = _story_failure(framework, job, site, steps)
        if error is not None:
            short, error = shrunk_story(lambda steps: _story_failure(framework, job, site, steps), steps, error)
            raise AssertionError(f"{error}\n{title}, as short as it gets:\n{_story_text(short)}") from error


def assert_survives(
    framework: Framework[J],
    job: JSON,
    history: Sequence[Happening],
    *,
    site: Site = Site(),  # noqa: B008 - frozen
) -> World:
    """Play a history, without waiting for the operator: every write is right, and in the end the operator is done.

    Returns the world at the end. A history may contain what a story may not: caches that lag and miss events, faults at
    any moment, and a job that is deleted and created again.
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
    """A random story by a seed: pods change, users edit, time passes, and requests fail."""
    dice = Random(seed)  # noqa: S311 - repeatable
    steps = [_random_step(dice, edits) for _ in range(length)]
    # Most happenings need running pods.
    return [steps[0]._replace(happens=AllStart()), *steps[1:]]


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new event loop; in a new thread if a loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner() as runner:
            return runner.run(work())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: run_blocking(work)).result()


async def play_story(world: World, steps: Sequence[Step], *, calm: bool) -> list[str]:
    """Play a story. Returns the comparable state of the world after each step, and checks the world at the end."""
    states = []
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
        states.append(comparable_state(world))
    await world.pass_time(RETRY_HORIZON)
    for _ in range(3):
        Kubelet(world).finish()
        await world.settle()
    await check_at_rest(world)
    states.append(comparable_state(world))
    return states


async def bring_to_rest(world: World) -> None:
    """Drop all faults, and let the operator, the kubelet and the garbage collector finish."""
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
    """The job's status and all objects as JSON, without what differs by chance: uids and versions."""
    objects = {
        f"{kind}/{name}": _comparable_object(world, kind, body) for (kind, name), body in world.server.objects.items()
    }
    status = dict((world.body or {}).get("status") or {})
    # A new process of the operator knows only what the pods date, and the kubelet of a world dates little.
    status.pop("goodput", None)
    if "conditions" in status:
        # When a job was blocked last, and by what first, depends on the faults.
        status["conditions"] = [condition for condition in status["conditions"] if condition["type"] != "Blocked"]
    state = {"status": status, "objects": objects, "alarm": str(world.alarm)}
    text = msgspec.json.encode(state, order="deterministic").decode()
    return re.sub(r"uid-\d+", lambda match: _uid_name(world, match[0]), text)


def _uid_name(world: World, uid: str) -> str:
    """The name of the object with that uid; for jobs also its number among the jobs of that name."""
    # Not for other objects: one more may have existed, created by an operator that started with an old view of the job
    # and deleted when it saw the new one.
    name = world.server.names_by_uid[uid]
    return name if name.startswith(f"{world.plural}/") else name.partition("#")[0]


def _comparable_object(world: World, kind: str, body: JSON) -> JSON:
    metadata = body["metadata"]
    return {
        "uid": metadata["uid"],
        "owner": controller_uid(body),
        "labels": metadata.get("labels"),
        "round": (metadata.get("annotations") or {}).get(ROUND_ANNOTATION),
        "going": "deletionTimestamp" in metadata,
        "data": body.get("data"),
        "phase": body["status"]["phase"] if kind == "pods" else None,
        "lives": world.server.start_counts[metadata["name"]] if kind == "pods" else None,
        # On one machine the ports of the replicas are whatever was free.
        "spec": body.get("spec") if kind == "pods" and not world.site.shared_host else None,
    }


def differences(calm: str, rough: str) -> Iterator[str]:
    """The differences of two comparable states, as text."""
    if calm != rough:
        for path, left, right in changed_values(json.loads(calm), json.loads(rough)):
            yield f"{path}: {json.dumps(left)} in the calm world, {json.dumps(right)} in the rough one"


def _assert_can_run(framework: Framework[Any], job: JSON) -> None:
    job_kind = framework.facts
    actual, expected = (job.get("apiVersion"), job.get("kind")), (job_kind.model.API_VERSION, job_kind.kind)
    assert actual == expected, (
        f"the job is {actual[1]} of {actual[0]}; the framework runs {expected[1]} of {expected[0]}"
    )
    try:
        defaulted = framework.default(msgspec.convert(job, job_kind.model))
    except msgspec.ValidationError as error:
        raise AssertionError(f"the job cannot be read: {error}") from None
    invalid = "; ".join(map(str, problems(framework, defaulted)))
    assert not invalid, f"the job cannot run: {invalid}"


def _assert_succeeds(framework: Framework[Any], job: JSON, site: Site) -> None:
    """Assert that the job succeeds when all its pods do; not for suspended jobs and restart policy Always."""
    defaulted = framework.default(msgspec.convert(job, framework.facts.model))
    policies = {spec.restart_policy for spec in framework.replicas(defaulted).values()}
    if framework.run_policy(defaulted).suspend or RestartPolicy.ALWAYS in policies:
        return

    async def all_succeed() -> None:
        world = World(framework, job, site, Invariants().judge)
        await play_story(world, [Step(AllStart()), Step(AllSucceed())], calm=True)
        expired = world.body is None  # deleted after its time to live
        assert expired or world.job.status.holds(ConditionType.SUCCEEDED), "all pods succeeded, and the job did not"

    run_blocking(all_succeed)


def _story_failure(framework: Framework[Any], job: JSON, site: Site, steps: Sequence[Step]) -> AssertionError | None:
    async def play_both() -> None:
        calm = await play_story(World(framework, job, site, Invariants().judge), steps, calm=True)
        rough = await play_story(World(framework, job, site, Invariants().judge), steps, calm=False)
        for number, states in enumerate(zip(calm, rough, strict=True)):
            different = "\n  ".join(islice(differences(*states), MAX_DIFFERENCES))
            after = "in the end" if number > len(steps) else f"after step {number}"
            assert not different, f"{after} the worlds differ:\n  {different}"

    try:
        run_blocking(play_both)
    except AssertionError as error:
        return error
    except BaseException as error:
        # Invariants are asserted inside the task that writes; any other error is the framework's own.
        assertions = error.subgroup(AssertionError) if isinstance(error, BaseExceptionGroup) else None
        if assertions is not None:
            return _first_assertion(assertions)
        error.add_note(f"in this story:\n{_story_text(steps)}")
        raise
    return None


def _first_assertion(error: BaseException) -> AssertionError:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AssertionError)
    return error


def shrunk_story(
    failure: Callable[[Sequence[Step]], AssertionError | None], steps: Sequence[Step], error: AssertionError
) -> tuple[Sequence[Step], AssertionError]:
    """The story without steps, and without faults of steps, that do not matter; and how it fails."""
    for index in reversed(range(len(steps))):
        without = [*steps[:index], *steps[index + 1 :]]
        calmer = [*steps[:index], Step(steps[index].happens), *steps[index + 1 :]]
        for shorter in (without, calmer):
            shorter_error = failure(shorter)
            if shorter_error is not None:
                steps, error = shorter, shorter_error
                break
    return steps, error


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
    faults = tuple(Fault(dice.randrange(6), dice.choice(STORY_FAULTS)) for _ in range(dice.randrange(3)))
    return Step(happens, faults, tuple(dice.randrange(6) for _ in range(dice.randrange(7))))
