"""A sweep as it was asked for, to its exit code: run, printed, told. Heavy to import."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import GanglineError, InputError
from gangline.base.log import LogFormat, configure_logging
from gangline.base.tasks import run_every, unwrap_exception_group
from gangline.cli.cleanup.processes import cancel_on_interrupt, kill_all
from gangline.cli.errors import error_line
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.follow.follower import MAX_CURVE_POINTS, Follower
from gangline.cli.follow.log_sources import FileLogSource
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.view import JobFrame, StyledLine
from gangline.cli.manifests.jobs import read_documents
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.output import formats
from gangline.cli.output.curve import Point, curve_lines
from gangline.cli.output.tables import render, use_colour, write_stdout
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.local import with_watchdog
from gangline.cli.run.result import fetch_final_job
from gangline.cli.sweep.command import SweepRequest
from gangline.cli.sweep.leaderboard import (
    Leaderboard,
    Objective,
    TrialRow,
    TrialState,
    leaderboard_header,
    leaderboard_json,
    leaderboard_rows,
    mean_curve,
    new_leaderboard,
    parameter_labels,
    remarks,
    trial_label,
)
from gangline.cli.sweep.results import SweepFolder
from gangline.cli.sweep.screen import SweepScreen, choose_sweep_screen
from gangline.cli.sweep.space import TrialValues
from gangline.cli.sweep.trial_jobs import SweepSource
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.options import WriteOptions
from gangline.local.cluster import LocalSettings
from gangline.node.options import node_settings
from gangline.node.settings import NodeSettings
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.operator.wiring import embedded_plane
from gangline.progress.line import Progress
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose

REDRAW_INTERVAL = timedelta(milliseconds=250)
POLL_INTERVAL = timedelta(milliseconds=50)
"""How often it is looked whether the pods of a trial are gone."""
CLEANUP_TIMEOUT = timedelta(seconds=45)
"""How long that may take: longer than they are given to end."""


class SweepPlan(NamedTuple):
    """The trials as jobs of one kind, and how to run them."""

    kind: JobKind
    bodies: Sequence[JSON]
    # Where their processes start.
    folder: Path
    node: NodeSettings
    parallel: int = 1
    # Of one trial.
    timeout: float | None = None


class TrialRejected(GanglineError):
    """The server does not take a trial."""

    def __init__(self, at: int, error: ApiError) -> None:
        super().__init__(str(error))
        self.index, self.error = at, error


class NullScreen:
    """A screen on which nothing is shown: a sweep shows trials, not members."""

    shows_usage = False

    def __enter__(self) -> "NullScreen":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show_ready(self, url: str, seconds: float) -> None: ...
    def show_state(self, job: str, state: str) -> None: ...
    def show_phase(self, member: str, phase: str) -> None: ...
    def show_log(self, member: str, line: str) -> None: ...
    def show_progress(self, member: str, progress: Progress) -> None: ...
    def draw(self, *jobs: JobFrame) -> None: ...
    def say(self, *lines: StyledLine) -> None: ...
    def show_outcome(self, outcome: RunOutcome) -> None: ...


class TrialMetrics:
    """What the members of one trial reported of the metric."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.curves: dict[str, list[Point]] = {}
        self.metric_names: set[str] = set()
        self.latest: Progress | None = None

    def add(self, member: str, found: Progress) -> None:
        self.latest = found
        self.metric_names.update(found.metrics)
        if self._metric in found.metrics:
            points = self.curves.setdefault(member, [])
            points.append(Point(found.step, found.metrics[self._metric]))
            if len(points) > MAX_CURVE_POINTS:
                del points[1:-1:2]

    @property
    def value(self) -> float | None:
        """What was reported last; of several members, the mean of that."""
        last = [points[-1].value for points in self.curves.values()]
        return sum(last) / len(last) if last else None


