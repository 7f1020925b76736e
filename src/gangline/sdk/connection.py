"""The way to the server, for everything that asks it: opened when first used, closed with the client."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from gangline.api.kubeflow.kinds import JOB_SCHEME
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport
from gangline.sdk import place
from gangline.sdk.errors import translate_errors
from gangline.sdk.job import Job, job_kind_named
from gangline.sdk.local_plane import PlaneProcess

FIELD_MANAGER = "gangline-sdk"
REQUEST_TIMEOUT_SECONDS = 120
"""For how many seconds a server may be silent."""


class LazyConnection:
    """A server, a namespace and a kind of job. `AsyncTrainingClient` says what the arguments are."""

    def __init__(
        self,
        config_file: str | None = None,
        context: str | None = None,
        client_configuration: Any = None,
        namespace: str | None = None,
        job_kind: str = "PyTorchJob",
        *,
        local: bool | None = None,
    ) -> None:
        self._default_kind = job_kind_named(job_kind)
        self._connection_arguments = (config_file, context, client_configuration, local)
        self._namespace = namespace
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._open_lock = asyncio.Lock()
        self._clock = SystemClock()

    async def __aenter__(self) -> Self:
        await self._open_client()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; end the plane, if it was started by this client. Idempotent."""
        self._client = None
        await self._stack.aclose()

    async def _open_client(self) -> Client:
        async with self._open_lock:
            if self._client is None:
                connection = await asyncio.to_thread(self._resolve_connection)
                self._namespace = self._namespace or connection.namespace
                transport = await self._stack.enter_async_context(HttpTransport(connection, agent=FIELD_MANAGER))
                self._client = Client(
                    transport, scheme=JOB_SCHEME, options=WriteOptions(FIELD_MANAGER), clock=self._clock
                )
            return self._client

    @property
    def namespace(self) -> str:
        """Where jobs are, unless a call says otherwise. Can be set."""
        if not self._namespace:
            found = self._configured_connection()
            return found.namespace if found is not None else "default"
        return self._namespace

    @namespace.setter
    def namespace(self, name: str) -> None:
        self._namespace = name

    @property
    def job_kind(self) -> str:
        """The kind that calls mean when they name none. Can be set; raises `ValueError`."""
        return self._default_kind.kind

    @job_kind.setter
    def job_kind(self, kind: str) -> None:
        self._default_kind = job_kind_named(kind)

    def _configured_connection(self) -> Connection | None:
        """The server that there is; None where one is to be started."""
        config_file, context, configuration, local = self._connection_arguments
        if configuration is not None:
            return place.connection_from_configuration(configuration)
        return None if local else place.resolve_server(config_file, context, os.environ, Path.home())

    def _resolve_connection(self) -> Connection:
        local, found = self._connection_arguments[-1], self._configured_connection()
        if found is not None:
            return found
        if local is False:
            raise ValueError("no cluster is configured; write config_file, or set KUBECONFIG")
        if local is None:
            sys.stderr.write("gangline: no cluster is configured; jobs run on this machine while this program does\n")
        plane = PlaneProcess.start()
        self._stack.callback(plane.close)
        return load_connection(kubeconfig=str(plane.kubeconfig), environ=os.environ, home=Path.home())

    # For those who ask

    @asynccontextmanager
    async def _client_call(self, timeout: float) -> AsyncIterator[Client]:
        async with translate_errors("the server", timeout):
            yield await self._open_client()

    def _resolved_kind(self, job_kind: str | None) -> JobKind:
        return job_kind_named(job_kind) if job_kind is not None else self._default_kind

    def _resolved_namespace(self, namespace: str | None) -> str:
        return namespace or self._namespace or "default"

    def _job_key(self, name: str, namespace: str | None) -> Key:
        return Key(self._resolved_namespace(namespace), name)

    async def get_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Job:
        async with self._client_call(timeout) as client:
            return await self._read_job(client, name, namespace, job_kind)

    async def _read_job(self, client: Client, name: str, namespace: str | None, job_kind: str | None) -> Job:
        return Job(
            await client.get(
                client.unstructured(self._resolved_kind(job_kind).resource), self._job_key(name, namespace)
            )
        )


def type_meta(facts: JobKind) -> JSON:
    """Items of a list have neither."""
    return {"apiVersion": facts.model.API_VERSION, "kind": facts.kind}
