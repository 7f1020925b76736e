"""Passes requests on to the servers of other groups, with the user in headers that they trust our certificate for."""

import base64
import ssl
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import quote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from gangline.apiserver.aggregation.api_services import RemoteGroup, RemoteGroups
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.service_address import ServiceUnavailable, service_address
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import UserInfo

ClientCertificate = Callable[[], tuple[str, str] | None]
"""The files of the certificate and the key with which we speak to other servers; None if there are none."""
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
_DROPPED = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection, and those that name a user to us."""


class AggregationProxy:
    """A client of the servers of other groups. Connections are kept; `close` ends them."""

    def __init__(self, store: Store, certificate: ClientCertificate) -> None:
        self._store, self._certificate = store, certificate
        self._groups = RemoteGroups(store)
        self._session: aiohttp.ClientSession | None = None

    def find(self, path: str) -> RemoteGroup | None:
        """The server of a path below /apis; None if it is another one's."""
        parts = path.split("/", 4)
        return self._groups.find(parts[2], parts[3]) if len(parts) > 3 and parts[1] == "apis" else None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def serve(self, http: web.BaseRequest, user: UserInfo, remote: RemoteGroup) -> web.StreamResponse:
        """Pass a request on, and its response back, piece by piece. Raises `StatusError` (503)."""
        headers = CIMultiDict(
            (name, value)
            for name, value in http.headers.items()
            if name.lower() not in _DROPPED and not name.lower().startswith("x-remote-")
        )
        headers.extend(user_headers(user))
        try:
            async with self._request(remote, http.method, http.raw_path, headers, await http.read()) as answer:
                response = web.StreamResponse(status=answer.status, reason=answer.reason)
                for name, value in answer.headers.items():
                    if name.lower() not in _DROPPED:
                        response.headers.add(name, value)
                await response.prepare(http)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response
        except (ServiceUnavailable, aiohttp.ClientError, OSError, ValueError) as error:
            if http.transport is None or http.transport.is_closing():
                raise
            raise StatusError(503, f"error trying to reach service: {error}", reason="ServiceUnavailable") from error

    async def get(self, remote: RemoteGroup, path: str, user: UserInfo, seconds: float) -> tuple[int, bytes]:
        """The status and body of a GET by us. Raises `ServiceUnavailable`, `OSError`, `ValueError` or `ClientError`."""
        headers = CIMultiDict({"Accept": "application/json"})
        headers.extend(user_headers(user))
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with self._request(remote, "GET", path, headers, b"", timeout) as answer:
            return answer.status, await answer.read()

    def _request(
        self,
        remote: RemoteGroup,
        method: str,
        path: str,
        headers: "CIMultiDict[str]",
        body: bytes,
        timeout: aiohttp.ClientTimeout = NO_TIMEOUT,
    ) -> "aiohttp.client._RequestContextManager":
        host, port = service_address(self._store, remote.namespace, remote.service, remote.port)
        shown = f"[{host}]" if ":" in host else host
        headers["Host"] = remote.host
        return self._open_session().request(
            method,
            URL(f"https://{shown}:{port}{path}", encoded=True),
            headers=headers,
            data=body or None,
            ssl=_client_context(remote.ca_bundle, remote.verifies, self._certificate()),
            server_hostname=remote.host,
            allow_redirects=False,
            timeout=timeout,
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False
            )
        return self._session


def user_headers(user: UserInfo) -> list[tuple[str, str]]:
    """The headers that name a user."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += [("X-Remote-Group", group) for group in user.groups]
    return headers + [
        (f"X-Remote-Extra-{quote(key.lower(), safe='')}", value)
        for key, values in user.extra.items()
        for value in values
    ]


@lru_cache(16)
def _client_context(bundle: str, verifies: bool, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    """TLS that trusts the CAs of a bundle, or those of the machine, or anybody."""
    context = ssl.create_default_context() if verifies and not bundle else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verifies:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif bundle:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii"))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context
