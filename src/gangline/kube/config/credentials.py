"""Credentials: the authentication headers of requests.

A repr shows the kind of credential and its source, never the credential. Exec plugins are in
`gangline.kube.config.exec_plugin`.
"""

import base64
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from gangline.base.clock import Clock
from gangline.kube.config.files import read_config_file
from gangline.kube.config.tls import ClientCertificate
from gangline.kube.errors import ConfigError

TOKEN_REREAD_INTERVAL = timedelta(seconds=60)
"""A token file is read again after this time, even if it looks unchanged."""


class Credentials(Protocol):
    """Authentication of requests. Concurrent requests can share one object."""

    async def headers(self) -> Mapping[str, str]:
        """The headers for one request. Fast unless the credential must be renewed.

        Raises `ConfigError` when there is no usable credential. Cancel-safe.
        """
        ...

    async def client_certificate(self) -> ClientCertificate | None:
        """The client certificate, for `ssl_context`. The same object until it is renewed."""
        ...

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        """Call after a 401. Returns whether `headers` will renew the credential, so that one more try makes sense.

        Pass the headers that were sent, so that a late 401 for an old credential does not discard a newer one.
        """
        ...


class Anonymous:
    """No headers: anonymous, or authenticated by a client certificate in the kubeconfig."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    async def client_certificate(self) -> None:
        return None

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class StaticToken(Anonymous):
    """A bearer token that never changes. Raises `ConfigError` if it cannot be sent in a header."""

    def __init__(self, token: str, where: str) -> None:
        self._headers = bearer_header(token, where)

    async def headers(self) -> Mapping[str, str]:
        return self._headers


class BasicAuth(Anonymous):
    """User name and password. Kubernetes has removed these, but proxies in front of it still use them."""

    def __init__(self, username: str, password: str) -> None:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {pair}"}

    async def headers(self) -> Mapping[str, str]:
        return self._headers


class TokenFile:
    """A bearer token in a file that another program renews, as the kubelet does for pods.

    The file is read again when it has changed, after `TOKEN_REREAD_INTERVAL`, and after a 401. If it cannot be read, the
    last token is used, unless the server has rejected that.
    """

    def __init__(self, path: Path, where: str, clock: Clock) -> None:
        self._path, self._location, self._clock = path, where, clock
        self._headers: Mapping[str, str] | None = None
        self._read_at = 0.0
        self._stamp: object = None

    async def headers(self) -> Mapping[str, str]:
        stamp = self._file_stamp()
        if self._headers is None:
            self._headers = self.read()
        elif stamp != self._stamp or self._clock.monotonic() - self._read_at >= TOKEN_REREAD_INTERVAL.total_seconds():
            self._headers = self._read_or_keep(self._headers)
        else:
            return self._headers
        # The stamp was taken before reading, so the next request notices a change in between.
        self._stamp, self._read_at = stamp, self._clock.monotonic()
        return self._headers

    async def client_certificate(self) -> None:
        return None

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        if sent is None or sent == self._headers:
            self._headers = None
        return True

    def read(self) -> Mapping[str, str]:
        """The header for the token in the file. Raises `ConfigError` when the file is missing, unreadable or empty."""
        token = read_config_file(self._path, self._location).decode("ascii", errors="replace").strip()
        if not token:
            raise ConfigError(f"{self._location}: {self._path}: is empty; write the token into it")
        return bearer_header(token, f"{self._location}: {self._path}")

    def _read_or_keep(self, last: Mapping[str, str]) -> Mapping[str, str]:
        try:
            return self.read()
        except ConfigError as error:
            # Imported here: short commands do not log.
            import logging

            log = logging.getLogger(__name__)
            log.warning("token file unusable, keeping the last token", extra={"error": str(error)})
            return last

    def _file_stamp(self) -> object:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"


def bearer_header(token: str, where: str) -> dict[str, str]:
    """The header for a token. Raises `ConfigError` for an invalid one: an HTTP library would quote it in its error."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{where}: holds characters that no token has (spaces, line breaks or non-ASCII)")
    return {"Authorization": f"Bearer {token}"}
