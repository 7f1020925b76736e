"""The archive of ended runs and stopped planes, read through the same client as a server. Slow to import."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Never

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.past import PastView
from gangline.cli.connect.server import START_SERVER_HINT
from gangline.history.objectstore import open_history
from gangline.history.reader import HistoryReader
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport
from gangline.kube.transport.http import HttpTransport
from gangline.local.archive.past import past_plane
from gangline.local.archive.server import archive_plane
from gangline.local.home import PlaneHome
from gangline.schema.crds.job_crds import crd

READ_ONLY_ERROR = f"no server is running, and what ended runs left cannot be changed; {START_SERVER_HINT}"
READ_ONLY_PAST = "the past cannot be changed; leave out `at TIME` to change what is there now"


@asynccontextmanager
async def open_archive(folder: Path, *, as_it_was: bool = False) -> AsyncIterator[Transport]:
    """A transport to the archive in a state folder, until the block ends. For `as_it_was` see `archive_plane`."""
    async with (
        archive_plane(PlaneHome(folder), known_definitions(), SystemClock(), as_it_was=as_it_was) as plane,
        HttpTransport(plane.connection) as transport,
    ):
        yield ReadOnlyTransport(transport)


@asynccontextmanager
async def open_past(view: PastView, folder: Path) -> AsyncIterator[Transport]:
    """A transport to the objects of a recorded moment, until the block ends. `folder` is the state folder."""
    reader = HistoryReader(open_history(view.history), view.server)
    async with (
        past_plane(reader, view.moment, known_definitions(), folder) as plane,
        HttpTransport(plane.inner_connection) as transport,
    ):
        yield ReadOnlyTransport(transport, READ_ONLY_PAST)


def known_definitions() -> list[JSON]:
    """The CRDs of the job kinds that we know."""
    return [established_crd(kind) for kind in TRAINING_KINDS]


def established_crd(kind: JobKind) -> JSON:
    """The CRD of a kind with the status of a CRD that a server serves."""
    body = crd(kind)
    conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
    versions = [version["name"] for version in body["spec"]["versions"]]
    status = {"conditions": conditions, "acceptedNames": body["spec"]["names"], "storedVersions": versions}
    return {**body, "status": status}


class ReadOnlyTransport:
    """A transport that passes GET requests on. Every other request raises `InputError`, with what to do instead."""

    def __init__(self, transport: Transport, error: str = READ_ONLY_ERROR) -> None:
        self._transport, self._error = transport, error

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if request.method != "GET":
            raise InputError(self._error)
        return await self._transport.send(request, timeout=timeout)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Never:
        raise InputError(self._error)
