"""`gangline run` on this machine: an embedded control plane runs the jobs as processes, a screen shows them.

Imports much: import it only once a run is certain.
"""

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from gangline.api.accelerators import GPU_RESOURCES
from gangline.api.codec.documents import Document
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.base.invocation import own_command_line
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.cli.cleanup.processes import cancel_on_interrupt, kill_all, running_containers, with_watchdog
from gangline.cli.connect.live_runs import publish_kubeconfig
from gangline.cli.connect.server import archive_flags
from gangline.cli.dashboard.local import local_dashboard, open_in_browser
from gangline.cli.errors import discard_stdout, single_error
from gangline.cli.exit_codes import CANCELLED, FAILED, UNFINISHED
from gangline.cli.flags.dashboard_options import DashboardOptions
from gangline.cli.flags.notify_options import notification_settings
from gangline.cli.follow.follower import Follower, JobDeleted, ProgressHook
from gangline.cli.follow.life_signs import HangWatch
from gangline.cli.follow.log_sources import FileLogSource
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen, SplitScreen, choose_screen
from gangline.cli.manifests.local_checks import LocalPlane, check_local_job, local_warnings
from gangline.cli.manifests.processes import this_machine
from gangline.cli.manifests.references import RunObjects
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.output.text import Span
from gangline.cli.run.images import check_images, runs_images
from gangline.cli.run.interpreters import mistake_explainer
from gangline.cli.run.kept_files import ArtifactFolders, RunFolder, provide_artifacts, run_artifacts, state_artifacts
from gangline.cli.run.programs import hidden_modules
from gangline.cli.run.record import ABORTED, RunRecorder, interruption_reason, record_run
from gangline.cli.run.request import RunJob, RunRequest, with_common_folder
from gangline.cli.run.result import (
    JobResult,
    failure_hints,
    fetch_final_job,
    output_stream,
    prepare_run_folders,
    print_results,
    silence_operator_log,
    stop_lines,
)
from gangline.cli.run.submit import create_dependencies, submit_job
from gangline.kube.client import Client
from gangline.kube.errors import ApiError
from gangline.local.cluster import LocalCluster, LocalSettings, temporary_plane
from gangline.local.home import PlaneHome
from gangline.local.paths import home_folder
from gangline.node.devices.gpus import summarize_gpus
from gangline.node.node_status import node_body
from gangline.node.options import node_settings
from gangline.node.resources import machine_capacity
from gangline.node.settings import NodeSettings
from gangline.node.usage import UsageSampler
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import local_settings
from gangline.why.diagnosis.case import DiagnosisTimeouts
from gangline.why.diagnosis.wording import name_list

if TYPE_CHECKING:
    from gangline.cli.replay.play import PreparedReplay
    from gangline.notify.plan.routes import NotificationSettings

QUIET_STOP_SECONDS = 2.0
"""How long processes may take to end after the run before the screen says what it waits for."""
OWN_PLANE_NOTE = "a plane is running on this machine, but this run has one of its own; to run there: --context gangline"


def run_local(request: RunRequest, jobs: Sequence[RunJob]) -> int:
    """Run the jobs on this machine, print the results and return the exit code.

    Raises `InputError` before anything is started, and `KeyboardInterrupt` after an interrupted run was stopped.
    """
    silence_operator_log()
    node = node_settings(**request.node._asdict())
    warnings = [*hidden_modules(request.source.command), *check_jobs(jobs, node, gang=request.gang)]
    check_images(jobs, node)
    notifications = notification_settings(request.notify)
    folders = prepare_run_folders(request, jobs)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    for line in request.replay.notes() if request.replay is not None else ():
        click.echo(line, err=True)
    if archive_flags() is None:
        click.echo(f"note: {OWN_PLANE_NOTE}", err=True)
    plan = RunPlan(
        jobs,
        node,
        request.timeout,
        request.gang,
        request.hook_factory,
        request.hung_after,
        folders,
        request.dashboard,
        request.progress_endpoint,
        notifications,
        request.hang_watch,
        request.replay,
    )
    clock = SystemClock()
    screen = choose_screen(output_stream(request), clock)
    try:
        with single_error():
            results = asyncio.run(run_jobs(plan, screen, clock))
    except TimeoutError:
        click.echo(f"not finished after {request.timeout:g} s; everything was stopped", err=True)
        screen.say(*stop_lines([job.key() for job in jobs], folders))
        return UNFINISHED
    except asyncio.CancelledError:
        try:
            screen.say((Span("stopped; no process is left"),), *stop_lines([job.key() for job in jobs], folders))
        except BrokenPipeError:
            discard_stdout()
        raise KeyboardInterrupt from None
    except ApiError as error:
        raise explained_error([job.document for job in jobs if job.document is not None], error) from None
    if not results:
        return CANCELLED
    hints = failure_hints([result.outcome for result in results]) if not request.next_steps else []
    if request.replay is not None:
        hints = [*((Span(line, "bold"),) for line in request.replay.result()), *hints]
    code = print_results(request, results, folders, screen, *hints)
    return code if code == FAILED or len(results) == len(jobs) else CANCELLED


