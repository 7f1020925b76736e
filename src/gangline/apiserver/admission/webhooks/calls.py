"""Sends AdmissionReviews to webhooks."""

import base64
import errno
import os
import ssl
import uuid
from datetime import timedelta
from functools import lru_cache
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.admission.webhooks.reviews import ReviewAnswer, ReviewError, parse_answer, review_version
from gangline.apiserver.registry.service_address import ServiceUnavailable, service_address
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import time_limit
from gangline.schema.go_text import quoted_text

MAX_ANSWER_BYTES = 16 * 2**20
"""A longer answer is refused: no object is as large."""


class WebhookCallError(GanglineError):
    """A webhook could not be asked, or its answer is invalid. `failurePolicy` says what follows."""

    def __init__(self, webhook: str, why: str) -> None:
        super().__init__(f"failed calling webhook {quoted_text(webhook)}: {why}")


class WebhookCaller:
    """Calls webhooks by HTTPS. Connections are kept; `close` ends them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, webhook: JSON, request: JSON, *, mutating: bool) -> ReviewAnswer:
        """Ask a webhook about a request. Raises `WebhookCallError`."""
        name = webhook["name"]
        try:
            version = review_version(webhook["admissionReviewVersions"])
            uid = str(uuid.uuid4())
            review = {"kind": "AdmissionReview", "apiVersion": version, "request": {"uid": uid, **request}}
            body = await self._post(webhook, msgspec.json.encode(review))
            return parse_answer(body, version, uid, mutating=mutating)
        except ReviewError as error:
            raise WebhookCallError(name, f"received invalid webhook response: {error}") from error

    async def _post(self, webhook: JSON, body: bytes) -> bytes:
        name, config = webhook["name"], webhook["clientConfig"]
        seconds: int = webhook.get("timeoutSeconds", 10)
        target = webhook_url(config)
        address = f"{target}?timeout={seconds}s"
        what = f"failed to call webhook: Post {quoted_text(address)}"
        try:
            url, headers, server_name = self._destination(config, target)
            async with (
                time_limit(timedelta(seconds=seconds), self._clock),
                self._open_session().post(
                    f"{url}?timeout={seconds}s",
                    data=body,
                    headers={"Content-Type": "application/json", "Accept": "application/json", **headers},
                    ssl=_client_context(config.get("caBundle") or ""),
                    server_hostname=server_name,
                    allow_redirects=False,
                ) as response,
            ):
                answer = await _read_answer(response)
                if response.status != 200:
                    raise WebhookCallError(name, f"failed to call webhook: {_status_text(response.status, answer)}")
                return answer
        except TimeoutError:
            raise WebhookCallError(name, f"{what}: context deadline exceeded") from None
        except ServiceUnavailable as error:
            raise WebhookCallError(name, f"{what}: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WebhookCallError(name, f"{what}: {_error_text(error)}") from error

    def _destination(self, config: JSON, target: str) -> tuple[str, dict[str, str], str | None]:
        """The URL to connect to, headers, and the name that the certificate must have."""
        service = config.get("service")
        if service is None:
            return target, {}, None
        host, port = service_address(self._store, service["namespace"], service["name"], service["port"])
        parts = urlsplit(target)
        shown = f"[{host}]" if ":" in host else host
        return f"https://{shown}:{port}{parts.path}", {"Host": parts.netloc}, parts.hostname

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No proxies and no passwords from the environment: the configuration says all.
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), headers={"User-Agent": "kube-apiserver-admission"}, trust_env=False
            )
        return self._session


async def _read_answer(response: aiohttp.ClientResponse) -> bytes:
    """The body of a response. Raises ValueError if it is too long."""
    answer = bytearray()
    async for chunk in response.content.iter_any():
        answer += chunk
        if len(answer) > MAX_ANSWER_BYTES:
            raise ValueError(f"the response has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(answer)


def webhook_url(config: JSON) -> str:
    """The URL of a webhook; that of a Service has its name in the cluster."""
    service = config.get("service")
    if service is None:
        return str(config["url"])
    path = (service.get("path") or "").lstrip("/")
    return f"https://{service['name']}.{service['namespace']}.svc:{service['port']}/{path}"


@lru_cache(64)
def _client_context(bundle: str) -> ssl.SSLContext:
    """TLS that trusts the CAs of a bundle (PEM in base64), or those of the machine. Raises ValueError."""
    if not bundle:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=base64.b64decode(bundle).decode("ascii"))
    return context


def _status_text(code: int, answer: bytes) -> str:
    match code:
        case 404:
            return "the server could not find the requested resource"
        case 401:
            return "the server has asked for the client to provide credentials"
        case 403:
            return "unknown"
    text = answer[:2048].decode(errors="replace").strip()
    return f"an error on the server ({quoted_text(text or 'unknown')}) has prevented the request from succeeding"


def _error_text(error: Exception) -> str:
    """The cause of a failed connection as Go would name it, where it is a usual one."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        where = f"dial tcp {error.host}:{error.port}"
        if error.os_error.errno == errno.ECONNREFUSED:
            return f"{where}: connect: connection refused"
        text = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
        return f"{where}: {text}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__
