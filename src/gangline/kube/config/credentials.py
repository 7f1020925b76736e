"""Who we are to a server: what goes into the headers of each request.

Reprs show the kind of credential and where it came from, never the credential. Exec plugins are in
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
"""A token file is read again after this long, even if it looks unchanged."""


class Credentials(Protocol):
    """What a transport asks for. Safe to share between requests."""

    async def headers(self) -> Mapping[str, str]:
        """Headers for one request; ask again for each. Cheap unless something must be renewed.

        Raises `ConfigError` when there is nothing to send. Cancel-safe.
        """
        ...

    async def client_certificate(self) -> ClientCertificate | None:
        """A certificate to show when connecting, for `ssl_context`. The same object until it is renewed."""
        ...

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        """The server answered 401. True: the next `headers` are renewed, so one more try makes sense.

        Pass what was sent. Then a late 401 for an older credential does not throw away a newer one.
        """
        ...


class Anonymous:
    """Nobody, or somebody known by the certificate in the kubeconfig."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    async def client_certificate(self) -> None:
        return None

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class StaticToken(Anonymous):
    """A bearer token that never changes. Raises `ConfigError` when it cannot be in a header."""

    def __init__(self, token: str, where: str) -> None:
        self._headers = bearer_header(token, where)

    async def headers(self) -> Mapping[str, str]:
        return self._headers


class BasicAuth(Anonymous):
    """A user name and password. Kubernetes itself dropped these; proxies in front of it did not."""

    def __init__(self, username: str, password: str) -> None:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {pair}"}

    async def headers(self) -> Mapping[str, str]:
        return self._headers


class TokenFile:
    """A bearer token that somebody else keeps fresh in a file, as the kubelet does for pods.

    Read again when the file changed, after `TOKEN_REREAD_INTERVAL`, and after a rejection. While the file cannot be read the
    last token is kept, unless the server has rejected it.
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
        # The stamp was taken before reading: a change in between is seen by the next request.
        self._stamp, self._read_at = stamp, self._clock.monotonic()
        return self._headers

    async def client_certificate(self) -> None:
        return None

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        if sent is None or sent == self._headers:
            self._headers = None
        return True

    def read(self) -> Mapping[str, str]:
        """What the file says now. Raises `ConfigError` when it is missing, unreadable or empty."""
        token = read_config_file(self._path, self._location).decode("ascii", errors="replace").strip()
        if not token:
            raise ConfigError(f"{self._location}: {self._path}: is empty; write the token into it")
        return bearer_header(token, f"{self._location}: {self._path}")

    def _read_or_keep(self, last: Mapping[str, str]) -> Mapping[str, str]:
        try:
            return self.read()
        except ConfigError as error:
            # Imported here: a command that asks one question and ends has nothing to log.
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
    """The header for a token. Checked here, because an HTTP library would quote a bad one in its error."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{where}: holds characters that no token has (spaces, line breaks or non-ASCII)")
    return {"Authorization": f"Bearer {token}"}
