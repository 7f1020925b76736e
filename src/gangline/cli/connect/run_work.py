"""Run the work of a command against its server, and turn errors into one line and an exit code.

Commands of a few requests use a blocking transport, which starts fast; commands that wait or follow use an event loop.
Nothing here imports click: `gangline.cli.get_fastpath` does without it.
"""

import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline.base.errors import GanglineError
from gangline.cli.connect.server import FIELD_MANAGER, START_SERVER_HINT, ServerOptions, ServerTarget, find_server
from gangline.cli.errors import discard_stdout, print_error, print_warning, single_error
from gangline.cli.exit_codes import ERROR
from gangline.kube.client import Client
from gangline.kube.errors import ConfigError, Unreachable
from gangline.kube.options import WriteOptions
from gangline.kube.transport.api import Transport

USING_ARCHIVE = "no server is running; reading what earlier runs left"
USING_STOPPED_PLANE = "no server is running; reading what earlier runs left, and the plane that stopped at {}"
USING_LIVE_RUN = "no server is running; using the run in progress"
RUN_ENDED = "the run has ended"

ServerWork = Callable[[Client, ServerTarget], Coroutine[Any, Any, int | None]]
"""The work of a command; returns its exit code, None for 0."""


def run_blocking(
    server: ServerOptions, work: ServerWork, *, missing: int = ERROR, failed: int = ERROR, alive: bool = False
) -> int:
    """Run work that sends a few requests, one after the other. Returns the exit code; prints errors in one line.

    `NotFound` gives `missing`, every other error gives `failed`. With `alive`, an archive is refused: the work needs
    a server that runs.
    """
    try:
        target = find_server(server)
        if alive and target.archive is not None:
            raise ConfigError(f"no server is running; {START_SERVER_HINT}, or pass --kubeconfig FILE")
    except GanglineError as error:
        return print_error(error, failed=failed)
    return run_blocking_at(target, server, work, missing=missing, failed=failed)


def run_blocking_at(
    target: ServerTarget, server: ServerOptions, work: ServerWork, *, missing: int = ERROR, failed: int = ERROR
) -> int:
    """The same, with a server that is already resolved."""
    from gangline.kube.transport.blocking import BlockingClock, BlockingTransport, run_without_loop, supports

    try:
        _configure_logging(server)
        if target.run_folder is not None:
            print(USING_LIVE_RUN, file=sys.stderr)
        if target.archive is not None or not supports(target.connection):
            return _run_on_loop(target, server, work)
        with BlockingTransport(target.connection, warn=print_warning) as transport:
            client = Client(
                transport, options=WriteOptions(FIELD_MANAGER), clock=BlockingClock(), timeout=_request_timeout(server)
            )
            return run_without_loop(work(client, target)) or 0
    except BrokenPipeError:
        # The reader of our output stopped reading (`| head`).
        discard_stdout()
        return 0
    except GanglineError as error:
        if isinstance(error, Unreachable) and target.run_folder is not None and not target.run_folder.exists():
            error = Unreachable(RUN_ENDED)
        return print_error(error, missing=missing, failed=failed, server=target.connection)


def run_async(
    server: ServerOptions,
    work: ServerWork,
    *,
    missing: int = ERROR,
    as_it_was: bool = False,
    afterwards: ServerWork | None = None,
) -> int:
    """Run work that waits, follows, or sends requests concurrently. Returns the exit code as `run_blocking` does.

    `as_it_was`: an archived run is read as it was at its last moment, before it was stopped. `afterwards`: if the
    server is the plane of a run in progress and ends with that run, this work is done on the archive of the run.
    """
    target: ServerTarget | None = None
    try:
        target = find_server(server)
        _configure_logging(server)
        if target.run_folder is not None:
            print(USING_LIVE_RUN, file=sys.stderr)
        try:
            return _run_on_loop(target, server, work, as_it_was=as_it_was)
        except Unreachable:
            if target.run_folder is None or target.run_folder.exists():
                raise
            print(RUN_ENDED, file=sys.stderr)
            return _run_on_loop(find_server(server), server, afterwards) if afterwards is not None else 0
    except BrokenPipeError:
        discard_stdout()
        return 0
    except GanglineError as error:
        return print_error(error, missing=missing, server=target.connection if target else None)


def _run_on_loop(target: ServerTarget, server: ServerOptions, work: ServerWork, *, as_it_was: bool = False) -> int:
    import asyncio

    async def connect_and_work() -> int:
        async with _open_transport(target, as_it_was=as_it_was) as transport:
            client = Client(transport, options=WriteOptions(FIELD_MANAGER), timeout=_request_timeout(server))
            return await work(client, target) or 0

    with single_error():
        return asyncio.run(connect_and_work())


@asynccontextmanager
async def _open_transport(target: ServerTarget, *, as_it_was: bool) -> AsyncIterator[Transport]:
    if target.archive is not None and target.past is not None:
        from gangline.cli.connect.archived_runs import open_past

        async with open_past(target.past, target.archive) as past:
            yield past
        return
    if target.archive is not None:
        from gangline.cli.connect.archived_runs import open_archive

        print(_archive_note(target.archive), file=sys.stderr)
        async with open_archive(target.archive, as_it_was=as_it_was) as archive:
            yield archive
        return
    from gangline.kube.transport.http import HttpTransport

    async with HttpTransport(target.connection, warn=print_warning) as transport:
        yield transport


def _archive_note(folder: Path) -> str:
    """What is read instead of a server; of a stopped plane, with the time when it stopped."""
    from gangline.local.archive.server import stopped_at
    from gangline.local.home import PlaneHome

    at = stopped_at(PlaneHome(folder))
    return USING_STOPPED_PLANE.format(at.astimezone().strftime("%Y-%m-%d %H:%M")) if at is not None else USING_ARCHIVE


def _request_timeout(server: ServerOptions) -> timedelta | None:
    return server.request_timeout or None


def _configure_logging(server: ServerOptions) -> None:
    if server.verbose > 1:
        from gangline.base.log import LogFormat, configure_logging

        configure_logging("DEBUG", LogFormat.TEXT)
