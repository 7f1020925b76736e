"""The jobs of a run in a cluster: names, ships, creates and follows them, and deletes them if the run is given up."""

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
from gangline.base.invocation import with_own_command
from gangline.base.tasks import unwrap_exception_group
from gangline.cli.connect.server import FIELD_MANAGER
from gangline.cli.errors import error_line
from gangline.cli.follow.follower import Follower, JobDeleted
from gangline.cli.follow.job_view import JobView
from gangline.cli.follow.log_sources import ServerLogSource
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen, SplitScreen
from gangline.cli.output.text import Span
from gangline.cli.run.bundle import Bundle
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.request import RunJob
from gangline.cli.run.result import JobResult, fetch_final_job
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.sdk.ship.upload import ShipRequest, ship_folder
from gangline.summary.job_state import job_state

OPERATOR_WARNING_AFTER = timedelta(seconds=15)
"""After so long without a condition in the job's status, the user is warned that no operator may be running."""


class RemoteRunSettings(NamedTuple):
    """Settings of a run in a cluster."""

    # The flags that select the server, for suggested commands.
    server_flags: str = ""
    timeout: float | None = None
    # Whether jobs are left running when the run is interrupted.
    keep_jobs: bool = False
    storage_class: str = ""


class RemoteJobs:
    """The jobs of one run. If the run is given up, `leftovers` gets a line about each job that had not finished."""

    def __init__(
        self, client: Client, settings: RemoteRunSettings, clock: Clock, screen: Screen, leftovers: list[str]
    ) -> None:
        self._client, self._settings, self._clock, self._screen = client, settings, clock, screen
        self._leftovers = leftovers
        # The jobs that were created and have not finished.
        self._unfinished: dict[Key, RunJob] = {}
        self._uids: dict[Key, str] = {}

    async def with_free_name(self, job: RunJob) -> RunJob:
        """The job under a name that is free. A job from a command gets a number; for one from a file raises `InputError`."""
        if not await self._exists(job):
            return job
        if not job.from_command:
            raise InputError(await self._name_taken_message(job))
        for number in count(2):
            renamed = with_name(job, f"{job.name}-{number}")
            if not await self._exists(renamed):
                return renamed
        raise AssertionError

    async def run(self, bundles: Sequence[Bundle], folders: Mapping[str, RunFolder]) -> list[JobResult | None]:
        """Create the jobs and follow them until all have finished. The result of a deleted job is None.

        Raises `TimeoutError`, `ShippingFailed`, and errors of the server. When it raises, jobs that have not finished
        are deleted, unless `keep_jobs` is set.
        """
        split_screen = SplitScreen(self._screen, len(bundles))
        try:
            async with asyncio.timeout(self._settings.timeout):
                created = [await self._ship_and_create(bundle) for bundle in bundles]
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._follow(bundle.job, job, split_screen, folders.get(bundle.job.name)))
                        for bundle, job in zip(bundles, created, strict=True)
                    ]
        except BaseException:
            await self._abandon_jobs()
            raise
        return [await self._result(task.result()) for task in tasks]

    def interrupt_message(self) -> str:
        """What an interrupt is about to do with the jobs that have not finished."""
        jobs = ", ".join(job.display_name for job in self._unfinished.values())
        if not jobs:
            return "stopping …"
        return f"leaving {jobs} as it is …" if self._settings.keep_jobs else f"deleting {jobs} …"

    # One job

    async def _exists(self, job: RunJob) -> bool:
        try:
            await self._client.get(self._client.unstructured(job.kind.resource), job.key())
        except NotFound:
            return False
        return True

    async def _name_taken_message(self, job: RunJob) -> str:
        try:
            body = await self._client.get(self._client.unstructured(job.kind.resource), job.key())
        except NotFound:
            body = {}
        return (
            f"{job.display_name} is in namespace {job.key().namespace} already ({job_state(body)}); "
            f"delete it: gangline delete {job.display_name} {self._settings.server_flags}, "
            f"or give this one another name: --set metadata.name={job.name}-2"
        )

    async def _ship_and_create(self, bundle: Bundle) -> TrainingJob:
        job = bundle.job
        if bundle.shipment is None:
            return await self._create(job, job.body)
        request = ShipRequest(bundle.shipment, job.kind, job.body, job.key(), self._settings.storage_class)
        async with ship_folder(self._client, request, self._clock, self._say) as upload:
            created = await self._create(job, upload.body)
            await upload.set_owner(created)
        return created

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
        """Create the job. If cancelled meanwhile, still wait whether it was created, so that it can be deleted."""
        strict = self._client.with_options(WriteOptions(FIELD_MANAGER, field_validation=FieldValidation.STRICT))
        async with asyncio.TaskGroup() as group:
            creating = group.create_task(strict.create(job.kind.resource, body))
            try:
                created: TrainingJob = await asyncio.shield(creating)
            except asyncio.CancelledError:
                with suppress(KubeError):
                    self._track(job, await creating)
                raise
        self._track(job, created)
        return created

    def _track(self, job: RunJob, created: TrainingJob) -> None:
        self._unfinished[job.key()], self._uids[job.key()] = job, created.metadata.uid

    async def _follow(
        self, job: RunJob, created: TrainingJob, split_screen: SplitScreen, folder: RunFolder | None
    ) -> RunOutcome | None:
        follower = Follower(
            self._client,
            job.kind,
            ServerLogSource(self._client, partial(training_container_name, container=job.kind.container), self._clock),
            self._clock,
            split_screen.pane(job.name),
            log_hook=folder.add_line if folder is not None else None,
        )
        async with asyncio.TaskGroup() as group:
            warn = partial(self._warn, f"no operator has looked at {job.display_name} yet; is one running?")
            operator_check = group.create_task(warn_without_operator(follower.view, self._clock, warn))
            try:
                with unwrap_exception_group():
                    outcome = await follower.watch(created)
            except JobDeleted as error:
                self._screen.say((Span(str(error), "yellow"),))
                outcome = None
            operator_check.cancel()
        del self._unfinished[job.key()]
        return outcome

    async def _result(self, outcome: RunOutcome | None) -> JobResult | None:
        return JobResult(outcome, await fetch_final_job(self._client, outcome)) if outcome is not None else None

    # A run that is given up

    async def _abandon_jobs(self) -> None:
        for key, job in self._unfinished.items():
            self._leftovers.append(await self._abandon_job(key, job))
        if not self._unfinished:
            self._leftovers.append("nothing is left in the cluster")

    async def _abandon_job(self, key: Key, job: RunJob) -> str:
        arguments = f"{job.display_name} {self._settings.server_flags}"
        if self._settings.keep_jobs:
            return with_own_command(f"{job.display_name} goes on: gangline logs -f {arguments}")
        try:
            await self._client.delete(job.kind.resource, key, uid=self._uids[key])
        except (NotFound, Conflict):
            return f"{job.display_name} was already deleted"
        except KubeError as error:
            return with_own_command(f"{job.display_name} could not be deleted ({error}): gangline delete {arguments}")
        except asyncio.CancelledError:
            left = with_own_command(f"{job.display_name} may still exist: gangline delete {arguments}")
            self._leftovers.append(left)
            raise
        return f"{job.display_name} was deleted"

    def _warn(self, text: str) -> None:
        message = with_own_command(f"{text} gangline doctor {self._settings.server_flags}")
        self._screen.say((Span("warning: ", "yellow"), Span(message)))

    def _say(self, text: str) -> None:
        self._screen.say((Span(text, "dim"),))


def with_name(job: RunJob, name: str) -> RunJob:
    """The job under another name."""
    return job._replace(body={**job.body, "metadata": {**job.body["metadata"], "name": name}})


async def warn_without_operator(view: JobView, clock: Clock, warn: Callable[[], None]) -> None:
    """Call `warn` if the job still has no condition after `OPERATOR_WARNING_AFTER`: no operator may be running."""
    await clock.sleep(OPERATOR_WARNING_AFTER)
    if view.job is None or not view.job.status.conditions:
        warn()
