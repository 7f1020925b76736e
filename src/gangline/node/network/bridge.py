"""The process that holds the network of isolated pods: network namespaces live only as long as a process holds them.

::

    python -m gangline.node.network.bridge FOLDER

It creates a network namespace with a bridge (without root also a user namespace), and on request one more namespace
per pod, joined to the bridge. It outlives the node process, as pods do, and the next node process connects to its socket in FOLDER. It ends
on request, when its socket is removed, or when neither a node nor a pod uses it. It has one thread only, because
`setns` moves only the calling thread.

A request is a JSON object in one datagram, the response another; see `Bridge.handle`.
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
    """The network namespace of a pod, joined to the bridge."""

    def __init__(self, namespace: int, link: str, address: str) -> None:
        self.namespace, self.link, self.address = namespace, link, address


class Bridge:
    """The bridge, and the namespaces of the pods joined to it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._ports: dict[str, BridgePort] = {}
        self._port_count = 0
        self.user_namespace = self._unshare_network()
        self._bridge_namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
        netlink.set_up("lo")
        netlink.create_bridge(BRIDGE_NAME)
        netlink.add_address(BRIDGE_NAME, GATEWAY, PREFIX_LENGTH)

    def handle(self, request: dict[str, Any]) -> BridgeReply:
        """The response to a request, and the descriptors sent with it. Raises OSError."""
        match request:
            case {"do": "join", "pod": str(pod), "address": str(address)}:
                return self._join_pod(pod, address), []
            case {"do": "leave", "pod": str(pod)}:
                self._remove_port(pod)
                return {}, []
            case {"do": "socket"}:
                # A socket belongs to the network in which it was created, whichever process uses it.
                return {}, [socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()]
            case {"do": "end"}:
                raise SystemExit(0)
        return {"error": f"unknown request: {request}"}, []

    def is_in_use(self) -> bool:
        """Whether any process is in a pod's namespace."""
        inodes = {os.fstat(port.namespace).st_ino for port in self._ports.values()}
        for process in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if process.stat().st_ino in inodes:
                    return True
            except OSError:
                continue
        return False

    def _unshare_network(self) -> str:
        """Enter a new network namespace. Returns its user namespace if a new one was needed; else empty."""
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
        port = self._ports.get(pod)
        if port is None:
            port = self._ports[pod] = self._create_port(address)
        net = f"/proc/{os.getpid()}/fd/{port.namespace}"
        return {"net": net, "user": self.user_namespace, "address": port.address}

    def _create_port(self, address: str) -> BridgePort:
        self._check(self._libc.unshare(CLONE_NEWNET))
        try:
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
            netlink.set_up("lo")
        finally:
            self._enter(self._bridge_namespace)
        self._port_count += 1
        link = f"pod{self._port_count}"
        # The hardware address follows from the IP address: peers have it cached when the pod comes back.
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
        port = self._ports.pop(pod, None)
        if port is not None:
            netlink.delete_link(port.link)
            os.close(port.namespace)

    def _enter(self, namespace: int) -> None:
        self._check(self._libc.setns(namespace, CLONE_NEWNET))

    def _check(self, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def socket_path(folder: Path) -> tuple[str, int]:
    """A path of the socket that fits `sun_path` however long the folder's path is, and the descriptor it needs open."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return f"/proc/self/fd/{descriptor}/{SOCKET_NAME}", descriptor


def listen(folder: Path) -> socket.socket:
    """The socket that nodes connect to, accessible to this user only."""
    (folder / SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name, descriptor = socket_path(folder)
    before = os.umask(0o177)
    try:
        listener.bind(name)
    finally:
        os.umask(before)
        os.close(descriptor)
    listener.listen()
    return listener


def serve(bridge: Bridge, control: socket.socket, folder: Path) -> None:
    """Serve requests until the bridge is not needed any more, or its socket is removed."""
    nodes: list[socket.socket] = []
    while (folder / SOCKET_NAME).exists():
        ready = select.select([control, *nodes], [], [], IDLE_CHECK_SECONDS)[0]
        if not ready and not nodes and not bridge.is_in_use():
            return  # the node died, and all its pods have ended
        for connection in ready:
            if connection is control:
                nodes.append(control.accept()[0])
            elif not _serve_request(bridge, connection):
                nodes.remove(connection)
                connection.close()


def _serve_request(bridge: Bridge, node: socket.socket) -> bool:
    """Serve one request. False when the node has disconnected."""
    try:
        data = node.recv(MAX_MESSAGE_BYTES)
        if not data:
            return False
        try:
            body, descriptors = bridge.handle(json.loads(data))
        except OSError as error:
            body, descriptors = {"error": error.strerror or str(error)}, []
        socket.send_fds(node, [json.dumps(body).encode()], descriptors)
    except ConnectionError:
        return False
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def main(folder: Path) -> int:
    """Run the bridge. Writes one line to standard output: empty on success, else why there is no network."""
    control = listen(folder)
    try:
        bridge = Bridge()
    except OSError as error:
        (folder / SOCKET_NAME).unlink(missing_ok=True)
        os.write(1, f"{error.strerror or error}\n".encode())
        return 1
    os.write(1, b"\n")
    os.close(1)
    serve(bridge, control, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
