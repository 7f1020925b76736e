"""The connections of a server and their limits, as values: who may stay, and for how long. Closes nothing itself.

A connection is authenticated as soon as one request on it was. Others are cheap for attackers, so there may be fewer of
them. When there are too many, the one that has been idle for longest goes first, so that whoever authenticates at once
always gets in.
"""

from collections.abc import Iterator, Mapping

import msgspec


class ConnectionLimits(msgspec.Struct, frozen=True):
    """How many connections a server has at most, and for how long they may do nothing.

    500 workers, kubectl and informers with many watches are far from these numbers.
    """

    unauthenticated: int = 1536
    unauthenticated_per_address: int = 1024
    authenticated: int = 8192
    authenticated_per_address: int = 6144
    handshake_seconds: float = 10.0
    """For the TLS handshake."""
    header_seconds: float = 32.0
    """From the handshake to the end of the first request's headers, as in kube-apiserver."""
    idle_seconds: float = 90.0
    """From a response to the end of the next request's headers, as in kube-apiserver."""

    def within(self, open_files: int) -> "ConnectionLimits":
        """Limits that leave a quarter of the allowed open files to everything else."""
        most = max(64, open_files * 3 // 4)
        return msgspec.structs.replace(
            self,
            unauthenticated=min(self.unauthenticated, most // 3),
            unauthenticated_per_address=min(self.unauthenticated_per_address, most // 3),
            authenticated=min(self.authenticated, most * 2 // 3),
            authenticated_per_address=min(self.authenticated_per_address, most * 2 // 3),
        )


class TrackedConnection:
    """One connection. Compared by identity."""

    __slots__ = ("address", "deadline", "is_authenticated", "requests")

    def __init__(self, address: str, deadline: float) -> None:
        self.address, self.deadline = address, deadline
        self.is_authenticated = False
        self.requests = 0
        """How many requests are being served: 0 or 1."""

    @property
    def is_idle(self) -> bool:
        return self.requests == 0


class ConnectionTable:
    """All open connections. Within each dict the connection that became idle first comes first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._unauthenticated: dict[TrackedConnection, None] = {}
        self._authenticated: dict[TrackedConnection, None] = {}
        self._per_address: dict[tuple[str, bool], int] = {}

    def __len__(self) -> int:
        return len(self._unauthenticated) + len(self._authenticated)

    @property
    def counts(self) -> Mapping[str, int]:
        return {"unauthenticated": len(self._unauthenticated), "authenticated": len(self._authenticated)}

    def admit(self, address: str, now: float) -> tuple[TrackedConnection | None, list[TrackedConnection]]:
        """A new connection, and the connections to close for it. None: there is no room, refuse it."""
        limits, victims = self.limits, list[TrackedConnection]()
        if self._per_address.get((address, False), 0) >= limits.unauthenticated_per_address:
            victims += self._oldest_idle(address)
            if not victims:
                return None, []
        if len(self._unauthenticated) - len(victims) >= limits.unauthenticated:
            oldest = self._oldest_idle("")
            if not oldest:
                return None, []
            victims += oldest
        for victim in victims:
            self.remove(victim)
        connection = TrackedConnection(address, now + limits.handshake_seconds)
        self._unauthenticated[connection] = None
        self._count(connection, +1)
        return connection, victims

    def _oldest_idle(self, address: str) -> list[TrackedConnection]:
        found = (item for item in self._unauthenticated if item.is_idle and (not address or item.address == address))
        oldest = next(found, None)
        return [] if oldest is None else [oldest]

    def finish_handshake(self, connection: TrackedConnection, now: float) -> None:
        connection.deadline = now + self.limits.header_seconds

    def authenticate(self, connection: TrackedConnection) -> bool:
        """A request on it was authenticated. False: there are too many such connections; it counts with the others."""
        if connection.is_authenticated or connection not in self._unauthenticated:
            return True
        at_address = self._per_address.get((connection.address, True), 0)
        limits = self.limits
        if len(self._authenticated) >= limits.authenticated or at_address >= limits.authenticated_per_address:
            return False
        self.remove(connection)
        connection.is_authenticated = True
        self._authenticated[connection] = None
        self._count(connection, +1)
        return True

    def begin_request(self, connection: TrackedConnection) -> None:
        """The headers of a request are complete."""
        connection.requests += 1
        connection.deadline = float("inf")

    def end_request(self, connection: TrackedConnection, now: float) -> None:
        """The response is complete. The connection is now the one that became idle last."""
        connection.requests -= 1
        connection.deadline = now + self.limits.idle_seconds
        among = self._authenticated if connection.is_authenticated else self._unauthenticated
        if connection in among:
            del among[connection]
            among[connection] = None

    def remove(self, connection: TrackedConnection) -> None:
        """The connection is closed, or about to be. Does nothing the second time."""
        among = self._authenticated if connection.is_authenticated else self._unauthenticated
        if connection in among:
            del among[connection]
            self._count(connection, -1)

    def overdue(self, now: float) -> list[TrackedConnection]:
        """The connections whose time is up."""
        return [connection for connection in self._all() if connection.deadline <= now]

    def next_deadline(self) -> float:
        """When the next connection's time is up; infinity if never."""
        return min((connection.deadline for connection in self._all()), default=float("inf"))

    def _all(self) -> Iterator[TrackedConnection]:
        yield from self._unauthenticated
        yield from self._authenticated

    def _count(self, connection: TrackedConnection, change: int) -> None:
        key = (connection.address, connection.is_authenticated)
        count = self._per_address.get(key, 0) + change
        if count:
            self._per_address[key] = count
        else:
            self._per_address.pop(key, None)