def check_jobs(jobs: Sequence[RunJob], node: NodeSettings, *, gang: bool = False) -> list[str]:
    """Warnings about the jobs.

    Raises `InputError` for a job that the server would refuse, or that could never start on this machine.
    """
    machine = this_machine()
    gpus = {GPU_RESOURCES[vendor]: str(count) for vendor, count in Counter(machine.gpus).items()}
    plane = LocalPlane(
        machine_capacity({**gpus, **node.capacity}, Path.cwd()),
        node.name,
        node_body(node.name, node.runtime, node.gpus)["metadata"]["labels"],
        RunObjects(document for job in jobs for document in job.dependencies),
        gang,
    )
    for job in jobs:
        check_local_job(job.document or Document(job.body, {}), job.kind, plane)
    return [text for job in jobs for text in local_warnings(job.document or Document(job.body, {}), job.kind, plane)]


class RunPlan(NamedTuple):
    """The jobs to run on this machine, and the settings of the run."""

    jobs: Sequence[RunJob]
    node: NodeSettings
    timeout: float | None = None
    # Whether every job is a gang; else only jobs with a schedulingPolicy are.
    gang: bool = False
    # Called with the node's state folder, once per job.
    hook_factory: Callable[[Path], ProgressHook] | None = None
    # After so many seconds without a sign of life of a job the screen says so.
    hung_after: float = HangWatch().seconds
    # The folders that logs are kept in, by job name; empty without `--keep`.
    kept_folders: Mapping[str, RunFolder] = {}
    # None: without a dashboard.
    dashboard: DashboardOptions | None = None
    # Whether programs may report progress to the plane.
    progress_endpoint: bool = True
    # Who hears of the states of the jobs; None: nobody.
    notifications: "NotificationSettings | None" = None
    # Whether the operator looks for jobs without progress.
    hang_watch: bool = True
    # The bundle that is played; None for other runs.
    replay: "PreparedReplay | None" = None


async def run_jobs(plan: RunPlan, screen: Screen, clock: Clock) -> list[JobResult]:
    """Run the jobs until all have finished, and show them. When this returns or raises, no process is left.

    A job that is deleted meanwhile has no result. Raises `TimeoutError`. The first interrupt (SIGINT, SIGTERM, SIGHUP)
    cancels the run: processes are terminated gracefully. The next one kills them.
    """
    started = clock.monotonic()
    folder, jobs = with_common_folder(plan.jobs)
    followers: list[Follower] = []
    with (
        run_folders(plan, jobs, screen, clock) as (state, artifacts, recorder),
        screen,
        show_stopped(followers),
    ):
        # Whatever ends the run, a program may save its state when it gets SIGTERM, for as long as its pod grants it.
        node = msgspec.structs.replace(plan.node, artifacts=artifacts.pattern, shutdown_grace=None)
        settings = LocalSettings(folder=folder, logs=state, plane=temporary_plane(), node=node)
        # Only the kinds of these jobs: each further kind costs start-up time.
        operator = msgspec.structs.replace(
            local_settings(
                gang=plan.gang,
                progress=plan.progress_endpoint,
                hung_after=plan.hung_after if plan.hang_watch else None,
            ),
            kinds=tuple({job.kind.scheme for job in jobs}),
        )

        def report_undelivered(text: str) -> None:
            screen.say((Span(f"warning: {text}", "yellow"),))

        async with (
            embedded_plane(
                settings, clock, operator, notifications=plan.notifications, report_undelivered=report_undelivered
            ) as plane,
            background_tasks(recorder.start(plane.store)),
            AsyncExitStack() as opened,
        ):
            publish_kubeconfig(state, plane.access, [job.key() for job in jobs])
            seconds = clock.monotonic() - started
            # Before anything is shown: it may refuse what the user wrote.
            await create_dependencies(plane.client, jobs)
            screen.show_ready(plane.url, seconds, summarize_gpus(node.gpus))
            if plan.dashboard is not None:
                await _open_dashboard(opened, plan.dashboard, plane, state, screen)
            followers += make_followers(plan, jobs, plane.client, state, clock, screen)
            if plan.replay is not None:
                playing = plan.replay.run(plane.client, lambda text: screen.say((Span(text, "bold yellow"),)))
                await opened.enter_async_context(background_tasks(playing))
            with stop_on_interrupt(followers, screen, state):
                async with asyncio.timeout(plan.timeout), asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_submit_and_follow(plane.client, job, follower, screen))
                        for job, follower in zip(jobs, followers, strict=True)
                    ]
                outcomes = [outcome for task in tasks if (outcome := task.result()) is not None]
                if plan.replay is not None:
                    await plan.replay.conclude(plane.client)
                return [
                    JobResult(
                        outcome,
                        await fetch_final_job(plane.client, outcome),
                        artifacts.folder(outcome.job.metadata.key),
                    )
                    for outcome in outcomes
                ]


async def _open_dashboard(
    opened: AsyncExitStack, options: DashboardOptions, plane: LocalCluster, state: Path, screen: Screen
) -> None:
    history = PlaneHome(home_folder(None)).history
    link = await opened.enter_async_context(
        local_dashboard(plane.inner_connection, state, options.dashboard_port, history)
    )
    screen.show_dashboard(link)
    if options.open_dashboard:
        open_in_browser(link, lambda text: screen.say((Span(text, "yellow"),)))


