"""The node's line to the process that holds the network of pods."""

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
from gangline.node.network.bridge import MAX_MESSAGE_BYTES, socket_path

TIMEOUT_SECONDS = 10.0


class NetworkUnavailable(GanglineError):
    """This machine does not give pods a network of their own. The message says why."""


class BridgeClient:
    """Asks the hub, one request at a time; starts it when there is none. Short and blocking: no request waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def join(self, pod: str, address: str) -> dict[str, str]:
        """A namespace for a pod, with an address: files that stand for it. Idempotent. Raises `NetworkUnavailable`."""
        return self._request({"do": "join", "pod": pod, "address": address})[0]

    def leave(self, pod: str) -> None:
        """The pod's namespace may go. Does nothing where there is no hub."""
        if self._socket is not None:
            self._request({"do": "leave", "pod": pod})

    def tcp_socket(self) -> socket.socket:
        """A TCP socket in the pods' network. Raises `NetworkUnavailable`."""
        (descriptor,) = self._request({"do": "socket"})[1]
        return socket.socket(fileno=descriptor)

    def stop(self) -> None:
        """End the hub, and the network with it; returns when it is gone. Idempotent."""
        with self._lock:
            if self._socket is not None:
                with suppress(OSError, psutil.Error):
                    hub = psutil.Process(_peer_pid(self._socket))
                    self._socket.send(json.dumps({"do": "end"}).encode())
                    hub.wait(TIMEOUT_SECONDS)
        self.close()

    def close(self) -> None:
        """Leave the hub to a later node. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def open(self) -> None:
        """Find the hub or start it. Idempotent. Raises `NetworkUnavailable`."""
        if self._socket is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._socket = self._connect() or self._start_bridge()

    def _request(self, request: dict[str, str]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            self.open()
            assert self._socket is not None
            try:
                self._socket.send(json.dumps(request).encode())
                data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 4)
                for descriptor in descriptors:
                    # Pods must not inherit it: it would outlive the node with them.
                    os.set_inheritable(descriptor, False)  # noqa: FBT003
            except OSError as error:
                data, descriptors = b"", []
                problem = str(error)
            else:
                problem = "it ended"
            if not data:
                self.close()
                raise NetworkUnavailable(f"the process that holds the pods' network does not answer: {problem}")
        answer = json.loads(data)
        if "error" in answer:
            raise NetworkUnavailable(f"the pods' network: {answer['error']}")
        return answer, list(descriptors)

    def _connect(self) -> socket.socket | None:
        name, descriptor = socket_path(self._folder)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(TIMEOUT_SECONDS)
        try:
            line.connect(name)
        except OSError:
            line.close()
            return None
        finally:
            os.close(descriptor)
        return line

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
            said = process.stdout.readline().decode(errors="replace").strip()
            # It goes on, and is nobody's child to wait for.
            process.returncode = 0
        line = self._connect() if not said else None
        if line is None:
            raise NetworkUnavailable(f"pods cannot have networks here: {said or 'the hub did not start'}")
        return line


def _peer_pid(line: socket.socket) -> int:
    """The process at the other end."""
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", told)[0]
    return pid
