"""Which server a command speaks to, and how its errors are told.

Order: what the flags say, `KUBECONFIG`, a plane that runs on this machine, `~/.kube/config`, the pod's own service
account. Commands that ask and end use a blocking transport, which starts fast; those that wait use the other one. Nothing here imports click, which
takes as long as everything else together: `gangline.cli.quick` does without.
"""

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.base.errors import GanglineError
from gangline.kube.client import Client
from gangline.kube.config import Connection, Impersonation, load
from gangline.kube.errors import ApiError, ConfigError, Invalid, NotFound
from gangline.kube.options import WriteOptions

MANAGER = "gangline-cli"
"""Whose name is on the fields that people write."""
ERROR = 1
NOT_FOUND = 102
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


class Place(NamedTuple):
    """The server, and where on it to look."""

    connection: Connection
    # Empty: all of them.
    namespace: str
    # The folder of the plane, where it is one of this machine.
    local: Path | None = None
    # The namespace on the command line, if there is one.
    asked: str = ""

    @property
    def home(self) -> str:
        """The namespace for one object."""
        return self.namespace or self.connection.namespace


Work = Callable[[Client, Place], Coroutine[Any, Any, int | None]]


def find(options: ServerOptions, environ: Mapping[str, str] | None = None, home: Path | None = None) -> Place:
    """The server that the options, the environment and this machine lead to. Raises `ConfigError`."""
    environ, home = os.environ if environ is None else environ, home or Path.home()
    local = None if _asked(options, environ) else _running(environ)
    flags = {name: getattr(options, name) for name in ("kubeconfig", "context", "cluster", "user")}
    if local is not None:
        flags["kubeconfig"] = str(local / "kubeconfig")
    try:
        found = load(**flags, namespace=options.namespace, environ=environ, home=home)
    except ConfigError as error:
        if "not a pod" in str(error):
            raise ConfigError(f"{error}, {HINT}") from None
        raise
    found = _impersonating(found, options)
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
    from gangline.cli.folders import home_folder

    folder = home_folder(Path(environ["GANGLINE_HOME"]) if environ.get("GANGLINE_HOME") else None)
    if not (folder / "pid").exists():
        return None
    from gangline.local.store.folder import holder

    return folder if holder(folder) is not None else None


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


def ask(server: ServerOptions, work: Work, *, missing: int = ERROR, failed: int = ERROR) -> int:
    """Do what needs a few requests, one after the other.

    Gives the exit code: `missing` is that of `NotFound`, `failed` that of every other error.
    """
    from gangline.kube.blocking import BlockingClock, BlockingTransport, answered, carries

    try:
        place = find(server)
        _logging(server)
        if not carries(place.connection):
            return _run(place, server, work)
        with BlockingTransport(place.connection, warn=warn) as transport:
            client = Client(
                transport, options=WriteOptions(MANAGER), clock=BlockingClock(), timeout=_patience(server)
            )
            return answered(work(client, place)) or 0
    except BrokenPipeError:
        return _nobody_reads()
    except GanglineError as error:
        return told(error, missing=missing, failed=failed)


def converse(server: ServerOptions, work: Work, *, missing: int = ERROR) -> int:
    """Do what waits, follows, or does several things at a time. Gives the exit code as `ask` does."""
    from gangline.base.tasks import unwrapped

    try:
        place = find(server)
        _logging(server)
        with unwrapped():
            return _run(place, server, work)
    except BrokenPipeError:
        return _nobody_reads()
    except GanglineError as error:
        return told(error, missing=missing)


def _run(place: Place, server: ServerOptions, work: Work) -> int:
    import asyncio

    async def connected() -> int:
        from gangline.kube.http import HttpTransport

        async with HttpTransport(place.connection, warn=warn) as transport:
            client = Client(transport, options=WriteOptions(MANAGER), timeout=_patience(server))
            return await work(client, place) or 0

    return asyncio.run(connected())


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


def warn(text: str) -> None:
    """What a server wants a person to know."""
    print(f"Warning: {text}", file=sys.stderr)


def told(error: GanglineError, *, missing: int = ERROR, failed: int = ERROR) -> int:
    """One line on standard error, as kubectl words it, and the exit code."""
    print(sentence(error), file=sys.stderr)
    return missing if isinstance(error, NotFound) else failed


def sentence(error: GanglineError) -> str:
    """An error in one line."""
    if isinstance(error, Invalid) and error.status.details.kind:
        return f"The {error}" if not str(error).startswith("The ") else str(error)
    if isinstance(error, ApiError):
        return f"Error from server ({error.reason}): {error}" if error.reason else f"error: {error}"
    return f"error: {error}"
