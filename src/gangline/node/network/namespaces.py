"""A pod in namespaces of its own: what its processes enter, and how others enter after them."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gangline.kube.config.access import PlaneAccess
from gangline.node.network import enter_namespaces

SERVER_NAME = "kubernetes.default.svc"
"""The API server's name inside; the plane's certificate has it."""


class Isolation(msgspec.Struct, frozen=True):
    """The namespaces of one pod."""

    address: str
    hostname: str
    # Files that stand for namespaces, to be entered; without a user namespace the machine's own is kept.
    net: str
    user: str = ""
    # What /etc/hosts is inside.
    hosts: str = ""

    def inner_access(self, access: PlaneAccess) -> PlaneAccess:
        """The plane, by the way that leads there from inside."""
        parts = urlsplit(access.server)
        return msgspec.structs.replace(access, server=f"{parts.scheme}://{SERVER_NAME}:{parts.port}")


def nsenter_prefix(pid: int, folder: Path) -> tuple[str, ...]:
    """What to write before a command so that it runs where a process runs."""
    return (sys.executable, "-I", "-S", str(Path(enter_namespaces.__file__)), str(pid), str(folder))
