"""Which server a command speaks to.

Order: what the flags say, `KUBECONFIG`, a plane that runs on this machine, `~/.kube/config`, the pod's own service
account, then a `gangline run` that goes on, and then what is left on this machine of planes and runs that ended, to be
read. A run comes late: whoever has a cluster would not expect that verbs turn away from it while something trains here.

Commands that ask and end use a blocking transport, which starts fast; those that wait use the other one. Nothing here
imports click, which takes as long as everything else together: `gangline.cli.fastpath` does without.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.base.errors import GanglineError
from gangline.cli.errors import ERROR, print_error, print_warning
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, Impersonation, load_connection
from gangline.kube.errors import ConfigError, Unreachable
from gangline.kube.options import WriteOptions
from gangline.kube.transport.api import Transport

FIELD_MANAGER = "gangline-cli"
"""Whose name is on the fields that people write."""
LOCAL_CONTEXT = "gangline"
"""The context of this machine, as the kubeconfig of its plane calls it. Always there, unless a kubeconfig has its own."""
USING_ARCHIVE = "no server is running; reading what earlier runs left"
USING_STOPPED_PLANE = "no server is running; reading what earlier runs left, and the plane that stopped at {}"
USING_LIVE_RUN = "no server is running; asking the run that goes on"
RUN_ENDED = "the run has ended"
START_SERVER_HINT = "or start a server on this machine: gangline up --detach"


class ServerOptions(NamedTuple):
    """As given on the command line."""

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str | None = None
    user: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    as_uid: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    request_timeout: timedelta | None = None
    verbose: int = 0
    # The job that the command is about, where it is about one.
    job_hint: str = ""


class ServerTarget(NamedTuple):
    """The server, and where on it to look."""

    connection: Connection
    # Empty: all of them.
    namespace: str
    # The folder of the plane, where it is one of this machine.
    plane_folder: Path | None = None
    # The namespace on the command line, if there is one.
    flag_namespace: str = ""
    # The folder in which planes and runs left what can be read, where there is no server.
    archive: Path | None = None
    # The folder of a `gangline run` that goes on, if its plane is meant.
    run_folder: Path | None = None

    @property
    def object_namespace(self) -> str:
        """The namespace for one object."""
        return self.namespace or self.connection.namespace


class NoServer(ConfigError):
    """Nobody named a server, and none is found."""


ServerWork = Callable[[Client, ServerTarget], Coroutine[Any, Any, int | None]]


def find_server(
    options: ServerOptions, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> ServerTarget:
    """The server that the options, the environment and this machine lead to. Raises `ConfigError`."""
    environ, home = os.environ if environ is None else environ, home or Path.home()
    try:
        return _answering_server(options, environ, home)
    except ConfigError as error:
        here = options.context == LOCAL_CONTEXT and not (options.kubeconfig or options.cluster or options.user)
        plane = _running_plane(environ) if here else None
        if plane is not None:
            return _answering_server(options._replace(kubeconfig=str(plane / "kubeconfig")), environ, home)
        nowhere = "not a pod" in str(error)
        left = _archive_folder(environ) if here or nowhere else None
        run = _live_run(options, _state_folder(environ), choosy=left is not None) if here or nowhere else None
        if run is not None:
            there = options._replace(kubeconfig=str(run), context=None)
            return _answering_server(there, environ, home)._replace(run_folder=run.parent)
        if left is not None:
            found = Connection(server="", namespace=options.namespace or "default", context=LOCAL_CONTEXT)
            namespace = "" if options.all_namespaces else found.namespace
            return ServerTarget(found, namespace, flag_namespace=options.namespace or "", archive=left)
        if nowhere:
            raise NoServer(f"{error}, {START_SERVER_HINT}") from None
        raise


def _answering_server(options: ServerOptions, environ: Mapping[str, str], home: Path) -> ServerTarget:
    """The server that is to answer. Raises `ConfigError` when there is none."""
    local = None if _names_server(options, environ) else _running_plane(environ)
    flags = {name: getattr(options, name) for name in ("kubeconfig", "context", "cluster", "user")}
    if local is not None:
        flags["kubeconfig"] = str(local / "kubeconfig")
    found = _with_impersonation(
        load_connection(**flags, namespace=options.namespace, environ=environ, home=home), options
    )
    other = local is not None and (home / ".kube" / "config").exists()
    place = ServerTarget(
        found,
        "" if options.all_namespaces else found.namespace,
        local or _plane_folder(found, home),
        options.namespace or "",
    )
    if options.verbose or other:
        _print_server(place)
    return place


def _names_server(options: ServerOptions, environ: Mapping[str, str]) -> bool:
    named = options.kubeconfig or options.context or options.cluster or options.user
    return bool(named or environ.get("KUBECONFIG"))


def _running_plane(environ: Mapping[str, str]) -> Path | None:
    """The folder of the plane that runs on this machine, if one does."""
    folder = _state_folder(environ)
    if not (folder / "pid").exists():
        return None
    from gangline.apiserver.store.folder_lock import lock_holder

    return folder if lock_holder(folder) is not None else None


def _live_run(options: ServerOptions, folder: Path, *, choosy: bool) -> Path | None:
    """The kubeconfig of a run that goes on: of the one with the job in question, else, unless choosy, of the newest."""
    from gangline.cli.connect.live_runs import find_run_kubeconfig, live_runs

    name = options.job_hint.rpartition("/")[2]
    found = find_run_kubeconfig(options.namespace or "default", name, folder) if name else None
    if found is None and not (name and choosy):
        found = next((run.kubeconfig for run in live_runs(folder)), None)
    return found


def _archive_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder in which a plane that was stopped, or runs that ended, left something to read."""
    folder = _state_folder(environ)
    there = (folder / "state" / "state.db").exists() or any((folder / "runs").glob("*_*_*_*"))
    return folder if there else None