@contextmanager
def show_stopped(followers: Sequence[Follower]) -> Iterator[None]:
    """If the block is interrupted or times out, show at its end how the jobs were stopped."""
    try:
        yield
    except BaseException as error:
        if interruption_reason(error) != ABORTED:
            for follower in followers:
                # Ctrl-C may have ended the reader of a pipe, too; a terminal that was closed takes no more lines.
                with suppress(OSError):
                    follower.show_stopped()
        raise


async def _submit_and_follow(client: Client, job: RunJob, follower: Follower, screen: Screen) -> RunOutcome | None:
    try:
        with unwrap_exception_group():
            return await follower.watch(await submit_job(client, job.kind, job.body))
    except JobDeleted as error:
        follower.show_stopped()
        screen.say((Span(str(error), "yellow"),))
        return None


@contextmanager
def run_folders(
    plan: RunPlan, jobs: Sequence[RunJob], screen: Screen, clock: Clock
) -> Iterator[tuple[Path, ArtifactFolders, RunRecorder]]:
    """The node's state folder, which is removed at the end, and the artifact folders and run records, which stay."""
    home, keys = PlaneHome(home_folder(None)), [job.key() for job in jobs]
    with suppress(InputError):
        # Created with access for this user only. Where that fails, nothing is recorded.
        home.create_folder()
    run_folder = next(iter(plan.kept_folders.values()), None)
    artifacts = run_artifacts(run_folder.folder.parent) if run_folder is not None else state_artifacts(home)
    removable = [folder for key in keys for folder in artifacts.removable_folders(key)]
    with with_watchdog(removable) as state, provide_artifacts(artifacts, keys):
        recorder = RunRecorder(home.runs, [job.kind for job in jobs], state, clock, typed_command())
        with record_run(recorder, lambda text: screen.say((Span(text, "yellow"),))):
            yield state, artifacts, recorder


def typed_command() -> str:
    """The command line of this run in its folder, as typed; empty if it cannot be typed again."""
    context = click.get_current_context(silent=True)
    words: Sequence[str] = (context.find_root().obj or ()) if context is not None else ()
    if not words or "-" in words:
        return ""
    return f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(('gangline', *words))}"


def make_followers(
    plan: RunPlan, jobs: Sequence[RunJob], client: Client, state: Path, clock: Clock, screen: Screen
) -> list[Follower]:
    """One follower per job; several jobs share the screen."""
    split_screen = SplitScreen(screen, len(jobs))
    return [
        Follower(
            client,
            job.kind,
            FileLogSource(state, job.key(), [other.name for other in jobs]),
            clock,
            split_screen.pane(job.name),
            progress_hook=_progress_hook(plan, state),
            log_hook=plan.kept_folders[job.name].add_line if job.name in plan.kept_folders else None,
            usage=UsageSampler(state, clock).sample,
            explain_mistake=mistake_explainer(plan.node, job.kind, job.body, job.folder),
            hang_watch=_hang_watch(plan, job),
        )
        for job in jobs
    ]


def _progress_hook(plan: RunPlan, state: Path) -> ProgressHook | None:
    if plan.replay is not None:
        return plan.replay.player.on_progress
    return plan.hook_factory(state) if plan.hook_factory is not None else None


def _hang_watch(plan: RunPlan, job: RunJob) -> HangWatch | None:
    """What to say when a job gives no sign of life. The CPU use of containers is not known, only that of processes."""
    if runs_images(job, plan.node):
        return None
    key = job.key()
    namespace = ("-n", key.namespace) if key.namespace != "default" else ()
    earlier = plan.hung_after < DiagnosisTimeouts().hung_after.total_seconds()
    patience = ("--hung-after", f"{plan.hung_after:g}s") if earlier else ()
    why = own_command_line("why", key.name, *namespace, *patience)
    return HangWatch(plan.hung_after, f"{why}{archive_flags() or ''}")


@contextmanager
def stop_on_interrupt(followers: Sequence[Follower], screen: Screen, state: Path) -> Iterator[None]:
    """The first interrupt cancels the block and says what is being stopped; the next one kills all processes.

    After the block one interrupt is enough, and the screen says so if processes take their time to end.
    """
    announced = False

    def announce() -> None:
        nonlocal announced
        announced = True
        if len(followers) == 1:
            what = name_list(followers[0].view.live_replicas()) or "the job"
        else:
            what = f"{len(followers)} jobs"
        screen.say((Span(f"stopping {what} … (Ctrl-C again kills at once)", "yellow"),))

    def announce_wait() -> None:
        if not announced and any(running_containers(state)):
            screen.say((Span("waiting for the remaining processes to end … (Ctrl-C kills them)", "yellow"),))

    with cancel_on_interrupt(announce, lambda: kill_all(state)):
        try:
            yield
        finally:
            asyncio.get_running_loop().call_later(QUIET_STOP_SECONDS, announce_wait)
