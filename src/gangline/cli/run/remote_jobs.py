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
from gangline.base.tasks import unwrap_exception_group
from gangline.cli.connect.server import FIELD_MANAGER
from gangline.cli.errors import error_line
from gangline.cli.follow.follower import Follower, JobDeleted, JobView
from gangline.cli.follow.log_sources import ServerLogSource
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen, SplitScreen
from gangline.cli.follow.view import Span
from gangline.cli.output.job_rows import job_state
from gangline.cli.run.bundle import Bundle
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.request import RunJob
from gangline.cli.run.result import JobResult, fetch_final_job
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.sdk.ship.upload import ShipRequest, ship_folder

OPERATOR_WARNING_AFTER = timedelta(seconds=15)
"""After so long without a word from an operator, a person is told."""


class RemoteRunSettings(NamedTuple):
    """How the run is to be."""

    # The options that lead to the server, for commands that are suggested.
    server_flags: str = ""
    timeout: float | None = None
    # Whether an interrupted job goes on.
    keep_jobs: bool = False
    storage_class: str = ""


class RemoteJobs:
    """The jobs of one run. `left` is told what becomes of those that had not ended when the run did."""

    def __init__(self, client: Client, terms: RemoteRunSettings, clock: Clock, screen: Screen, left: list[str]) -> None:
        self._client, self._settings, self._clock, self._screen = client, terms, clock, screen
        self._leftovers = left
        # Those that were created and have not ended.
        self._unfinished: dict[Key, RunJob] = {}
        self._uids: dict[Key, str] = {}

    async def with_free_name(self, job: RunJob) -> RunJob:
        """The job with a name that is free. One from a command gets a number; one from a file is refused."""
        if not await self._exists(job):
            return job
        if not job.from_command:
            raise InputError(await self._name_taken_message(job))
        for number in count(2):
            other = with_name(job, f"{job.name}-{number}")
            if not await self._exists(other):
                return other
        raise AssertionError

    async def run(self, cargo: Sequence[Bundle], keeping: Mapping[str, RunFolder]) -> list[JobResult | None]:
        """Create them all, tell of them until the last has ended. None: somebody deleted it before.

        Raises `TimeoutError`, `ShippingFailed`, and what the server says. However it ends: a job that has not ended is
        deleted, unless the terms say that it is to go on.
        """
        board = SplitScreen(self._screen, len(cargo))
        try:
            async with asyncio.timeout(self._settings.timeout):
                made = [await self._ship_and_create(each) for each in cargo]
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._follow(each.job, job, board, keeping.get(each.job.name)))
                        for each, job in zip(cargo, made, strict=True)
                    ]
        except BaseException:
            await self._abandon_jobs()
            raise
        return [await self._result(task.result()) for task in tasks]

    def interrupt_message(self) -> str:
        """What is about to happen to jobs that nobody waits for."""
        whom = ", ".join(job.display_name for job in self._unfinished.values())
        if not whom:
            return "stopping …"
        return f"leaving {whom} as it is …" if self._settings.keep_jobs else f"deleting {whom} …"

    # One job

    async def _exists(self, job: RunJob) -> bool:
        try:
            await self._client.get(self._client.unstructured(job.kind.resource), job.key())
        except NotFound:
            return False
        return True

    async def _name_taken_message(self, job: RunJob) -> str:
        where = self._settings.server_flags
        try:
            body = await self._client.get(self._client.unstructured(job.kind.resource), job.key())
        except NotFound:
            body = {}
        return (
            f"{job.display_name} is in namespace {job.key().namespace} already ({job_state(body)}); "
            f"delete it: gangline delete {job.display_name} {where}, "
            f"or give this one another name: --set metadata.name={job.name}-2"
        )

    async def _ship_and_create(self, cargo: Bundle) -> TrainingJob:
        job = cargo.job
        if cargo.shipment is None:
            return await self._create(job, job.body)
        order = ShipRequest(cargo.shipment, job.kind, job.body, job.key(), self._settings.storage_class)
        async with ship_folder(self._client, order, self._clock, self._say) as parcel:
            made = await self._create(job, parcel.body)
            await parcel.set_owner(made)
        return made

    async def _create(self, job: RunJob, body: JSON) -> TrainingJob:
        try:
            with unwrap_exception_group():
                return await self._create_shielded(job, body)
        except AlreadyExists:
            raise InputError(await self._name_taken_message(job)) from None
        except NotFound as error:
            raise InputError(
                f"{error_line(error)}; has the cluster a namespace {job.key().namespace}, and does it know {job.kind.kind}? "
                f"gangline doctor {self._settings.server_flags}"
            ) from error

    async def _create_shielded(self, job: RunJob, body: JSON) -> TrainingJob:
        """Create the job. Interrupted meanwhile, it is known all the same whether it is there: then it is ours to delete."""
        strict = self._client.with_options(WriteOptions(FIELD_MANAGER, field_validation=FieldValidation.STRICT))
        async with asyncio.TaskGroup() as group:
            creating = group.create_task(strict.create(job.kind.resource, body))
            try:
                made: TrainingJob = await asyncio.shield(creating)
            except asyncio.CancelledError:
                with suppress(KubeError):
                    self._track(job, await creating)
                raise
        self._track(job, made)
        return made

    def _track(self, job: RunJob, made: TrainingJob) -> None:
        self._unfinished[job.key()], self._uids[job.key()] = job, made.metadata.uid

    async def _follow(
        self, job: RunJob, made: TrainingJob, board: SplitScreen, keeping: RunFolder | None
    ) -> RunOutcome | None:
        follower = Follower(
            self._client,
            job.kind,
            ServerLogSource(self._client, job.kind.container, self._clock),
            self._clock,
            board.pane(job.name),
            keeper=keeping.add_line if keeping is not None else None,
        )
        async with asyncio.TaskGroup() as group:
            told = partial(self._warn, f"no operator has looked at {job.display_name} yet; is one running?")
            doubting = group.create_task(warn_without_operator(follower.view, self._clock, told))
            try:
                with unwrap_exception_group():
                    outcome = await follower.watch(made)
            except JobDeleted as error:
                self._screen.say((Span(str(error), "yellow"),))
                outcome = None
            doubting.cancel()
        del self._unfinished[job.key()]
        return outcome

    async def _result(self, outcome: RunOutcome | None) -> JobResult | None:
        return JobResult(outcome, await fetch_final_job(self._client, outcome)) if outcome is not None else None

    # The end of a run that did not come to its end

    async def _abandon_jobs(self) -> None:
        for key, job in self._unfinished.items():
            self._leftovers.append(await self._abandon_job(key, job))
        if not self._unfinished:
            self._leftovers.append("nothing is left in the cluster")

    async def _abandon_job(self, key: Key, job: RunJob) -> str:
        named = f"{job.display_name} {self._settings.server_flags}"
        if self._settings.keep_jobs:
            return f"{job.display_name} goes on: gangline logs -f {named}"
        try:
            await self._client.delete(job.kind.resource, key, uid=self._uids[key])
        except (NotFound, Conflict):
            return f"{job.display_name} was gone already"
        except KubeError as error:
            return f"{job.display_name} could not be deleted ({error}): gangline delete {named}"
        except asyncio.CancelledError:
            self._leftovers.append(f"{job.display_name} may be there still: gangline delete {named}")
            raise
        return f"{job.display_name} was deleted"

    def _warn(self, text: str) -> None:
        told = f"{text} gangline doctor {self._settings.server_flags}"
        self._screen.say((Span("warning: ", "yellow"), Span(told)))

    def _say(self, text: str) -> None:
        self._screen.say((Span(text, "dim"),))


def with_name(job: RunJob, name: str) -> RunJob:
    """The same under another name."""
    return job._replace(body={**job.body, "metadata": {**job.body["metadata"], "name": name}})


async def warn_without_operator(team: JobView, clock: Clock, warn: Callable[[], None]) -> None:
    """Nothing happens, and nobody says why: perhaps there is nobody who could."""
    await clock.sleep(OPERATOR_WARNING_AFTER)
    if team.job is None or not team.job.status.conditions:
        warn()
