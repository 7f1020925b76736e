"""All trials of a sweep on one plane, some at a time: run, watched, written down. Heavy to import."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import every
from gangline.cli.cleanup.interrupting import interruptible
from gangline.cli.cleanup.processes import kill_all
from gangline.cli.follow.follower import POINTS, Follower
from gangline.cli.follow.log_sources import FileLines
from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.view import Facts, Line
from gangline.cli.output.curve import Point
from gangline.cli.run.keeping import Keeping
from gangline.cli.run.result import final
from gangline.cli.run.session import guarded
from gangline.cli.sweep.leaderboard import Board, Row, State, merged
from gangline.cli.sweep.results import SweepFolder
from gangline.cli.sweep.screen import Shown
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.options import WriteOptions
from gangline.local.cluster import LocalSettings
from gangline.node.settings import NodeSettings
from gangline.operator.settings import LOCAL
from gangline.operator.wiring import embedded
from gangline.progress.line import Progress
from gangline.why.collect import collect
from gangline.why.diagnose import diagnose

REDRAW = timedelta(milliseconds=250)
LOOK = timedelta(milliseconds=50)
"""How often it is looked whether the pods of a trial are gone."""
PATIENCE = timedelta(seconds=45)
"""How long that may take: longer than they are given to end."""


class Wanted(NamedTuple):
    """The trials as jobs of one kind, and how to run them."""

    facts: JobKind
    bodies: Sequence[JSON]
    # Where their processes start.
    folder: Path
    node: NodeSettings
    parallel: int = 1
    # Of one trial.
    timeout: float | None = None


class Refused(GanglineError):
    """The server does not take a trial."""

    def __init__(self, at: int, error: ApiError) -> None:
        super().__init__(str(error))
        self.at, self.error = at, error


class Quiet:
    """A screen on which nothing is shown: a sweep shows trials, not members."""

    draws = False

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ready(self, url: str, seconds: float) -> None: ...
    def state(self, job: str, state: str) -> None: ...
    def pod(self, member: str, phase: str) -> None: ...
    def log(self, member: str, line: str) -> None: ...
    def progress(self, member: str, progress: Progress) -> None: ...
    def draw(self, *jobs: Facts) -> None: ...
    def say(self, *lines: Line) -> None: ...
    def end(self, outcome: Outcome) -> None: ...


class Reports:
    """What the members of one trial reported of the metric."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.curves: dict[str, list[Point]] = {}
        self.names: set[str] = set()
        self.newest: Progress | None = None

    def take(self, member: str, found: Progress) -> None:
        self.newest = found
        self.names.update(found.metrics)
        if self._metric in found.metrics:
            points = self.curves.setdefault(member, [])
            points.append(Point(found.step, found.metrics[self._metric]))
            if len(points) > POINTS:
                del points[1:-1:2]

    @property
    def value(self) -> float | None:
        """What was reported last; of several members, the mean of that."""
        last = [points[-1].value for points in self.curves.values()]
        return sum(last) / len(last) if last else None


