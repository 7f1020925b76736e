"""A run as it was asked for, to its exit code: shown, kept, told. Heavy to import."""

import asyncio
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.base.tasks import unwrap_exception_group
from gangline.cli.cleanup import processes
from gangline.cli.cleanup import watchdog as guarding
from gangline.cli.cleanup.processes import kill_all
from gangline.cli.connect.live_runs import publish_kubeconfig
from gangline.cli.connect.server import archive_flags
from gangline.cli.errors import single_error
from gangline.cli.exit_codes import CANCELLED, FAILED, UNFINISHED
from gangline.cli.follow.follower import Follower, JobDeleted, ProgressHook
from gangline.cli.follow.log_sources import FileLogSource
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen, SplitScreen, choose_screen
from gangline.cli.follow.usage import UsageSampler
from gangline.cli.follow.view import Span
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.run.command import RunRequest
from gangline.cli.run.dependencies import create_dependencies
from gangline.cli.run.kept_files import ArtifactFolders, RunFolder, provide_artifacts, run_artifacts, state_artifacts
from gangline.cli.run.record import RunRecorder, record_run
from gangline.cli.run.request import RunJob, with_common_folder
from gangline.cli.run.result import (
    JobResult,
    failure_hints,
    fetch_final_job,
    output_stream,
    prepare_run_folders,
    print_results,
    silence_operator_log,
)
from gangline.kube.client import Client
from gangline.kube.errors import ApiError
from gangline.local.cluster import LocalSettings
from gangline.local.home import PlaneHome
from gangline.local.paths import home_folder
from gangline.node.options import node_settings
from gangline.node.settings import NodeSettings
from gangline.operator.settings import LOCAL_GANG_SETTINGS, LOCAL_SETTINGS
from gangline.operator.wiring import embedded_plane
from gangline.why.diagnosis.wording import name_list


class RunPlan(NamedTuple):
    """What to run, and how."""

    jobs: Sequence[RunJob]
    node: NodeSettings
    timeout: float | None = None
    # Whether every job starts whole or not at all; else those that ask for it.
    gang: bool = False
    # Made with the folder in which the node keeps its records.
    hook_factory: Callable[[Path], ProgressHook] | None = None
    # By the job's name; none for those of which nothing is kept.
    kept_folders: Mapping[str, RunFolder] = {}


async def run_jobs(wanted: RunPlan, screen: Screen, clock: Clock) -> list[JobResult]:
    """Run the jobs to their ends and show them. Raises `TimeoutError`; when this returns or raises, no process is left.

    A job that somebody deleted meanwhile has no result.

    An interrupt (SIGINT, SIGTERM, SIGHUP) cancels it: processes are asked to end, and get a moment to do so. At the next
    one they are killed.
    """
    started = clock.monotonic()
    folder, jobs = with_common_folder(wanted.jobs)
    with run_folders(wanted, jobs, screen, clock) as (state, artifacts, recording), screen:
        node = msgspec.structs.replace(wanted.node, artifacts=artifacts.pattern)
        settings = LocalSettings(folder=folder, logs=state, node=node)
        # The other kinds would only take time.
        operator = msgspec.structs.replace(
            LOCAL_GANG_SETTINGS if wanted.gang else LOCAL_SETTINGS,
            kinds=tuple({job.kind.kind for job in jobs}),
        )
        async with embedded_plane(settings, clock, operator) as plane:
            recording.store = plane.store
            await publish_kubeconfig(state, plane.connection, [job.key() for job in jobs])
            screen.show_ready(plane.url, clock.monotonic() - started)
            await create_dependencies(plane.client, jobs)
            team = followers(wanted, jobs, plane.client, state, clock, screen)
            with stop_on_interrupt(team, screen, state):
                async with asyncio.timeout(wanted.timeout), asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_follow(each, job, screen)) for job, each in zip(jobs, team, strict=True)
                    ]
                ends = [end for task in tasks if (end := task.result()) is not None]
                return [
                    JobResult(end, await fetch_final_job(plane.client, end), artifacts.folder(end.job.metadata.key))
                    for end in ends
                ]


async def _follow(follower: Follower, job: RunJob, screen: Screen) -> RunOutcome | None:
    try:
        with unwrap_exception_group():
            return await follower.submit_and_follow(job.body)
    except JobDeleted as error:
        screen.say((Span(str(error), "yellow"),))
        return None


