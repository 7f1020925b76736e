"""The connection of a training client: which server, opened by the first call, closed with the client."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from gangline.api.kubeflow.kinds import JOB_SCHEME
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import Key
from gangline.apiserver.store.folder_lock import lock_holder
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import SERVICE_ACCOUNT, Connection, load_connection
from gangline.kube.config.credentials import Anonymous, BasicAuth, Credentials, StaticToken
from gangline.kube.config.tls import TLS, ClientCertificate, Pem
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport
from gangline.local.paths import home_folder
from gangline.sdk.errors import translate_errors
from gangline.sdk.job import Job, job_kind_named
from gangline.sdk.local_plane import PlaneProcess

FIELD_MANAGER = "gangline-sdk"
REQUEST_TIMEOUT_SECONDS = 120
"""How long a call may take by default."""


class LazyConnection:
    """A server, a namespace and a kind of job. The arguments are described at `AsyncTrainingClient`."""

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
        """Close the connection, and end the local plane if this client started one. Idempotent."""
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
        """The namespace of calls that name none. Can be set."""
        if not self._namespace:
            connection = self._configured_connection()
            return connection.namespace if connection is not None else "default"
        return self._namespace

    @namespace.setter
    def namespace(self, name: str) -> None:
        self._namespace = name

    @property
    def job_kind(self) -> str:
        """The kind of job of calls that name none. Can be set; raises `ValueError`."""
        return self._default_kind.kind

    @job_kind.setter
    def job_kind(self, kind: str) -> None:
        self._default_kind = job_kind_named(kind)

    def _configured_connection(self) -> Connection | None:
        """The configured server; None if a local plane is to be started."""
        config_file, context, configuration, local = self._connection_arguments
        if configuration is not None:
            return connection_from_configuration(configuration)
        return None if local else resolve_server(config_file, context, os.environ, Path.home())

    def _resolve_connection(self) -> Connection:
        local, connection = self._connection_arguments[-1], self._configured_connection()
        if connection is not None:
            return connection
        if local is False:
            raise ValueError("no cluster is configured; write config_file, or set KUBECONFIG")
        if local is None:
            sys.stderr.write("gangline: no cluster is configured; jobs run on this machine while this program does\n")
        plane = PlaneProcess.start()
        self._stack.callback(plane.close)
        return load_connection(kubeconfig=str(plane.kubeconfig), environ=os.environ, home=Path.home())

    # For the calls of subclasses

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
        """The job with this name."""
        async with self._client_call(timeout) as client:
            return await self._read_job(client, name, namespace, job_kind)

    async def _read_job(self, client: Client, name: str, namespace: str | None, job_kind: str | None) -> Job:
        return Job(
            await client.get(
                client.unstructured(self._resolved_kind(job_kind).resource), self._job_key(name, namespace)
            )
        )


def resolve_server(
    config_file: str | None, context: str | None, environ: Mapping[str, str], home: Path
) -> Connection | None:
    """The configured server, or the local plane that runs on this machine; None without both. Raises `ConfigError`."""
    if not (config_file or context or environ.get("KUBECONFIG")):
        plane = home_folder(environ=environ)
        if (plane / "pid").exists() and lock_holder(plane) is not None:
            return load_connection(kubeconfig=str(plane / "kubeconfig"), environ=environ, home=home)
        in_pod = "KUBERNETES_SERVICE_HOST" in environ and SERVICE_ACCOUNT.exists()
        if not in_pod and not (home / ".kube" / "config").exists():
            return None
    return load_connection(kubeconfig=config_file, context=context, environ=environ, home=home)


def connection_from_configuration(configuration: Any) -> Connection:
    """The connection of a `kubernetes.client.Configuration`. Raises `ValueError`."""
    host = getattr(configuration, "host", None)
    if not isinstance(host, str) or not host:
        raise ValueError("client_configuration: has no host; write a kubernetes.client.Configuration")
    return Connection(
        server=host.rstrip("/"),
        source="client_configuration",
        tls=_tls(configuration) if host.startswith("https:") else None,
        proxy=getattr(configuration, "proxy", None),
        credentials=_credentials(configuration),
    )


def _tls(configuration: Any) -> TLS:
    pair = getattr(configuration, "cert_file", None), getattr(configuration, "key_file", None)
    client = None
    if all(pair):
        certificate, key = (_pem(name, file) for name, file in zip(("cert_file", "key_file"), pair, strict=True))
        client = ClientCertificate(certificate, key)
    ca = getattr(configuration, "ssl_ca_cert", None)
    return TLS(
        ca=_pem("ssl_ca_cert", ca) if ca else None,
        client=client,
        server_name=getattr(configuration, "tls_server_name", None) or None,
        insecure=getattr(configuration, "verify_ssl", True) is False,
    )


def _pem(name: str, file: Any) -> Pem:
    return Pem(f"client_configuration: {name}", file=Path(os.fspath(file)))


def _credentials(configuration: Any) -> Credentials:
    keys = getattr(configuration, "api_key", None) or {}
    prefixes = getattr(configuration, "api_key_prefix", None) or {}
    token = keys.get("authorization") or keys.get("BearerToken")
    if token:
        # Either `Bearer x` in one text, or `Bearer` as the prefix.
        bare_token = token.removeprefix(f"{prefixes.get('authorization', 'Bearer')} ").removeprefix("Bearer ")
        return StaticToken(bare_token, "client_configuration: api_key")
    user, password = getattr(configuration, "username", None), getattr(configuration, "password", None)
    return BasicAuth(user, password) if user and password else Anonymous()
