"""The machine's end of a network of pods: a process that holds it, because a network lives as long as its holder.

::

    python -m gangline.node.network.bridge FOLDER

It makes a network namespace (in a user namespace of its own, without root) with a bridge in it, and on request one
more namespace per pod, joined to the bridge. It outlives the node, as pods do, and is found again by its socket in
FOLDER. It ends when it is told to, when FOLDER is gone, or when neither a node nor a pod is left. One thread only:
namespaces are entered by threads.

A request is a JSON object in one datagram, the answer another; see `Hub.answer`.
"""

import ctypes
import json
import os
import select
import socket
import sys
from pathlib import Path
from typing import Any

from gangline.node.network import netlink

NEW_USER, NEW_NET = 0x10000000, 0x40000000
GATEWAY, BITS, BRIDGE, INSIDE = "10.244.0.1", 16, "pods", "eth0"
SOCKET = "hub"
LOOK_SECONDS = 5.0
LONGEST = 65536

Answer = tuple[dict[str, Any], list[int]]


class Member:
    """A pod's namespace."""

    def __init__(self, namespace: int, link: str, address: str) -> None:
        self.namespace, self.link, self.address = namespace, link, address


class Hub:
    """The bridge and its members."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._members: dict[str, Member] = {}
        self._count = 0
        self.user = self._separate()
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        netlink.up("lo")
        netlink.bridge(BRIDGE)
        netlink.address(BRIDGE, GATEWAY, BITS)

    def answer(self, asked: dict[str, Any]) -> Answer:
        """What a request gets: an object, and descriptors to go with it. Raises OSError."""
        match asked:
            case {"do": "join", "pod": str(pod), "address": str(address)}:
                return self._join(pod, address), []
            case {"do": "leave", "pod": str(pod)}:
                self._leave(pod)
                return {}, []
            case {"do": "socket"}:
                # It belongs to this network wherever it is used.
                made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                return {}, [made.detach()]
            case {"do": "end"}:
                raise SystemExit(0)
        return {"error": f"what is {asked}?"}, []

    def in_use(self) -> bool:
        """Whether any process is in a pod's namespace."""
        inside = {os.fstat(each.namespace).st_ino for each in self._members.values()}
        for process in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if process.stat().st_ino in inside:
                    return True
            except OSError:
                continue
        return False

    def _separate(self) -> str:
        """Into a network of our own. Gives the user namespace that it belongs to, if that is new."""
        if self._libc.unshare(NEW_NET) == 0:
            return ""
        user, group = os.getuid(), os.getgid()
        self._done(self._libc.unshare(NEW_USER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        self._done(self._libc.unshare(NEW_NET))
        return f"/proc/{os.getpid()}/ns/user"

    def _join(self, pod: str, address: str) -> dict[str, Any]:
        member = self._members.get(pod)
        if member is None:
            member = self._members[pod] = self._made(address)
        net = f"/proc/{os.getpid()}/fd/{member.namespace}"
        return {"net": net, "user": self.user, "address": member.address}

    def _made(self, address: str) -> Member:
        self._done(self._libc.unshare(NEW_NET))
        try:
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
            netlink.up("lo")
        finally:
            self._enter(self._home)
        self._count += 1
        link = f"pod{self._count}"
        # The same hardware for the same address: its peers remember it when the pod comes back.
        netlink.pair(link, INSIDE, namespace, b"\2\0" + socket.inet_aton(address))
        netlink.join(link, BRIDGE)
        try:
            self._enter(namespace)
            netlink.address(INSIDE, address, BITS)
            netlink.up(INSIDE)
        finally:
            self._enter(self._home)
        return Member(namespace, link, address)

    def _leave(self, pod: str) -> None:
        member = self._members.pop(pod, None)
        if member is not None:
            netlink.remove(member.link)
            os.close(member.namespace)

    def _enter(self, namespace: int) -> None:
        self._done(self._libc.setns(namespace, NEW_NET))

    def _done(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def named(folder: Path) -> tuple[str, int]:
    """A short name for the socket in a folder, whatever the folder's, and a descriptor to be closed after use."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return f"/proc/self/fd/{descriptor}/{SOCKET}", descriptor


def listening(folder: Path) -> socket.socket:
    """The socket that the node connects to. Only this user may."""
    (folder / SOCKET).unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name, descriptor = named(folder)
    before = os.umask(0o177)
    try:
        made.bind(name)
    finally:
        os.umask(before)
        os.close(descriptor)
    made.listen()
    return made


def serve(hub: Hub, control: socket.socket, folder: Path) -> None:
    """Answer until told to end."""
    nodes: list[socket.socket] = []
    while (folder / SOCKET).exists():
        ready = select.select([control, *nodes], [], [], LOOK_SECONDS)[0]
        if not ready and not nodes and not hub.in_use():
            return  # the node died, and so did all its pods
        for each in ready:
            if each is control:
                nodes.append(control.accept()[0])
            elif not _served(hub, each):
                nodes.remove(each)
                each.close()


def _served(hub: Hub, node: socket.socket) -> bool:
    """Answer one request. False when the node is gone."""
    try:
        data = node.recv(LONGEST)
        if not data:
            return False
        try:
            body, descriptors = hub.answer(json.loads(data))
        except OSError as error:
            body, descriptors = {"error": error.strerror or str(error)}, []
        socket.send_fds(node, [json.dumps(body).encode()], descriptors)
    except ConnectionError:
        return False
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def main(folder: Path) -> int:
    """Says one line on standard output: nothing when all is well, else why there is no network."""
    # In the machine's own network: later nobody could find it there.
    control = listening(folder)
    try:
        hub = Hub()
    except OSError as error:
        (folder / SOCKET).unlink(missing_ok=True)
        os.write(1, f"{error.strerror or error}\n".encode())
        return 1
    os.write(1, b"\n")
    os.close(1)
    serve(hub, control, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
