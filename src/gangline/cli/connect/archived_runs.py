"""What earlier runs left, through the same client as every server: it can be read, and not changed. Heavy to import."""

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
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport
from gangline.kube.transport.http import HttpTransport
from gangline.local.archive.server import archive_plane
from gangline.local.home import PlaneHome
from gangline.schema.crds.job_crds import crd

READ_ONLY_ERROR = "no server is running, and what was left can only be read; start a server: gangline up --detach"


@asynccontextmanager
async def open_archive(folder: Path, *, as_it_was: bool = False) -> AsyncIterator[Transport]:
    """The way to all that planes and runs left in a folder, until the block ends; see `archive_plane`."""
    definitions = [established_crd(kind) for kind in TRAINING_KINDS]
    async with (
        archive_plane(PlaneHome(folder), definitions, SystemClock(), as_it_was=as_it_was) as plane,
        HttpTransport(plane.connection) as transport,
    ):
        yield ReadOnlyTransport(transport)


def established_crd(kind: JobKind) -> JSON:
    """The definition of a kind as a server has it that serves it."""
    body = crd(kind)
    holding = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
    versions = [each["name"] for each in body["spec"]["versions"]]
    status = {"conditions": holding, "acceptedNames": body["spec"]["names"], "storedVersions": versions}
    return {**body, "status": status}


class ReadOnlyTransport:
    """A transport that only reads. Everything else raises `InputError`, with what to do instead."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if request.method != "GET":
            raise InputError(READ_ONLY_ERROR)
        return await self._transport.send(request, timeout=timeout)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Never:
        raise InputError(READ_ONLY_ERROR)