def _state_folder(environ: Mapping[str, str]) -> Path:
    from gangline.local.paths import home_folder

    return home_folder(environ=environ)


def archive_flags(environ: Mapping[str, str] | None = None, home: Path | None = None) -> str | None:
    """What to add to a verb so that it reads what a run leaves: nothing where there is no server, else a flag.

    None, where a plane runs: it is what verbs speak to.
    """
    environ, home = os.environ if environ is None else environ, home or Path.home()
    if _running_plane(environ) is not None:
        return None
    served = environ.get("KUBECONFIG") or environ.get("KUBERNETES_SERVICE_HOST")
    return f" --context {LOCAL_CONTEXT}" if served or (home / ".kube" / "config").exists() else ""


def _plane_folder(found: Connection, home: Path) -> Path | None:
    """The folder of a plane whose own kubeconfig this is, while it runs."""
    file = Path(found.source.replace("~", str(home), 1) if found.source.startswith("~/") else found.source)
    return file.parent if file.name == "kubeconfig" and (file.parent / "pid").exists() else None


def _print_server(place: ServerTarget) -> None:
    found = place.connection
    name = "the plane of this machine" if place.plane_folder is not None else f"context {found.context}"
    print(f"server: {name} ({found.server})", file=sys.stderr)


def _with_impersonation(found: Connection, options: ServerOptions) -> Connection:
    if not options.as_user:
        if options.as_groups or options.as_uid:
            raise ConfigError("--as: is missing; --as-group and --as-uid need it")
        return found
    somebody = Impersonation(options.as_user, options.as_groups, options.as_uid or "")
    return msgspec.structs.replace(found, impersonate=somebody)


def run_blocking(
    server: ServerOptions, work: ServerWork, *, missing: int = ERROR, failed: int = ERROR, alive: bool = False
) -> int:
    """Do what needs a few requests, one after the other.

    Gives the exit code: `missing` is that of `NotFound`, `failed` that of every other error. `alive` is for what makes
    sense on a server that runs, and not on what one left.
    """
    try:
        place = find_server(server)
        if alive and place.archive is not None:
            raise ConfigError(f"no server is running; pass --kubeconfig, {START_SERVER_HINT}")
    except GanglineError as error:
        return print_error(error, failed=failed)
    return run_blocking_at(place, server, work, missing=missing, failed=failed)