class SweepRunner:
    """Runs the trials of a board. `board`, `curves` and `metrics` can be read at any time, also after a failure."""

    def __init__(
        self, wanted: SweepPlan, board: Leaderboard, kept: SweepFolder, shown: SweepScreen, clock: Clock
    ) -> None:
        self._plan, self._folder, self._screen, self._clock = wanted, kept, shown, clock
        self.board = board
        self.curves: dict[int, list[Point]] = {}
        # All metrics that anybody reported.
        self.metrics: set[str] = set()

    async def run(self) -> None:
        """All trials to their ends. When this returns or raises, no process is left.

        Raises `TrialRejected` if the server would not take one of them; then none was run, and nothing written down.
        An interrupt (SIGINT, SIGTERM, SIGHUP) cancels it; at the next one what still runs is killed.
        """
        with with_watchdog() as state, self._screen:
            settings = LocalSettings(folder=self._plan.folder, logs=state, node=self._plan.node)
            # The other kinds would only take time.
            operator = msgspec.structs.replace(LOCAL_SETTINGS, kinds=(self._plan.kind.kind,))
            async with embedded_plane(settings, self._clock, operator) as plane:
                await self._dry_run_trials(plane.client)
                self._folder.prepare()
                told = partial(self._screen.say, "stopping … (Ctrl-C again kills at once)")
                with cancel_on_interrupt(told, partial(kill_all, state)):
                    await self._run_trials(plane.client, state)

    async def _dry_run_trials(self, client: Client) -> None:
        """Ask the server about all trials: a mistake is in every one of them, or would come up late."""
        dry = client.with_options(WriteOptions(dry_run=True))
        resource = client.unstructured(self._plan.kind.resource)
        for at, body in enumerate(self._plan.bodies):
            metadata = {**body["metadata"], "namespace": "default"}
            try:
                await dry.create(resource, {**body, "metadata": metadata}, namespace="default")
            except ApiError as error:
                raise TrialRejected(at, error) from error

    async def _run_trials(self, client: Client, state: Path) -> None:
        room = asyncio.Semaphore(self._plan.parallel)

        async def one(row: TrialRow, body: JSON) -> None:
            async with room:
                await self._run_trial(row, body, client, state)

        async with asyncio.TaskGroup() as outer:
            drawing = outer.create_task(run_every(REDRAW_INTERVAL, self._draw, self._clock))
            async with asyncio.TaskGroup() as group:
                for row, body in zip(self.board.rows, self._plan.bodies, strict=True):
                    group.create_task(one(row, body))
            drawing.cancel()

    async def _draw(self) -> None:
        self._screen.draw(self.board)

    async def _run_trial(self, row: TrialRow, body: JSON, client: Client, state: Path) -> None:
        """One trial from its start to its row. Its own failure is in the row; only an interrupt is raised."""
        started, reports = self._clock.monotonic(), TrialMetrics(self.board.objective.metric)
        keeping = self._folder.open_trial(row.number)

        def now(state: TrialState, cause: str = "") -> TrialRow:
            newest = reports.latest
            return msgspec.structs.replace(
                row,
                state=state,
                value=reports.value,
                step=newest.step if newest is not None else None,
                share=newest.fraction if newest is not None else None,
                seconds=self._clock.monotonic() - started,
                cause=cause,
            )

        def watch(member: str, found: Progress) -> None:
            reports.add(member, found)
            self.board = self.board.with_row(now(TrialState.RUNNING))

        follower = Follower(
            client,
            self._plan.kind,
            FileLogSource(state, _job_key(body)),
            self._clock,
            NullScreen(),
            watcher=watch,
            keeper=keeping.add_line,
        )
        self._update_row(now(TrialState.RUNNING))
        try:
            ended = await self._wait_for_end(follower, body, client, keeping)
            self._finish_trial(now(*ended), reports)
        except asyncio.CancelledError:
            self._finish_trial(now(TrialState.STOPPED, "interrupted"), reports)
            raise
        # Not before the next trial: what is left of this one would take its time.
        await self._delete_trial(client, body)

    async def _wait_for_end(
        self, follower: Follower, body: JSON, client: Client, keeping: RunFolder
    ) -> tuple[TrialState, str]:
        try:
            async with asyncio.timeout(self._plan.timeout):
                outcome = await follower.submit_and_follow(body)
        except TimeoutError:
            cause = await self._cause(client, body)
            late = f"not finished after {self._plan.timeout:g} s"
            return TrialState.TIMED_OUT, f"{late}: {cause}" if cause else late
        except GanglineError as error:
            return TrialState.FAILED, str(error)
        keeping.write_job(await fetch_final_job(client, outcome))
        if outcome.succeeded:
            return TrialState.SUCCEEDED, ""
        return TrialState.FAILED, await self._cause(client, body) or outcome.job.status.conditions[-1].message

    async def _cause(self, client: Client, body: JSON) -> str:
        """What `gangline why` says of it; empty if nothing."""
        key = _job_key(body)
        try:
            case = await collect(client, f"{self._plan.kind.kind.lower()}/{key.name}", key.namespace, self._clock)
        except GanglineError:
            return ""
        return diagnose(case).cause

    async def _delete_trial(self, client: Client, body: JSON) -> None:
        key = _job_key(body)
        with suppress(NotFound):
            await client.delete(self._plan.kind.model, key)
        end = self._clock.monotonic() + CLEANUP_TIMEOUT.total_seconds()
        where = Selector(namespace=key.namespace)
        while (await client.list(Pod, where)).items and self._clock.monotonic() < end:
            await self._clock.sleep(POLL_INTERVAL)

    def _update_row(self, row: TrialRow) -> None:
        self.board = self.board.with_row(row)
        self._screen.show_trial(self.board, row)

    def _finish_trial(self, row: TrialRow, reports: TrialMetrics) -> None:
        self.metrics |= reports.metric_names
        self.curves[row.number] = mean_curve(reports.curves)
        self._update_row(row)
        # After every trial: a sweep that is killed keeps what it had.
        self._folder.write_table(self.board)


