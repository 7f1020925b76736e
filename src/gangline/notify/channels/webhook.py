"""Delivers notifications by HTTP requests.

Files with secrets are read for every request, so that an exchanged Secret needs no restart. What is logged names the
route and the kind of error, never the URL, a header or the body.
"""

import os
import ssl
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from gangline import __version__
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.tasks import time_limit
from gangline.kube.config.tls import TLS, Pem, ssl_context
from gangline.notify.plan.retries import Attempt, RetryLater, http_result
from gangline.notify.plan.routes import NotificationRoute, url_problem
from gangline.notify.plan.signature import signature_headers, signing_keys
from gangline.notify.plan.templates import CONTENT_TYPE, request_body
from gangline.notify.plan.transitions import Transition

MAX_SECRET_BYTES = 64 * 1024


class Webhook:
    """The channel of a route with a URL. Use it as an async context manager."""

    def __init__(self, route: NotificationRoute, clock: Clock) -> None:
        self._route, self._clock = route, clock
        self._session: aiohttp.ClientSession | None = None
        # With the version of the file that its roots come from.
        self._context: tuple[int, ssl.SSLContext] | None = None

    async def __aenter__(self) -> Self:
        # No cookies, no proxies and no passwords from the environment: the settings say all.
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), headers={"user-agent": f"gangline/{__version__}"}, trust_env=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def deliver(self, transition: Transition) -> Attempt:
        """Send one request. Does not raise for anything that the receiver or the network does."""
        assert self._session is not None
        route = self._route
        try:
            url, headers = self._url(), self._headers()
            body = request_body(route, transition)
            timestamp = int(self._clock.now().timestamp())
            headers |= signature_headers(self._keys(), transition.id, timestamp, body)
            context = self._tls() if url.startswith("https:") else True
            async with (
                time_limit(timedelta(seconds=route.timeout_seconds), self._clock),
                self._session.post(url, data=body, headers=headers, ssl=context, allow_redirects=False) as answer,
            ):
                return http_result(answer.status, answer.headers.get("retry-after", ""))
        except TimeoutError:
            return RetryLater(f"no response within {route.timeout_seconds:g} s")
        except InputError as error:
            return RetryLater(str(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its text may contain the URL.
            return RetryLater(_error_name(error))

    def _url(self) -> str:
        route = self._route
        if not route.url_file:
            return route.url
        url = _secret(route.url_file, "urlFile")
        if problem := url_problem(url):
            raise InputError(f"urlFile {route.url_file}: {problem}")
        return url

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": CONTENT_TYPE}
        if file := self._route.authorization_file:
            headers["authorization"] = _secret(file, "authorizationFile")
        return headers

    def _keys(self) -> tuple[bytes, ...]:
        file = self._route.signing_key_file
        return signing_keys(_secret(file, "signingKeyFile"), f"signingKeyFile {file}") if file else ()

    def _tls(self) -> ssl.SSLContext:
        """Connections are kept per context, so there is a new one only when the file has changed."""
        version = Path(self._route.ca_file).stat().st_mtime_ns if self._route.ca_file else 0
        if self._context is None or self._context[0] != version:
            self._context = version, _tls_context(self._route)
        return self._context[1]


def _secret(file: str, field: str) -> str:
    """The text of a file without spaces around it. Raises `InputError`, which names the file alone."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_SECRET_BYTES + 1)
        text = data.decode().strip()
    except OSError as error:
        raise InputError(f"{field} {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{field} {file}: is not text") from None
    if not text or len(data) > MAX_SECRET_BYTES:
        raise InputError(f"{field} {file}: is {'too long' if text else 'empty'}")
    return text


def _error_name(error: BaseException) -> str:
    """What went wrong, without anything of the request."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the certificate of the receiver is not trusted"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host name of the receiver is not known"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"no connection: {os.strerror(error.os_error.errno)}"
    return f"no connection ({type(error).__name__})"


def _tls_context(route: NotificationRoute) -> ssl.SSLContext:
    """Raises `InputError` if the file with the roots cannot be used."""
    return ssl_context(TLS(ca=Pem(f"{route.name}: caFile", file=Path(route.ca_file)) if route.ca_file else None))


def check_files(route: NotificationRoute) -> None:
    """Raise `InputError` if a file of the route cannot be used, so that mistakes are reported at the start."""
    if route.url_file and (problem := url_problem(_secret(route.url_file, "urlFile"))):
        raise InputError(f"urlFile {route.url_file}: {problem}")
    if route.authorization_file:
        _secret(route.authorization_file, "authorizationFile")
    if route.signing_key_file:
        file = route.signing_key_file
        signing_keys(_secret(file, "signingKeyFile"), f"signingKeyFile {file}")
    if route.ca_file:
        _tls_context(route)
