"""What earlier runs left, through the same client as every server: it can be read, and not changed. Heavy to import."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Never

from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.kube.transport.api import Request, Response, Stream, Transport
from gangline.kube.transport.http import HttpTransport
from gangline.local.archive.server import reading_plane
from gangline.local.home import Home
from gangline.schema.crds.job_crds import crd

REFUSAL = "no server is running, and what was left can only be read; start a server: gangline up --detach"


@asynccontextmanager
async def remembered(folder: Path, *, as_it_was: bool = False) -> AsyncIterator[Transport]:
    """The way to all that planes and runs left in a folder, until the block ends; see `reading_plane`."""
    definitions = [established(kind) for kind in KINDS]
    async with (
        reading_plane(Home(folder), definitions, SystemClock(), as_it_was=as_it_was) as plane,
        HttpTransport(plane.connection) as transport,
    ):
        yield Reading(transport)


def established(kind: JobKind) -> JSON:
    """The definition of a kind as a server has it that serves it."""
    body = crd(kind)
    holding = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]
    versions = [each["name"] for each in body["spec"]["versions"]]
    status = {"conditions": holding, "acceptedNames": body["spec"]["names"], "storedVersions": versions}
    return {**body, "status": status}


class Reading:
    """A transport that only reads. Everything else raises `InputError`, with what to do instead."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if request.method != "GET":
            raise InputError(REFUSAL)
        return await self._transport.send(request, timeout=timeout)

    def stream(
        self, request: Request, *, idle: timedelta | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Never:
        raise InputError(REFUSAL)
