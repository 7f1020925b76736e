"""Runs the trials of a sweep on an embedded control plane, and prints the leaderboard.

Imports much: import it only once a sweep is certain.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
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
from gangline.base.tasks import run_every, unwrap_exception_group
from gangline.cli.cleanup.processes import cancel_on_interrupt, kill_all, with_watchdog
from gangline.cli.dashboard.local import local_dashboard, open_in_browser
from gangline.cli.errors import error_line
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.flags.dashboard_options import DashboardOptions
from gangline.cli.follow.follower import Follower
from gangline.cli.follow.job_view import add_point
from gangline.cli.follow.log_sources import FileLogSource
from gangline.cli.follow.screen import Screen
from gangline.cli.manifests.jobs import read_documents
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.output import formats
from gangline.cli.output.curve import Point, curve_lines
from gangline.cli.output.tables import render, use_colour, write_stdout
from gangline.cli.run.interpreters import mistake_explainer
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.result import fetch_final_job, silence_operator_log
from gangline.cli.run.submit import submit_job
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
from gangline.cli.sweep.request import SweepRequest, SweepSource
from gangline.cli.sweep.results import SweepFolder
from gangline.cli.sweep.screen import SweepScreen, choose_sweep_screen
from gangline.cli.sweep.space import TrialValues, is_path
from gangline.cli.sweep.trial_jobs import with_trial_note
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.options import WriteOptions
from gangline.local.cluster import LocalSettings, temporary_plane
from gangline.node.options import node_settings
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.progress.line import Progress
from gangline.timeline.curves import prefers_log
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose

REDRAW_INTERVAL = timedelta(milliseconds=250)
POLL_INTERVAL = timedelta(milliseconds=50)
"""How often to check whether the pods of a trial are deleted."""
CLEANUP_TIMEOUT = timedelta(seconds=45)
"""How long to wait for that: longer than the grace period of the pods."""


class SweepPlan(NamedTuple):
    """The jobs of all trials, which are of one kind, and the settings of the sweep."""

    kind: JobKind
    bodies: Sequence[JSON]
    # The working directory of the processes.
    folder: Path
    node: NodeSettings
    parallel: int = 1
    # The timeout of each trial.
    timeout: float | None = None
    dashboard: DashboardOptions = DashboardOptions(dashboard=False)


class TrialRejected(GanglineError):
    """The server rejects the job of a trial."""

    def __init__(self, index: int, error: ApiError) -> None:
        super().__init__(str(error))
        self.index, self.error = index, error


class TrialMetrics:
    """The progress reports of one trial's replicas."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.curves: dict[str, list[Point]] = {}
        self.metric_names: set[str] = set()
        self.latest: Progress | None = None

    def add(self, replica: str, progress: Progress) -> None:
        self.latest = progress
        self.metric_names.update(progress.metrics)
        if self._metric in progress.metrics:
            add_point(self.curves.setdefault(replica, []), Point(progress.step, progress.metrics[self._metric]))

    @property
    def value(self) -> float | None:
        """The mean over the replicas of the value that each reported last."""
        last_values = [points[-1].value for points in self.curves.values()]
        return sum(last_values) / len(last_values) if last_values else None


