"""Jobs on a plane of their own, from start to end, with a viewer who may interrupt. Heavy to import."""

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

import msgspec

from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.tasks import unwrapped
from gangline.cli.cleanup import interrupting
from gangline.cli.cleanup import watchdog as guarding
from gangline.cli.cleanup.processes import kill_all
from gangline.cli.connect.live_runs import publish
from gangline.cli.follow.follower import Follower, JobDeleted, Watcher
from gangline.cli.follow.log_sources import FileLines
from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.parts import Board
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.usage import Usage
from gangline.cli.follow.view import Span
from gangline.cli.run.dependencies import provide
from gangline.cli.run.keeping import Keeping
from gangline.cli.run.kept_files import Artifacts, in_runs, in_state, provided
from gangline.cli.run.record import Recording, recorded
from gangline.cli.run.request import Job, gathered
from gangline.cli.run.result import Result, final
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.local.home import Home
from gangline.local.paths import home_folder
from gangline.node.settings import NodeSettings
from gangline.operator.settings import LOCAL, LOCAL_GANGS
from gangline.operator.wiring import embedded
from gangline.why.model.wording import names


class Wanted(NamedTuple):
    """What to run, and how."""

    jobs: Sequence[Job]
    node: NodeSettings
    timeout: float | None = None
    # Whether every job starts whole or not at all; else those that ask for it.
    gang: bool = False
    # Made with the folder in which the node keeps its records.
    watcher: Callable[[Path], Watcher] | None = None
    # By the job's name; none for those of which nothing is kept.
    keeping: Mapping[str, Keeping] = {}


async def run(wanted: Wanted, screen: Screen, clock: Clock) -> list[Result]:
    """Run the jobs to their ends and show them. Raises `TimeoutError`; when this returns or raises, no process is left.

    A job that somebody deleted meanwhile has no result.

    An interrupt (SIGINT, SIGTERM, SIGHUP) cancels it: processes are asked to end, and get a moment to do so. At the next
    one they are killed.
    """
    started = clock.monotonic()
    folder, jobs = gathered(wanted.jobs)
    with left(wanted, jobs, screen, clock) as (state, artifacts, recording), screen:
        node = msgspec.structs.replace(wanted.node, artifacts=artifacts.pattern)
        settings = LocalSettings(folder=folder, logs=state, node=node)
        # The other kinds would only take time.
        operator = msgspec.structs.replace(
            LOCAL_GANGS if wanted.gang else LOCAL, kinds=tuple({job.facts.kind for job in jobs})
        )
        async with embedded(settings, clock, operator) as plane:
            recording.store = plane.store
            await publish(state, plane.connection, [job.key() for job in jobs])
            screen.ready(plane.url, clock.monotonic() - started)
            await provide(plane.client, jobs)
            team = followers(wanted, jobs, plane.client, state, clock, screen)
            with interruptible(team, screen, state):
                async with asyncio.timeout(wanted.timeout), asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_followed(each, job, screen))
                        for job, each in zip(jobs, team, strict=True)
                    ]
                ends = [end for task in tasks if (end := task.result()) is not None]
                return [
                    Result(end, await final(plane.client, end), artifacts.of(end.job.metadata.key))
                    for end in ends
                ]


async def _followed(follower: Follower, job: Job, screen: Screen) -> Outcome | None:
    try:
        with unwrapped():
            return await follower.follow(job.body)
    except JobDeleted as error:
        screen.say((Span(str(error), "yellow"),))
        return None


@contextmanager
def left(
    wanted: Wanted, jobs: Sequence[Job], screen: Screen, clock: Clock
) -> Iterator[tuple[Path, Artifacts, Recording]]:
    """The folder of the node, which goes; what programs make and the record of the jobs, which stay."""
    home, keys = Home(home_folder(None)), [job.key() for job in jobs]
    with suppress(InputError):
        # Others are not to look into it. Where it cannot be, nothing is left.
        home.prepare()
    kept = next(iter(wanted.keeping.values()), None)
    artifacts = in_runs(kept.folder.parent) if kept is not None else in_state(home)
    spare = [folder for key in keys for folder in artifacts.all_of(key)]
    with guarded(spare) as state, provided(artifacts, keys):
        recording = Recording(home.runs, [job.facts for job in jobs], state, clock)
        with recorded(recording, lambda text: screen.say((Span(text, "yellow"),))):
            yield state, artifacts, recording


def followers(
    wanted: Wanted, jobs: Sequence[Job], client: Client, state: Path, clock: Clock, screen: Screen
) -> list[Follower]:
    """One for each job; several share the screen."""
    board = Board(screen, len(jobs))
    return [
        Follower(
            client,
            job.facts,
            FileLines(state, job.key(), [other.name for other in jobs]),
            clock,
            board.part(job.name),
            watcher=wanted.watcher(state) if wanted.watcher is not None else None,
            keeper=wanted.keeping[job.name].line if job.name in wanted.keeping else None,
            usage=Usage(state, clock).sample if screen.draws else None,
        )
        for job in jobs
    ]


@contextmanager
def guarded(spare: Sequence[Path] = ()) -> Iterator[Path]:
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


def interruptible(team: Sequence[Follower], screen: Screen, state: Path) -> AbstractContextManager[None]:
    """Ctrl-C asks the block to end, and says what is being stopped; once more kills what is still there."""

    def told() -> None:
        whom = names(team[0].alive()) or "the job" if len(team) == 1 else f"{len(team)} jobs"
        screen.say((Span(f"stopping {whom} … (Ctrl-C again kills at once)", "yellow"),))

    return interrupting.interruptible(told, lambda: kill_all(state))
