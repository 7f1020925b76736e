"""The Host header of requests: a defence against DNS rebinding.

A web page can make the browser of whoever opens it send requests to a server of this machine, if the page's name is
made to point here. Such requests have that name as their host. An address is always allowed: no name was involved.
"""

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache

SERVER_NAMES = frozenset(
    {
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    }
)
"""The names by which every server is known, on its machine and in pods."""
MALFORMED_HOST = "malformed Host header"
_REMEMBERED_HOSTS = 64
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+(?:%[A-Za-z0-9._~-]+)?)\]|(?P<name>[A-Za-z0-9._-]*))(?::[0-9]*)?")


class AllowedHosts:
    """The hosts for which requests are served."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names` are allowed besides those that every server has."""
        self._names = SERVER_NAMES | {name.lower().rstrip(".") for name in names}
        # Clients send the same header with every request.
        self.problem = lru_cache(maxsize=_REMEMBERED_HOSTS)(self._problem)
        """Why a request with this Host header is refused; empty if it is not."""

    def _problem(self, header: str) -> str:
        match = _HOST.fullmatch(header.strip())
        if match is None:
            return MALFORMED_HOST
        if match["address"] is not None or not match["name"]:
            return ""
        name = match["name"].lower().rstrip(".")
        if name in self._names or name.endswith(".localhost") or _is_address(name):
            return ""
        return f'"{name}" is not a name of this server; use its address, or start it with --allow-host {name}'


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