class SweepRunner:
    """Runs all trials. `board`, `curves` and `metrics` can be read at any time, also after a failure."""

    def __init__(
        self, plan: SweepPlan, board: Leaderboard, folder: SweepFolder, screen: SweepScreen, clock: Clock
    ) -> None:
        self._plan, self._folder, self._screen, self._clock = plan, folder, screen, clock
        self.board = board
        self.curves: dict[int, list[Point]] = {}
        # The names of all metrics that any trial reported.
        self.metrics: set[str] = set()

    async def run(self) -> None:
        """Run all trials until they have finished. When this returns or raises, no process is left.

        Raises `TrialRejected` if the server rejects one of them; then none was run, and no file was written. The first
        interrupt (SIGINT, SIGTERM, SIGHUP) cancels the sweep; the next one kills all processes.
        """
        with with_watchdog() as state, self._screen:
            # As in `gangline run`, programs may save their state when they are stopped.
            node = msgspec.structs.replace(self._plan.node, shutdown_grace=None)
            settings = LocalSettings(folder=self._plan.folder, logs=state, plane=temporary_plane(), node=node)
            # Only the kind of the trials: each further kind costs start-up time.
            operator = msgspec.structs.replace(LOCAL_SETTINGS, kinds=(self._plan.kind.scheme,))
            async with embedded_plane(settings, self._clock, operator) as plane, AsyncExitStack() as opened:
                await self._dry_run_trials(plane.client)
                self._folder.prepare()
                if self._plan.dashboard.dashboard:
                    link = await opened.enter_async_context(
                        local_dashboard(plane.inner_connection, state, self._plan.dashboard.dashboard_port)
                    )
                    self._screen.say(f"dashboard: {link}")
                    if self._plan.dashboard.open_dashboard:
                        open_in_browser(link, self._screen.say)
                announce = partial(self._screen.say, "stopping … (Ctrl-C again kills at once)")
                with cancel_on_interrupt(announce, partial(kill_all, state)):
                    await self._run_trials(plane.client, state)

    async def _dry_run_trials(self, client: Client) -> None:
        """Validate the jobs of all trials on the server, so that a mistake is not found only after hours."""
        dry = client.with_options(WriteOptions(dry_run=True))
        resource = client.unstructured(self._plan.kind.resource)
        for index, body in enumerate(self._plan.bodies):
            metadata = {**body["metadata"], "namespace": "default"}
            try:
                await dry.create(resource, {**body, "metadata": metadata}, namespace="default")
            except ApiError as error:
                raise TrialRejected(index, error) from error

    async def _run_trials(self, client: Client, state: Path) -> None:
        slots = asyncio.Semaphore(self._plan.parallel)

        async def run_in_slot(row: TrialRow, body: JSON) -> None:
            async with slots:
                await self._run_trial(row, body, client, state)

        async with asyncio.TaskGroup() as outer:
            drawing = outer.create_task(run_every(REDRAW_INTERVAL, self._draw, self._clock))
            async with asyncio.TaskGroup() as group:
                for row, body in zip(self.board.rows, self._plan.bodies, strict=True):
                    group.create_task(run_in_slot(row, body))
            drawing.cancel()

    async def _draw(self) -> None:
        self._screen.draw(self.board)

    async def _run_trial(self, row: TrialRow, body: JSON, client: Client, state: Path) -> None:
        """Run one trial and fill its row. A failure of the trial is stored in the row; only cancellation is raised."""
        started, metrics = self._clock.monotonic(), TrialMetrics(self.board.objective.metric)
        folder = self._folder.open_trial(row.number)

        def current_row(state: TrialState, cause: str = "") -> TrialRow:
            latest = metrics.latest
            return msgspec.structs.replace(
                row,
                state=state,
                value=metrics.value,
                step=latest.step if latest is not None else None,
                share=latest.fraction if latest is not None else None,
                seconds=self._clock.monotonic() - started,
                cause=cause,
            )

        def on_progress(replica: str, progress: Progress) -> None:
            metrics.add(replica, progress)
            self.board = self.board.with_row(current_row(TrialState.RUNNING))

        follower = Follower(
            client,
            self._plan.kind,
            FileLogSource(state, _job_key(body)),
            self._clock,
            Screen(),
            progress_hook=on_progress,
            log_hook=folder.add_line,
            explain_mistake=mistake_explainer(self._plan.node, self._plan.kind, body, self._plan.folder),
        )
        self._update_row(current_row(TrialState.RUNNING))
        try:
            state_and_cause = await self._submit_and_follow(follower, body, client, folder)
            self._finish_trial(current_row(*state_and_cause), metrics)
        except asyncio.CancelledError:
            self._finish_trial(current_row(TrialState.STOPPED, "interrupted"), metrics)
            raise
        # Before the slot is free again: processes of this trial would slow the next one down.
        await self._delete_trial(client, body)

    async def _submit_and_follow(
        self, follower: Follower, body: JSON, client: Client, folder: RunFolder
    ) -> tuple[TrialState, str]:
        """Run the trial's job until it has finished; returns the final state, and the cause if it did not succeed."""
        try:
            async with asyncio.timeout(self._plan.timeout):
                outcome = await follower.watch(await submit_job(client, self._plan.kind, body))
        except TimeoutError:
            cause = await self._cause(client, body)
            message = f"not finished after {self._plan.timeout:g} s"
            return TrialState.TIMED_OUT, f"{message}: {cause}" if cause else message
        except GanglineError as error:
            return TrialState.FAILED, str(error)
        folder.write_job(await fetch_final_job(client, outcome))
        if outcome.succeeded:
            return TrialState.SUCCEEDED, ""
        cause = outcome.mistake or await self._cause(client, body)
        return TrialState.FAILED, cause or outcome.job.status.conditions[-1].message

    async def _cause(self, client: Client, body: JSON) -> str:
        """The cause that `gangline why` finds; empty if it finds none."""
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
        deadline = self._clock.monotonic() + CLEANUP_TIMEOUT.total_seconds()
        selector = Selector(namespace=key.namespace)
        while (await client.list(Pod, selector)).items and self._clock.monotonic() < deadline:
            await self._clock.sleep(POLL_INTERVAL)

    def _update_row(self, row: TrialRow) -> None:
        self.board = self.board.with_row(row)
        self._screen.show_trial(self.board, row)

    def _finish_trial(self, row: TrialRow, metrics: TrialMetrics) -> None:
        self.metrics |= metrics.metric_names
        self.curves[row.number] = mean_curve(metrics.curves)
        self._update_row(row)
        # Written after every trial: a killed sweep keeps the rows of the finished ones.
        self._folder.write_table(self.board)


