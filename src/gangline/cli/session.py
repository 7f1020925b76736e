"""One job on a plane of its own, from start to end, with a viewer who may interrupt. Heavy to import."""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.codec import to_json
from gangline.api.meta import JSON
from gangline.api.training import JobKind
from gangline.base.clock import Clock
from gangline.cli import guard as guarding
from gangline.cli.ending import Outcome
from gangline.cli.follow import Follower, Watcher
from gangline.cli.keeping import Keeping
from gangline.cli.processes import kill_all
from gangline.cli.screen import Screen
from gangline.cli.usage import Usage
from gangline.cli.view import Span
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.local.cluster import LocalSettings
from gangline.local.node.settings import NodeSettings
from gangline.operator.settings import LOCAL
from gangline.operator.wire import embedded
from gangline.why.words import names


class Wanted(NamedTuple):
    """What to run, and how."""

    facts: JobKind
    body: JSON
    # Where its processes start.
    folder: Path
    node: NodeSettings
    timeout: float | None = None
    # Made with the folder in which the node keeps its records.
    watcher: Callable[[Path], Watcher] | None = None
    keeping: Keeping | None = None


class Result(NamedTuple):
    """What became of it, also as the server has it."""

    outcome: Outcome
    body: JSON


async def run(wanted: Wanted, screen: Screen, clock: Clock) -> Result:
    """Run the job to its end and show it. Raises `TimeoutError`; when this returns or raises, no process is left.

    An interrupt (SIGINT, SIGTERM, SIGHUP) cancels it: processes are asked to end, and get a moment to do so. At the next
    one they are killed.
    """
    started = clock.monotonic()
    with guarded() as state, screen:
        settings = LocalSettings(folder=wanted.folder, logs=state, node=wanted.node)
        # The other kinds would only take time.
        operator = msgspec.structs.replace(LOCAL, kinds=(wanted.facts.kind,))
        async with embedded(settings, clock, operator) as plane:
            screen.ready(plane.url, clock.monotonic() - started)
            follower = Follower(
                plane.client,
                wanted.facts,
                state,
                clock,
                screen,
                watcher=wanted.watcher(state) if wanted.watcher is not None else None,
                keeper=wanted.keeping.line if wanted.keeping is not None else None,
                usage=Usage(state, clock).sample if screen.draws else None,
            )
            with interruptible(follower, screen, state):
                async with asyncio.timeout(wanted.timeout):
                    outcome = await follower.follow(wanted.body)
                return Result(outcome, await final(plane.client, outcome))


async def final(client: Client, outcome: Outcome) -> JSON:
    """The job as the server has it; one that was cleaned up already, as it was last seen."""
    job = outcome.job
    with suppress(NotFound):
        return await client.get(client.plain(type(job)), job.metadata.key)
    return to_json(job)


@contextmanager
def guarded() -> Iterator[Path]:
    """A folder for the node, gone when the block ends; and with it every process, even if this one is killed."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guarding.__file__)), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C on the terminal is not for it.
            start_new_session=True,
        )
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            guard.communicate()


@contextmanager
def interruptible(follower: Follower, screen: Screen, state: Path) -> Iterator[None]:
    """Ctrl-C asks the block to end, and says what is being stopped; once more kills what is still there."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    times = 0

    def interrupt() -> None:
        nonlocal times
        times += 1
        if times == 1:
            whom = names(follower.alive()) or "the job"
            screen.say((Span(f"stopping {whom} … (Ctrl-C again kills at once)", "yellow"),))
            task.cancel()
        else:
            kill_all(state)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    # Not taken away at the end of the block: processes are still being stopped then. The loop does it when it closes.
    yield