class Sweep:
    """Runs the trials of a board. `board`, `curves` and `metrics` can be read at any time, also after a failure."""

    def __init__(self, wanted: Wanted, board: Board, kept: SweepFolder, shown: Shown, clock: Clock) -> None:
        self._wanted, self._kept, self._shown, self._clock = wanted, kept, shown, clock
        self.board = board
        self.curves: dict[int, list[Point]] = {}
        # All metrics that anybody reported.
        self.metrics: set[str] = set()

    async def run(self) -> None:
        """All trials to their ends. When this returns or raises, no process is left.

        Raises `Refused` if the server would not take one of them; then none was run, and nothing written down.
        An interrupt (SIGINT, SIGTERM, SIGHUP) cancels it; at the next one what still runs is killed.
        """
        with guarded() as state, self._shown:
            settings = LocalSettings(folder=self._wanted.folder, logs=state, node=self._wanted.node)
            # The other kinds would only take time.
            operator = msgspec.structs.replace(LOCAL, kinds=(self._wanted.facts.kind,))
            async with embedded(settings, self._clock, operator) as plane:
                await self._accepted(plane.client)
                self._kept.prepare()
                told = partial(self._shown.say, "stopping … (Ctrl-C again kills at once)")
                with interruptible(told, partial(kill_all, state)):
                    await self._all(plane.client, state)

    async def _accepted(self, client: Client) -> None:
        """Ask the server about all trials: a mistake is in every one of them, or would come up late."""
        dry = client.writing(WriteOptions(dry_run=True))
        resource = client.plain(self._wanted.facts.resource)
        for at, body in enumerate(self._wanted.bodies):
            metadata = {**body["metadata"], "namespace": "default"}
            try:
                await dry.create(resource, {**body, "metadata": metadata}, namespace="default")
            except ApiError as error:
                raise Refused(at, error) from error

    async def _all(self, client: Client, state: Path) -> None:
        room = asyncio.Semaphore(self._wanted.parallel)

        async def one(row: Row, body: JSON) -> None:
            async with room:
                await self._trial(row, body, client, state)

        async with asyncio.TaskGroup() as outer:
            drawing = outer.create_task(every(REDRAW, self._draw, self._clock))
            async with asyncio.TaskGroup() as group:
                for row, body in zip(self.board.rows, self._wanted.bodies, strict=True):
                    group.create_task(one(row, body))
            drawing.cancel()

    async def _draw(self) -> None:
        self._shown.draw(self.board)

    async def _trial(self, row: Row, body: JSON, client: Client, state: Path) -> None:
        """One trial from its start to its row. Its own failure is in the row; only an interrupt is raised."""
        started, reports = self._clock.monotonic(), Reports(self.board.aim.metric)
        keeping = self._kept.trial(row.number)

        def now(state: State, cause: str = "") -> Row:
            newest = reports.newest
            return msgspec.structs.replace(
                row,
                state=state,
                value=reports.value,
                step=newest.step if newest is not None else None,
                share=newest.share if newest is not None else None,
                seconds=self._clock.monotonic() - started,
                cause=cause,
            )

        def watch(member: str, found: Progress) -> None:
            reports.take(member, found)
            self.board = self.board.changed(now(State.RUNNING))

        follower = Follower(
            client,
            self._wanted.facts,
            FileLines(state, _key(body)),
            self._clock,
            Quiet(),
            watcher=watch,
            keeper=keeping.line,
        )
        self._tell(now(State.RUNNING))
        try:
            ended = await self._ended(follower, body, client, keeping)
            self._end(now(*ended), reports)
        except asyncio.CancelledError:
            self._end(now(State.STOPPED, "interrupted"), reports)
            raise
        # Not before the next trial: what is left of this one would take its time.
        await self._cleared(client, body)

    async def _ended(
        self, follower: Follower, body: JSON, client: Client, keeping: Keeping
    ) -> tuple[State, str]:
        try:
            async with asyncio.timeout(self._wanted.timeout):
                outcome = await follower.follow(body)
        except TimeoutError:
            cause = await self._cause(client, body)
            late = f"not finished after {self._wanted.timeout:g} s"
            return State.TIMED_OUT, f"{late}: {cause}" if cause else late
        except GanglineError as error:
            return State.FAILED, str(error)
        keeping.job(await final(client, outcome))
        if outcome.succeeded:
            return State.SUCCEEDED, ""
        return State.FAILED, await self._cause(client, body) or outcome.job.status.conditions[-1].message

    async def _cause(self, client: Client, body: JSON) -> str:
        """What `gangline why` says of it; empty if nothing."""
        key = _key(body)
        try:
            case = await collect(
                client, f"{self._wanted.facts.kind.lower()}/{key.name}", key.namespace, self._clock
            )
        except GanglineError:
            return ""
        return diagnose(case).cause

    async def _cleared(self, client: Client, body: JSON) -> None:
        key = _key(body)
        with suppress(NotFound):
            await client.delete(self._wanted.facts.model, key)
        end = self._clock.monotonic() + PATIENCE.total_seconds()
        where = Selector(namespace=key.namespace)
        while (await client.list(Pod, where)).items and self._clock.monotonic() < end:
            await self._clock.sleep(LOOK)

    def _tell(self, row: Row) -> None:
        self.board = self.board.changed(row)
        self._shown.changed(self.board, row)

    def _end(self, row: Row, reports: Reports) -> None:
        self.metrics |= reports.names
        self.curves[row.number] = merged(reports.curves)
        self._tell(row)
        # After every trial: a sweep that is killed keeps what it had.
        self._kept.table(self.board)


def _key(body: JSON) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
