"""Jobs of a run in a cluster: named, shipped, created, followed, and deleted if nobody waits for them any more."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import NamedTuple

from gangline.api.kubeflow.training import TrainingJob
from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.tasks import unwrapped
from gangline.cli.connect.server import MANAGER
from gangline.cli.errors import sentence
from gangline.cli.follow.follower import Follower, JobDeleted, Team
from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.parts import Board
from gangline.cli.follow.remotelines import RemoteLines
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import Span
from gangline.cli.output.job_rows import state
from gangline.cli.run.bundle import Cargo
from gangline.cli.run.keeping import Keeping
from gangline.cli.run.request import Job
from gangline.cli.run.result import Result, final
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.sdk.ship.upload import Order, sent

UNSEEN = timedelta(seconds=15)
"""After so long without a word from an operator, a person is told."""


class Terms(NamedTuple):
    """How the run is to be."""

    # The options that lead to the server, for commands that are suggested.
    where: str = ""
    timeout: float | None = None
    # Whether an interrupted job goes on.
    keep: bool = False
    storage_class: str = ""


class RemoteJobs:
    """The jobs of one run. `left` is told what becomes of those that had not ended when the run did."""

    def __init__(self, client: Client, terms: Terms, clock: Clock, screen: Screen, left: list[str]) -> None:
        self._client, self._terms, self._clock, self._screen = client, terms, clock, screen
        self._left = left
        # Those that were created and have not ended.
        self._open: dict[Key, Job] = {}
        self._uids: dict[Key, str] = {}

    async def named(self, job: Job) -> Job:
        """The job with a name that is free. One from a command gets a number; one from a file is refused."""
        if not await self._there(job):
            return job
        if not job.scripted:
            raise InputError(await self._taken(job))
        for number in count(2):
            other = renamed(job, f"{job.name}-{number}")
            if not await self._there(other):
                return other
        raise AssertionError

    async def run(self, cargo: Sequence[Cargo], keeping: Mapping[str, Keeping]) -> list[Result | None]:
        """Create them all, tell of them until the last has ended. None: somebody deleted it before.

        Raises `TimeoutError`, `ShippingFailed`, and what the server says. However it ends: a job that has not ended is
        deleted, unless the terms say that it is to go on.
        """
        board = Board(self._screen, len(cargo))
        try:
            async with asyncio.timeout(self._terms.timeout):
                made = [await self._created(each) for each in cargo]
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._followed(each.job, job, board, keeping.get(each.job.name)))
                        for each, job in zip(cargo, made, strict=True)
                    ]
        except BaseException:
            await self._end()
            raise
        return [await self._result(task.result()) for task in tasks]

    def farewell(self) -> str:
        """What is about to happen to jobs that nobody waits for."""
        whom = ", ".join(job.shown for job in self._open.values())
        if not whom:
            return "stopping …"
        return f"leaving {whom} as it is …" if self._terms.keep else f"deleting {whom} …"

    # One job

    async def _there(self, job: Job) -> bool:
        try:
            await self._client.get(self._client.plain(job.facts.resource), job.key())
        except NotFound:
            return False
        return True

    async def _taken(self, job: Job) -> str:
        where = self._terms.where
        try:
            body = await self._client.get(self._client.plain(job.facts.resource), job.key())
        except NotFound:
            body = {}
        return (
            f"{job.shown} is in namespace {job.key().namespace} already ({state(body)}); "
            f"delete it: gangline delete {job.shown} {where}, "
            f"or give this one another name: --set metadata.name={job.name}-2"
        )

    async def _created(self, cargo: Cargo) -> TrainingJob:
        job = cargo.job
        if cargo.shipment is None:
            return await self._create(job, job.body)
        order = Order(cargo.shipment, job.facts, job.body, job.key(), self._terms.storage_class)
        async with sent(self._client, order, self._clock, self._tell) as parcel:
            made = await self._create(job, parcel.body)
            await parcel.belongs_to(made)
        return made

    async def _create(self, job: Job, body: JSON) -> TrainingJob:
        try:
            with unwrapped():
                return await self._certainly(job, body)
        except AlreadyExists:
            raise InputError(await self._taken(job)) from None
        except NotFound as error:
            raise InputError(
                f"{sentence(error)}; has the cluster a namespace {job.key().namespace}, and does it know {job.facts.kind}? "
                f"gangline doctor {self._terms.where}"
            ) from error

    async def _certainly(self, job: Job, body: JSON) -> TrainingJob:
        """Create the job. Interrupted meanwhile, it is known all the same whether it is there: then it is ours to delete."""
        strict = self._client.writing(WriteOptions(MANAGER, field_validation=FieldValidation.STRICT))
        async with asyncio.TaskGroup() as group:
            creating = group.create_task(strict.create(job.facts.resource, body))
            try:
                made: TrainingJob = await asyncio.shield(creating)
            except asyncio.CancelledError:
                with suppress(KubeError):
                    self._note(job, await creating)
                raise
        self._note(job, made)
        return made

    def _note(self, job: Job, made: TrainingJob) -> None:
        self._open[job.key()], self._uids[job.key()] = job, made.metadata.uid

    async def _followed(
        self, job: Job, made: TrainingJob, board: Board, keeping: Keeping | None
    ) -> Outcome | None:
        follower = Follower(
            self._client,
            job.facts,
            RemoteLines(self._client, job.facts.container, self._clock),
            self._clock,
            board.part(job.name),
            keeper=keeping.line if keeping is not None else None,
        )
        async with asyncio.TaskGroup() as group:
            told = partial(self._warn, f"no operator has looked at {job.shown} yet; is one running?")
            doubting = group.create_task(doubt(follower.team, self._clock, told))
            try:
                with unwrapped():
                    outcome = await follower.watch(made)
            except JobDeleted as error:
                self._screen.say((Span(str(error), "yellow"),))
                outcome = None
            doubting.cancel()
        del self._open[job.key()]
        return outcome

    async def _result(self, outcome: Outcome | None) -> Result | None:
        return Result(outcome, await final(self._client, outcome)) if outcome is not None else None

    # The end of a run that did not come to its end

    async def _end(self) -> None:
        for key, job in self._open.items():
            self._left.append(await self._farewell(key, job))
        if not self._open:
            self._left.append("nothing is left in the cluster")

    async def _farewell(self, key: Key, job: Job) -> str:
        named = f"{job.shown} {self._terms.where}"
        if self._terms.keep:
            return f"{job.shown} goes on: gangline logs -f {named}"
        try:
            await self._client.delete(job.facts.resource, key, uid=self._uids[key])
        except (NotFound, Conflict):
            return f"{job.shown} was gone already"
        except KubeError as error:
            return f"{job.shown} could not be deleted ({error}): gangline delete {named}"
        except asyncio.CancelledError:
            self._left.append(f"{job.shown} may be there still: gangline delete {named}")
            raise
        return f"{job.shown} was deleted"

    def _warn(self, text: str) -> None:
        told = f"{text} gangline doctor {self._terms.where}"
        self._screen.say((Span("warning: ", "yellow"), Span(told)))

    def _tell(self, text: str) -> None:
        self._screen.say((Span(text, "dim"),))


def renamed(job: Job, name: str) -> Job:
    """The same under another name."""
    return job._replace(body={**job.body, "metadata": {**job.body["metadata"], "name": name}})


async def doubt(team: Team, clock: Clock, warn: Callable[[], None]) -> None:
    """Nothing happens, and nobody says why: perhaps there is nobody who could."""
    await clock.sleep(UNSEEN)
    if team.job is None or not team.job.status.conditions:
        warn()
