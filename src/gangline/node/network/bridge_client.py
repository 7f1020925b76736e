"""The node's connection to the bridge process, which holds the network of pods."""

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from gangline.base.errors import GanglineError
from gangline.base.host_features import has_linux_features
from gangline.node.network.bridge import MAX_MESSAGE_BYTES, socket_path

TIMEOUT_SECONDS = 10.0


class NetworkUnavailable(GanglineError):
    """Pods cannot have their own network on this machine. The message says why."""


class BridgeClient:
    """Sends requests to the bridge, one at a time, and starts the bridge if none runs. Blocking; requests are short."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def join(self, pod: str, address: str) -> dict[str, str]:
        """The namespace files of a pod, created if missing, with this address. Raises `NetworkUnavailable`."""
        return self._request({"do": "join", "pod": pod, "address": address})[0]

    def leave(self, pod: str) -> None:
        """Remove the pod's namespace. Does nothing without a connection: the node may have closed it meanwhile."""
        with self._lock:
            if self._socket is not None:
                self._exchange(self._socket, {"do": "leave", "pod": pod})

    def tcp_socket(self) -> socket.socket:
        """A TCP socket in the pods' network. Raises `NetworkUnavailable`."""
        (descriptor,) = self._request({"do": "socket"})[1]
        return socket.socket(fileno=descriptor)

    def stop(self) -> None:
        """End the bridge and its network; returns when the process has ended. Idempotent."""
        with self._lock:
            if self._socket is not None:
                with suppress(OSError, psutil.Error):
                    bridge = psutil.Process(_peer_pid(self._socket))
                    self._socket.send(json.dumps({"do": "end"}).encode())
                    bridge.wait(TIMEOUT_SECONDS)
            self._disconnect()

    def close(self) -> None:
        """Disconnect, and leave the bridge to a later node. Idempotent."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def open(self) -> None:
        """Connect to the bridge; start it if none runs. Idempotent. Raises `NetworkUnavailable`."""
        if not has_linux_features():
            raise NetworkUnavailable("pods cannot have networks here: only Linux has them")
        if self._socket is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._socket = self._connect() or self._start_bridge()

    def _request(self, request: dict[str, str]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            self.open()
            assert self._socket is not None
            return self._exchange(self._socket, request)

    def _exchange(self, connection: socket.socket, request: dict[str, str]) -> tuple[dict[str, Any], list[int]]:
        """The response, and the descriptors that came with it. Disconnects if there is none."""
        try:
            connection.send(json.dumps(request).encode())
            data, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 4)
            for descriptor in descriptors:
                # Pods must not inherit it: it would stay open after the node has ended.
                os.set_inheritable(descriptor, False)  # noqa: FBT003
        except OSError as error:
            data, descriptors = b"", []
            problem = str(error)
        else:
            problem = "it ended"
        if not data:
            self._disconnect()
            raise NetworkUnavailable(f"the process that holds the pods' network does not answer: {problem}")
        response = json.loads(data)
        if "error" in response:
            raise NetworkUnavailable(f"the pods' network: {response['error']}")
        return response, list(descriptors)

    def _connect(self) -> socket.socket | None:
        name, descriptor = socket_path(self._folder)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(TIMEOUT_SECONDS)
        try:
            connection.connect(name)
        except OSError:
            connection.close()
            return None
        finally:
            os.close(descriptor)
        return connection

    def _start_bridge(self) -> socket.socket:
        command = [sys.executable, "-P", "-m", "gangline.node.network.bridge", str(self._folder.absolute())]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        ) as process:
            assert process.stdout is not None
            problem = process.stdout.readline().decode(errors="replace").strip()
            # Keeps Popen from waiting for the process, which outlives the node.
            process.returncode = 0
        connection = self._connect() if not problem else None
        if connection is None:
            raise NetworkUnavailable(f"pods cannot have networks here: {problem or 'the bridge did not start'}")
        return connection


def _peer_pid(connection: socket.socket) -> int:
    """The pid of the process at the other end."""
    if sys.platform == "linux":
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
