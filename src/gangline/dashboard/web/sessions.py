"""Sessions: who looks, by cookie; and the links that begin one. Nothing of a credential is kept in readable form."""

import hashlib
import secrets

import msgspec

from gangline.base.clock import Clock
from gangline.dashboard.links import is_valid_key
from gangline.dashboard.settings import DashboardLimits
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.errors import ConfigError

LOCAL_VIEWER = "local"
MAX_USED_LINKS = 10_000


class Session(msgspec.Struct):
    """A browser that may look. `viewer` names its credentials: sessions with the same ones share watches."""

    viewer: str
    connection: Connection
    used_at: float


class SessionTable:
    """All sessions and used links, by the digest of their secret. In memory: they end with the process."""

    def __init__(self, connection: Connection, limits: DashboardLimits, clock: Clock, link_secret: str) -> None:
        self._connection, self._limits, self._clock = connection, limits, clock
        self._link_secret = link_secret
        self._sessions: dict[str, Session] = {}
        self._used_links: set[str] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def redeem(self, key: str) -> str | None:
        """The cookie of a new session for a link; None if the link was used, has ended, or never was."""
        digest = _digest(key)
        if digest in self._used_links or not is_valid_key(self._link_secret, key, self._clock.now()):
            return None
        if len(self._used_links) >= MAX_USED_LINKS:
            return None  # Nobody opens so many; forgetting one would let it be used again.
        self._used_links.add(digest)
        return self._begin(LOCAL_VIEWER, self._connection)

    def login(self, token: str) -> str:
        """The cookie of a new session with a token of the cluster, which the caller has checked."""
        return self._begin(*token_viewer(self._connection, token))

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie; None if there is none, or it was not used for long."""
        digest = _digest(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        now = self._clock.monotonic()
        del self._sessions[digest]
        if now - session.used_at > self._limits.session_idle.total_seconds():
            return None
        session.used_at = now
        self._sessions[digest] = session  # the last used is the last in the dict
        return session

    def end(self, cookie: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_digest(cookie), None)

    def end_viewer(self, viewer: str) -> None:
        """End all sessions of a viewer whose credentials are no longer accepted."""
        for digest in [digest for digest, session in self._sessions.items() if session.viewer == viewer]:
            del self._sessions[digest]

    def _begin(self, viewer: str, connection: Connection) -> str:
        while len(self._sessions) >= self._limits.sessions:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = Session(viewer, connection, self._clock.monotonic())
        return cookie


def token_viewer(connection: Connection, token: str) -> tuple[str, Connection]:
    """The name of the viewer with a token, and the connection with nothing but that token. Raises `ConfigError`."""
    if not token:
        # A server would take it for no token at all: for an anonymous visitor.
        raise ConfigError("the token: is empty")
    tls = msgspec.structs.replace(connection.tls, client=None) if connection.tls is not None else None
    own = msgspec.structs.replace(
        connection, tls=tls, credentials=StaticToken(token, "the token"), impersonate=None, namespace=""
    )
    return f"token-{_digest(token)}", own


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
