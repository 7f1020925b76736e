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
from gangline.cli.errors import ERROR, told, warn
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, Impersonation, load
from gangline.kube.errors import ConfigError, Unreachable
from gangline.kube.options import WriteOptions
from gangline.kube.transport.api import Transport

MANAGER = "gangline-cli"
"""Whose name is on the fields that people write."""
HERE = "gangline"
"""The context of this machine, as the kubeconfig of its plane calls it. Always there, unless a kubeconfig has its own."""
LEFT = "no server is running; reading what earlier runs left"
LEFT_BY_PLANE = "no server is running; reading what earlier runs left, and the plane that stopped at {}"
GOING = "no server is running; asking the run that goes on"
ENDED = "the run has ended"
HINT = "or start a server on this machine: gangline up --detach"


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
    about: str = ""


class Place(NamedTuple):
    """The server, and where on it to look."""

    connection: Connection
    # Empty: all of them.
    namespace: str
    # The folder of the plane, where it is one of this machine.
    local: Path | None = None
    # The namespace on the command line, if there is one.
    asked: str = ""
    # The folder in which planes and runs left what can be read, where there is no server.
    left: Path | None = None
    # The folder of a `gangline run` that goes on, if its plane is meant.
    run: Path | None = None

    @property
    def home(self) -> str:
        """The namespace for one object."""
        return self.namespace or self.connection.namespace


class NoServer(ConfigError):
    """Nobody named a server, and none is found."""


Work = Callable[[Client, Place], Coroutine[Any, Any, int | None]]


def find(options: ServerOptions, environ: Mapping[str, str] | None = None, home: Path | None = None) -> Place:
    """The server that the options, the environment and this machine lead to. Raises `ConfigError`."""
    environ, home = os.environ if environ is None else environ, home or Path.home()
    try:
        return _served(options, environ, home)
    except ConfigError as error:
        here = options.context == HERE and not (options.kubeconfig or options.cluster or options.user)
        plane = _running(environ) if here else None
        if plane is not None:
            return _served(options._replace(kubeconfig=str(plane / "kubeconfig")), environ, home)
        nowhere = "not a pod" in str(error)
        left = _left(environ) if here or nowhere else None
        run = _going(options, _folder(environ), choosy=left is not None) if here or nowhere else None
        if run is not None:
            there = options._replace(kubeconfig=str(run), context=None)
            return _served(there, environ, home)._replace(run=run.parent)
        if left is not None:
            found = Connection(server="", namespace=options.namespace or "default", context=HERE)
            namespace = "" if options.all_namespaces else found.namespace
            return Place(found, namespace, asked=options.namespace or "", left=left)
        if nowhere:
            raise NoServer(f"{error}, {HINT}") from None
        raise


def _served(options: ServerOptions, environ: Mapping[str, str], home: Path) -> Place:
    """The server that is to answer. Raises `ConfigError` when there is none."""
    local = None if _asked(options, environ) else _running(environ)
    flags = {name: getattr(options, name) for name in ("kubeconfig", "context", "cluster", "user")}
    if local is not None:
        flags["kubeconfig"] = str(local / "kubeconfig")
    found = _impersonating(load(**flags, namespace=options.namespace, environ=environ, home=home), options)
    other = local is not None and (home / ".kube" / "config").exists()
    place = Place(
        found,
        "" if options.all_namespaces else found.namespace,
        local or _plane_of(found, home),
        options.namespace or "",
    )
    if options.verbose or other:
        _tell(place)
    return place


def _asked(options: ServerOptions, environ: Mapping[str, str]) -> bool:
    named = options.kubeconfig or options.context or options.cluster or options.user
    return bool(named or environ.get("KUBECONFIG"))


def _running(environ: Mapping[str, str]) -> Path | None:
    """The folder of the plane that runs on this machine, if one does."""
    folder = _folder(environ)
    if not (folder / "pid").exists():
        return None
    from gangline.apiserver.store.folder_lock import holder

    return folder if holder(folder) is not None else None


def _going(options: ServerOptions, folder: Path, *, choosy: bool) -> Path | None:
    """The kubeconfig of a run that goes on: of the one with the job in question, else, unless choosy, of the newest."""
    from gangline.cli.connect.live_runs import run_of, runs

    name = options.about.rpartition("/")[2]
    found = run_of(options.namespace or "default", name, folder) if name else None
    if found is None and not (name and choosy):
        found = next((run.kubeconfig for run in runs(folder)), None)
    return found


def _left(environ: Mapping[str, str]) -> Path | None:
    """The folder in which a plane that was stopped, or runs that ended, left something to read."""
    folder = _folder(environ)
    there = (folder / "state" / "state.db").exists() or any((folder / "runs").glob("*_*_*_*"))
    return folder if there else None


def _folder(environ: Mapping[str, str]) -> Path:
    from gangline.local.paths import home_folder

    return home_folder(environ=environ)


def way_to_left(environ: Mapping[str, str] | None = None, home: Path | None = None) -> str | None:
    """What to add to a verb so that it reads what a run leaves: nothing where there is no server, else a flag.

    None, where a plane runs: it is what verbs speak to.
    """
    environ, home = os.environ if environ is None else environ, home or Path.home()
    if _running(environ) is not None:
        return None
    served = environ.get("KUBECONFIG") or environ.get("KUBERNETES_SERVICE_HOST")
    return f" --context {HERE}" if served or (home / ".kube" / "config").exists() else ""