def run_blocking_at(
    place: ServerTarget, server: ServerOptions, work: ServerWork, *, missing: int = ERROR, failed: int = ERROR
) -> int:
    """The same, of a server that was found."""
    from gangline.kube.transport.blocking import BlockingClock, BlockingTransport, run_without_loop, supports

    try:
        _configure_logging(server)
        if place.run_folder is not None:
            print(USING_LIVE_RUN, file=sys.stderr)
        if place.archive is not None or not supports(place.connection):
            return _run_on_loop(place, server, work)
        with BlockingTransport(place.connection, warn=print_warning) as transport:
            client = Client(
                transport,
                options=WriteOptions(FIELD_MANAGER),
                clock=BlockingClock(),
                timeout=_request_timeout(server),
            )
            return run_without_loop(work(client, place)) or 0
    except BrokenPipeError:
        return _ignore_closed_stdout()
    except GanglineError as error:
        if isinstance(error, Unreachable) and place.run_folder is not None and not place.run_folder.exists():
            error = Unreachable(RUN_ENDED)
        return print_error(error, missing=missing, failed=failed, server=place.connection)


def run_async(
    server: ServerOptions,
    work: ServerWork,
    *,
    missing: int = ERROR,
    as_it_was: bool = False,
    afterwards: ServerWork | None = None,
) -> int:
    """Do what waits, follows, or does several things at a time. Gives the exit code as `run_blocking` does.

    Of a run that ended, `as_it_was` shows the last moment, and not what became of it when it was stopped. If the plane
    asked is that of a run, it goes with the run; then `afterwards` is done with what the run left.
    """
    place: ServerTarget | None = None
    try:
        place = find_server(server)
        _configure_logging(server)
        if place.run_folder is not None:
            print(USING_LIVE_RUN, file=sys.stderr)
        try:
            return _run_on_loop(place, server, work, as_it_was=as_it_was)
        except Unreachable:
            if place.run_folder is None or place.run_folder.exists():
                raise
            print(RUN_ENDED, file=sys.stderr)
            return _run_on_loop(find_server(server), server, afterwards) if afterwards is not None else 0
    except BrokenPipeError:
        return _ignore_closed_stdout()
    except GanglineError as error:
        return print_error(error, missing=missing, server=place.connection if place else None)


def _run_on_loop(place: ServerTarget, server: ServerOptions, work: ServerWork, *, as_it_was: bool = False) -> int:
    import asyncio

    async def connected() -> int:
        async with _open_transport(place, as_it_was=as_it_was) as transport:
            client = Client(transport, options=WriteOptions(FIELD_MANAGER), timeout=_request_timeout(server))
            return await work(client, place) or 0

    with single_error():
        return asyncio.run(connected())


@contextmanager
def single_error() -> Iterator[None]:
    """Raise errors of ours that come as a group as one of them: a server that goes away is told once, not by everybody."""
    from gangline.base.tasks import unwrap_exception_group

    try:
        with unwrap_exception_group():
            yield
    except BaseExceptionGroup as errors:
        ours, others = errors.split(GanglineError)
        if ours is None or others is not None:
            raise
        raise _first_error(ours) from None


def _first_error(errors: BaseExceptionGroup[GanglineError]) -> GanglineError:
    error: GanglineError | BaseExceptionGroup[GanglineError] = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def _open_transport(place: ServerTarget, *, as_it_was: bool) -> AsyncIterator[Transport]:
    if place.archive is not None:
        from gangline.cli.connect.archived_runs import open_archive

        print(_archive_note(place.archive), file=sys.stderr)
        async with open_archive(place.archive, as_it_was=as_it_was) as reading:
            yield reading
        return
    from gangline.kube.transport.http import HttpTransport

    async with HttpTransport(place.connection, warn=print_warning) as transport:
        yield transport


def _archive_note(left: Path) -> str:
    """Who left what is read, and when."""
    from gangline.local.archive.server import stopped_at
    from gangline.local.home import PlaneHome

    at = stopped_at(PlaneHome(left))
    return USING_STOPPED_PLANE.format(at.astimezone().strftime("%Y-%m-%d %H:%M")) if at is not None else USING_ARCHIVE


def _request_timeout(server: ServerOptions) -> timedelta | None:
    return server.request_timeout or None


def _configure_logging(server: ServerOptions) -> None:
    if server.verbose > 1:
        from gangline.base.log import LogFormat, configure_logging

        configure_logging("DEBUG", LogFormat.TEXT)


def _ignore_closed_stdout() -> int:
    """Whoever read our output has enough of it (`| head`): that is no error, and flushing at exit must not be one."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