def _job_key(body: JSON) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def run_sweep(request: SweepRequest, kind: JobKind, bodies: Sequence[JSON], trials: Sequence[TrialValues]) -> int:
    """Run the trials, print the leaderboard and return the exit code.

    Raises `InputError` before anything is started, and `KeyboardInterrupt` after an interrupted sweep was stopped.
    """
    silence_operator_log()
    node = node_settings(**request.node._asdict())
    folder = SweepFolder(request.runs, str(bodies[0]["metadata"]["name"]))
    node = msgspec.structs.replace(node, artifacts=folder.artifacts_pattern)
    objective = Objective(request.metric, request.maximize)
    noted = [
        with_trial_note(body, values, number, objective)
        for number, (body, values) in enumerate(zip(bodies, trials, strict=True), 1)
    ]
    plan = SweepPlan(kind, noted, request.source.folder, node, request.parallel, request.timeout, request.dashboard)
    board = new_leaderboard(objective, trials)
    runner = SweepRunner(plan, board, folder, choose_sweep_screen(sys.stderr), SystemClock())
    try:
        with unwrap_exception_group():
            asyncio.run(runner.run())
    except asyncio.CancelledError:
        _print_results(request, runner, folder)
        click.echo("stopped; no process is left", err=True)
        raise KeyboardInterrupt from None
    except TrialRejected as rejection:
        raise _rejection_error(request.source, bodies, trials, rejection) from None
    finally:
        folder.remove_empty_artifacts()
    _print_results(request, runner, folder)
    return SUCCEEDED if runner.board.count(TrialState.SUCCEEDED) else FAILED


def _rejection_error(
    source: SweepSource, bodies: Sequence[JSON], trials: Sequence[TrialValues], rejection: TrialRejected
) -> InputError:
    """Why the server rejects a trial: with the line of the manifest, and the trial's values that are set in the job."""
    message = error_line(rejection.error).removeprefix("error: ")
    if source.file is not None:
        document = msgspec.structs.replace(read_documents(source.file)[0][1], body=bodies[rejection.index])
        message = str(explained_error([document], rejection.error))
    overrides = {name: value for name, value in trials[rejection.index].items() if is_path(name)}
    flags = "".join(f"--set {name}={value}: " for name, value in overrides.items())
    return InputError(f"{flags}{message}")


def _print_results(request: SweepRequest, runner: SweepRunner, folder: SweepFolder) -> None:
    """Print the leaderboard to stdout; to stderr the curve of the best trial, remarks and the paths of the files."""
    board = runner.board
    folder.write_table(board)
    picture = folder.write_picture(board, runner.curves)
    if request.output == "json":
        write_stdout(formats.as_json(leaderboard_json(board)))
    else:
        write_stdout(render(leaderboard_header(board), leaderboard_rows(board), colour=use_colour(sys.stdout)))
        for line in _best_curve(board, runner):
            click.echo(line, err=True)
    for remark in remarks(board, runner.metrics):
        click.echo(f"note: {remark}", err=True)
    if folder.write_error:
        click.echo(f"warning: {folder.write_error}", err=True)
    picture_text = f"picture: {picture}   " if picture is not None else ""
    click.echo(f"table: {folder.csv}   {picture_text}logs: {folder.folder}/trial-*/", err=True)


def _best_curve(board: Leaderboard, runner: SweepRunner) -> list[str]:
    """The curve of the best trial, with its label."""
    best = board.best_row()
    if best is None or len(runner.curves[best.number]) < 2:
        return []
    label = trial_label(best, parameter_labels(board.rows))
    title = f"{board.objective.metric} of trial {best.number}, the best: {label}"
    points = runner.curves[best.number]
    log = prefers_log([point.value for point in points])
    return ["", *curve_lines(points, log=log), title, ""]