def _plane_of(found: Connection, home: Path) -> Path | None:
    """The folder of a plane whose own kubeconfig this is, while it runs."""
    file = Path(found.source.replace("~", str(home), 1) if found.source.startswith("~/") else found.source)
    return file.parent if file.name == "kubeconfig" and (file.parent / "pid").exists() else None


def _tell(place: Place) -> None:
    found = place.connection
    name = "the plane of this machine" if place.local is not None else f"context {found.context}"
    print(f"server: {name} ({found.server})", file=sys.stderr)


def _impersonating(found: Connection, options: ServerOptions) -> Connection:
    if not options.as_user:
        if options.as_groups or options.as_uid:
            raise ConfigError("--as: is missing; --as-group and --as-uid need it")
        return found
    somebody = Impersonation(options.as_user, options.as_groups, options.as_uid or "")
    return msgspec.structs.replace(found, impersonate=somebody)


def ask(
    server: ServerOptions, work: Work, *, missing: int = ERROR, failed: int = ERROR, alive: bool = False
) -> int:
    """Do what needs a few requests, one after the other.

    Gives the exit code: `missing` is that of `NotFound`, `failed` that of every other error. `alive` is for what makes
    sense on a server that runs, and not on what one left.
    """
    try:
        place = find(server)
        if alive and place.left is not None:
            raise ConfigError(f"no server is running; pass --kubeconfig, {HINT}")
    except GanglineError as error:
        return told(error, failed=failed)
    return ask_at(place, server, work, missing=missing, failed=failed)


def ask_at(
    place: Place, server: ServerOptions, work: Work, *, missing: int = ERROR, failed: int = ERROR
) -> int:
    """The same, of a server that was found."""
    from gangline.kube.transport.blocking import BlockingClock, BlockingTransport, answered, carries

    try:
        _logging(server)
        if place.run is not None:
            print(GOING, file=sys.stderr)
        if place.left is not None or not carries(place.connection):
            return _run(place, server, work)
        with BlockingTransport(place.connection, warn=warn) as transport:
            client = Client(
                transport, options=WriteOptions(MANAGER), clock=BlockingClock(), timeout=_patience(server)
            )
            return answered(work(client, place)) or 0
    except BrokenPipeError:
        return _nobody_reads()
    except GanglineError as error:
        if isinstance(error, Unreachable) and place.run is not None and not place.run.exists():
            error = Unreachable(ENDED)
        return told(error, missing=missing, failed=failed, server=place.connection)


def converse(
    server: ServerOptions,
    work: Work,
    *,
    missing: int = ERROR,
    as_it_was: bool = False,
    afterwards: Work | None = None,
) -> int:
    """Do what waits, follows, or does several things at a time. Gives the exit code as `ask` does.

    Of a run that ended, `as_it_was` shows the last moment, and not what became of it when it was stopped. If the plane
    asked is that of a run, it goes with the run; then `afterwards` is done with what the run left.
    """
    place: Place | None = None
    try:
        place = find(server)
        _logging(server)
        if place.run is not None:
            print(GOING, file=sys.stderr)
        try:
            return _run(place, server, work, as_it_was=as_it_was)
        except Unreachable:
            if place.run is None or place.run.exists():
                raise
            print(ENDED, file=sys.stderr)
            return _run(find(server), server, afterwards) if afterwards is not None else 0
    except BrokenPipeError:
        return _nobody_reads()
    except GanglineError as error:
        return told(error, missing=missing, server=place.connection if place else None)


def _run(place: Place, server: ServerOptions, work: Work, *, as_it_was: bool = False) -> int:
    import asyncio

    async def connected() -> int:
        async with _transport(place, as_it_was=as_it_was) as transport:
            client = Client(transport, options=WriteOptions(MANAGER), timeout=_patience(server))
            return await work(client, place) or 0

    with one_error():
        return asyncio.run(connected())


@contextmanager
def one_error() -> Iterator[None]:
    """Raise errors of ours that come as a group as one of them: a server that goes away is told once, not by everybody."""
    from gangline.base.tasks import unwrapped

    try:
        with unwrapped():
            yield
    except BaseExceptionGroup as errors:
        ours, others = errors.split(GanglineError)
        if ours is None or others is not None:
            raise
        raise _first(ours) from None


def _first(errors: BaseExceptionGroup[GanglineError]) -> GanglineError:
    error: GanglineError | BaseExceptionGroup[GanglineError] = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def _transport(place: Place, *, as_it_was: bool) -> AsyncIterator[Transport]:
    if place.left is not None:
        from gangline.cli.connect.archived_runs import remembered

        print(_whose(place.left), file=sys.stderr)
        async with remembered(place.left, as_it_was=as_it_was) as reading:
            yield reading
        return
    from gangline.kube.transport.http import HttpTransport

    async with HttpTransport(place.connection, warn=warn) as transport:
        yield transport


def _whose(left: Path) -> str:
    """Who left what is read, and when."""
    from gangline.local.archive.server import stopped_at
    from gangline.local.home import Home

    at = stopped_at(Home(left))
    return LEFT_BY_PLANE.format(at.astimezone().strftime("%Y-%m-%d %H:%M")) if at is not None else LEFT


def _patience(server: ServerOptions) -> timedelta | None:
    return server.request_timeout or None


def _logging(server: ServerOptions) -> None:
    if server.verbose > 1:
        from gangline.base.log import LogFormat, configure

        configure("DEBUG", LogFormat.TEXT)


def _nobody_reads() -> int:
    """Whoever read our output has enough of it (`| head`): that is no error, and flushing at exit must not be one."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
