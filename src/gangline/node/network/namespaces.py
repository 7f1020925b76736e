"""The namespaces of a pod with its own network: what its processes enter, and how later commands enter them."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gangline.kube.config.access import PlaneAccess
from gangline.node.network import enter_namespaces

SERVER_NAME = "kubernetes.default.svc"
"""The API server's name inside a pod; the plane's certificate has it."""


class Isolation(msgspec.Struct, frozen=True):
    """The namespaces of one pod."""

    address: str
    hostname: str
    # Namespace files to enter; an empty `user` keeps the machine's user namespace.
    net: str
    user: str = ""
    # The file that is mounted at /etc/hosts.
    hosts: str = ""

    def inner_access(self, access: PlaneAccess) -> PlaneAccess:
        """The access by which the pod reaches the plane from its own network."""
        parts = urlsplit(access.server)
        return msgspec.structs.replace(access, server=f"{parts.scheme}://{SERVER_NAME}:{parts.port}")


def nsenter_prefix(pid: int, folder: Path) -> tuple[str, ...]:
    """The words before a command that make it run in the namespaces of a process, like nsenter."""
    return (sys.executable, "-I", "-S", str(Path(enter_namespaces.__file__)), str(pid), str(folder))
