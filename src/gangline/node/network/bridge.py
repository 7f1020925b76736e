"""The machine's end of a network of pods: a process that holds it, because a network lives as long as its holder.

::

    python -m gangline.node.network.bridge FOLDER

It makes a network namespace (in a user namespace of its own, without root) with a bridge in it, and on request one
more namespace per pod, joined to the bridge. It outlives the node, as pods do, and is found again by its socket in
FOLDER. It ends when it is told to, when FOLDER is gone, or when neither a node nor a pod is left. One thread only:
namespaces are entered by threads.

A request is a JSON object in one datagram, the answer another; see `Bridge.answer`.
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

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
GATEWAY, PREFIX_LENGTH, BRIDGE_NAME, POD_INTERFACE = "10.244.0.1", 16, "pods", "eth0"
SOCKET_NAME = "hub"
IDLE_CHECK_SECONDS = 5.0
MAX_MESSAGE_BYTES = 65536

BridgeReply = tuple[dict[str, Any], list[int]]


class BridgePort:
    """A pod's namespace."""

    def __init__(self, namespace: int, link: str, address: str) -> None:
        self.namespace, self.link, self.address = namespace, link, address


class Bridge:
    """The bridge and its members."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._ports: dict[str, BridgePort] = {}
        self._port_count = 0
        self.user_namespace = self._unshare_network()
        self._bridge_namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
        netlink.set_up("lo")
        netlink.create_bridge(BRIDGE_NAME)
        netlink.add_address(BRIDGE_NAME, GATEWAY, PREFIX_LENGTH)

    def handle(self, asked: dict[str, Any]) -> BridgeReply:
        """What a request gets: an object, and descriptors to go with it. Raises OSError."""
        match asked:
            case {"do": "join", "pod": str(pod), "address": str(address)}:
                return self._join_pod(pod, address), []
            case {"do": "leave", "pod": str(pod)}:
                self._remove_port(pod)
                return {}, []
            case {"do": "socket"}:
                # It belongs to this network wherever it is used.
                made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                return {}, [made.detach()]
            case {"do": "end"}:
                raise SystemExit(0)
        return {"error": f"what is {asked}?"}, []

    def is_in_use(self) -> bool:
        """Whether any process is in a pod's namespace."""
        inside = {os.fstat(each.namespace).st_ino for each in self._ports.values()}
        for process in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if process.stat().st_ino in inside:
                    return True
            except OSError:
                continue
        return False

    def _unshare_network(self) -> str:
        """Into a network of our own. Gives the user namespace that it belongs to, if that is new."""
        if self._libc.unshare(CLONE_NEWNET) == 0:
            return ""
        user, group = os.getuid(), os.getgid()
        self._check(self._libc.unshare(CLONE_NEWUSER))
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        self._check(self._libc.unshare(CLONE_NEWNET))
        return f"/proc/{os.getpid()}/ns/user"

    def _join_pod(self, pod: str, address: str) -> dict[str, Any]:
        member = self._ports.get(pod)
        if member is None:
            member = self._ports[pod] = self._create_port(address)
        net = f"/proc/{os.getpid()}/fd/{member.namespace}"
        return {"net": net, "user": self.user_namespace, "address": member.address}

    def _create_port(self, address: str) -> BridgePort:
        self._check(self._libc.unshare(CLONE_NEWNET))
        try:
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
            netlink.set_up("lo")
        finally:
            self._enter(self._bridge_namespace)
        self._port_count += 1
        link = f"pod{self._port_count}"
        # The same hardware for the same address: its peers remember it when the pod comes back.
        netlink.create_veth_pair(link, POD_INTERFACE, namespace, b"\2\0" + socket.inet_aton(address))
        netlink.attach_to_bridge(link, BRIDGE_NAME)
        try:
            self._enter(namespace)
            netlink.add_address(POD_INTERFACE, address, PREFIX_LENGTH)
            netlink.set_up(POD_INTERFACE)
        finally:
            self._enter(self._bridge_namespace)
        return BridgePort(namespace, link, address)

    def _remove_port(self, pod: str) -> None:
        member = self._ports.pop(pod, None)
        if member is not None:
            netlink.delete_link(member.link)
            os.close(member.namespace)

    def _enter(self, namespace: int) -> None:
        self._check(self._libc.setns(namespace, CLONE_NEWNET))

    def _check(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def socket_path(folder: Path) -> tuple[str, int]:
    """A short name for the socket in a folder, whatever the folder's, and a descriptor to be closed after use."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return f"/proc/self/fd/{descriptor}/{SOCKET_NAME}", descriptor


def listen(folder: Path) -> socket.socket:
    """The socket that the node connects to. Only this user may."""
    (folder / SOCKET_NAME).unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name, descriptor = socket_path(folder)
    before = os.umask(0o177)
    try:
        made.bind(name)
    finally:
        os.umask(before)
        os.close(descriptor)
    made.listen()
    return made


def serve(hub: Bridge, control: socket.socket, folder: Path) -> None:
    """Answer until told to end."""
    nodes: list[socket.socket] = []
    while (folder / SOCKET_NAME).exists():
        ready = select.select([control, *nodes], [], [], IDLE_CHECK_SECONDS)[0]
        if not ready and not nodes and not hub.is_in_use():
            return  # the node died, and so did all its pods
        for each in ready:
            if each is control:
                nodes.append(control.accept()[0])
            elif not _serve_request(hub, each):
                nodes.remove(each)
                each.close()


def _serve_request(hub: Bridge, node: socket.socket) -> bool:
    """Answer one request. False when the node is gone."""
    try:
        data = node.recv(MAX_MESSAGE_BYTES)
        if not data:
            return False
        try:
            body, descriptors = hub.handle(json.loads(data))
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
    control = listen(folder)
    try:
        hub = Bridge()
    except OSError as error:
        (folder / SOCKET_NAME).unlink(missing_ok=True)
        os.write(1, f"{error.strerror or error}\n".encode())
        return 1
    os.write(1, b"\n")
    os.close(1)
    serve(hub, control, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