def _job_key(body: JSON) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def run_sweep(
    asked: SweepRequest,
    source: SweepSource,
    facts: JobKind,
    bodies: Sequence[JSON],
    values: Sequence[TrialValues],
) -> int:
    """Run it, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    # What the operator would warn of is in the table, as a cause.
    configure_logging(logging.ERROR, LogFormat.TEXT)
    node = node_settings(**asked.node._asdict())
    kept = SweepFolder(asked.runs, str(bodies[0]["metadata"]["name"]))
    node = msgspec.structs.replace(node, artifacts=kept.artifacts_pattern)
    wanted = SweepPlan(facts, bodies, source.folder, node, asked.parallel, asked.timeout)
    board = new_leaderboard(Objective(asked.metric, asked.maximize), values)
    sweep = SweepRunner(wanted, board, kept, choose_sweep_screen(sys.stderr), SystemClock())
    try:
        with unwrap_exception_group():
            asyncio.run(sweep.run())
    except asyncio.CancelledError:
        _print_results(asked, sweep, kept)
        click.echo("stopped; no process is left", err=True)
        raise KeyboardInterrupt from None
    except TrialRejected as error:
        raise _rejection_error(source, bodies[error.index], values[error.index], error) from None
    finally:
        kept.remove_empty_artifacts()
    _print_results(asked, sweep, kept)
    return SUCCEEDED if sweep.board.count(TrialState.SUCCEEDED) else FAILED


def _rejection_error(source: SweepSource, body: JSON, values: TrialValues, refused: TrialRejected) -> InputError:
    """Why no trial was begun, with the line of the file; and with its values, where they are in the job."""
    found = error_line(refused.error).removeprefix("error: ")
    if source.file is not None:
        document = msgspec.structs.replace(read_documents(source.file)[0][1], body=body)
        found = str(explained_error([document], refused.error))
    places = {name: value for name, value in values.items() if "." in name}
    with_values = "".join(f"--set {name}={value}: " for name, value in places.items())
    return InputError(f"{with_values}{found}")


def _print_results(asked: SweepRequest, sweep: SweepRunner, kept: SweepFolder) -> None:
    """The leaderboard on standard output; for people, the curve of the best one and where everything is."""
    board = sweep.board
    kept.write_table(board)
    picture = kept.write_picture(board, sweep.curves)
    if asked.output == "json":
        write_stdout(formats.as_json(leaderboard_json(board)))
    else:
        write_stdout(render(leaderboard_header(board), leaderboard_rows(board), colour=use_colour(sys.stdout)))
        for line in _best_curve(board, sweep):
            click.echo(line, err=True)
    for remark in remarks(board, sweep.metrics):
        click.echo(f"note: {remark}", err=True)
    if kept.write_error:
        click.echo(f"warning: {kept.write_error}", err=True)
    drawn = f"picture: {picture}   " if picture is not None else ""
    click.echo(f"table: {kept.csv}   {drawn}logs: {kept.folder}/trial-*/", err=True)


def _best_curve(board: Leaderboard, sweep: SweepRunner) -> list[str]:
    """The curve of the best trial, with its name."""
    best = board.best_row()
    if best is None or len(sweep.curves[best.number]) < 2:
        return []
    name = (
        f"{board.objective.metric} of trial {best.number}, the best: {trial_label(best, parameter_labels(board.rows))}"
    )
    return ["", *curve_lines(sweep.curves[best.number]), name, ""]