@contextmanager
def run_folders(
    wanted: RunPlan, jobs: Sequence[RunJob], screen: Screen, clock: Clock
) -> Iterator[tuple[Path, ArtifactFolders, RunRecorder]]:
    """The folder of the node, which goes; what programs make and the record of the jobs, which stay."""
    home, keys = PlaneHome(home_folder(None)), [job.key() for job in jobs]
    with suppress(InputError):
        # Others are not to look into it. Where it cannot be, nothing is left.
        home.create_folder()
    kept = next(iter(wanted.kept_folders.values()), None)
    artifacts = run_artifacts(kept.folder.parent) if kept is not None else state_artifacts(home)
    spare = [folder for key in keys for folder in artifacts.removable_folders(key)]
    with with_watchdog(spare) as state, provide_artifacts(artifacts, keys):
        recording = RunRecorder(home.runs, [job.kind for job in jobs], state, clock)
        with record_run(recording, lambda text: screen.say((Span(text, "yellow"),))):
            yield state, artifacts, recording


def followers(
    wanted: RunPlan, jobs: Sequence[RunJob], client: Client, state: Path, clock: Clock, screen: Screen
) -> list[Follower]:
    """One for each job; several share the screen."""
    board = SplitScreen(screen, len(jobs))
    return [
        Follower(
            client,
            job.kind,
            FileLogSource(state, job.key(), [other.name for other in jobs]),
            clock,
            board.pane(job.name),
            watcher=wanted.hook_factory(state) if wanted.hook_factory is not None else None,
            keeper=wanted.kept_folders[job.name].add_line if job.name in wanted.kept_folders else None,
            usage=UsageSampler(state, clock).sample if screen.shows_usage else None,
        )
        for job in jobs
    ]


@contextmanager
def with_watchdog(spare: Sequence[Path] = ()) -> Iterator[Path]:
    """A folder for the node, gone when the block ends; and with it every process, even if this one is killed.

    In that case the spare folders go, too, those that are empty.
    """
    # The guard is there before the folder: nothing is ever without one.
    folder = Path(tempfile.gettempdir(), f"gangline-{secrets.token_hex(4)}")
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(guarding.__file__)), str(folder), *map(str, spare)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C on the terminal is not for it.
        start_new_session=True,
    )
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        guard.communicate()


def stop_on_interrupt(team: Sequence[Follower], screen: Screen, state: Path) -> AbstractContextManager[None]:
    """Ctrl-C asks the block to end, and says what is being stopped; once more kills what is still there."""

    def told() -> None:
        whom = name_list(team[0].live_replicas()) or "the job" if len(team) == 1 else f"{len(team)} jobs"
        screen.say((Span(f"stopping {whom} … (Ctrl-C again kills at once)", "yellow"),))

    return processes.cancel_on_interrupt(told, lambda: kill_all(state))


OWN_PLANE_NOTE = "a plane is running on this machine, but this run has one of its own; to run there: --context gangline"


def run_local(asked: RunRequest, jobs: Sequence[RunJob]) -> int:
    """Run them, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    silence_operator_log()
    node = node_settings(**asked.node._asdict())
    keeping = prepare_run_folders(asked, jobs)
    if archive_flags() is None:
        click.echo(f"note: {OWN_PLANE_NOTE}", err=True)
    wanted = RunPlan(jobs, node, asked.timeout, asked.gang, asked.hook_factory, keeping)
    clock = SystemClock()
    screen = choose_screen(output_stream(asked), clock)
    try:
        with single_error():
            results = asyncio.run(run_jobs(wanted, screen, clock))
    except TimeoutError:
        click.echo(f"not finished after {asked.timeout:g} s; everything was stopped", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span("stopped; no process is left"),))
        raise KeyboardInterrupt from None
    except ApiError as error:
        raise explained_error([job.document for job in jobs if job.document is not None], error) from None
    if not results:
        return CANCELLED
    steps = failure_hints([each.outcome for each in results]) if not asked.next_steps else []
    code = print_results(asked, results, keeping, screen, *steps)
    return code if code == FAILED or len(results) == len(jobs) else CANCELLED
