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
from gangline.node.network.bridge import LONGEST, named

SECONDS = 10.0


class NoNetwork(GanglineError):
    """This machine does not give pods a network of their own. The message says why."""


class HubClient:
    """Asks the hub, one request at a time; starts it when there is none. Short and blocking: no request waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._line: socket.socket | None = None
        self._lock = threading.Lock()

    def join(self, pod: str, address: str) -> dict[str, str]:
        """A namespace for a pod, with an address: files that stand for it. Idempotent. Raises `NoNetwork`."""
        return self._ask({"do": "join", "pod": pod, "address": address})[0]

    def leave(self, pod: str) -> None:
        """The pod's namespace may go. Does nothing where there is no hub."""
        if self._line is not None:
            self._ask({"do": "leave", "pod": pod})

    def tcp_socket(self) -> socket.socket:
        """A TCP socket in the pods' network. Raises `NoNetwork`."""
        (descriptor,) = self._ask({"do": "socket"})[1]
        return socket.socket(fileno=descriptor)

    def end(self) -> None:
        """End the hub, and the network with it; returns when it is gone. Idempotent."""
        with self._lock:
            if self._line is not None:
                with suppress(OSError, psutil.Error):
                    hub = psutil.Process(_peer(self._line))
                    self._line.send(json.dumps({"do": "end"}).encode())
                    hub.wait(SECONDS)
        self.close()

    def close(self) -> None:
        """Leave the hub to a later node. Idempotent."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def open(self) -> None:
        """Find the hub or start it. Idempotent. Raises `NoNetwork`."""
        if self._line is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._line = self._found() or self._started()

    def _ask(self, request: dict[str, str]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            self.open()
            assert self._line is not None
            try:
                self._line.send(json.dumps(request).encode())
                data, descriptors, _, _ = socket.recv_fds(self._line, LONGEST, 4)
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
                raise NoNetwork(f"the process that holds the pods' network does not answer: {problem}")
        answer = json.loads(data)
        if "error" in answer:
            raise NoNetwork(f"the pods' network: {answer['error']}")
        return answer, list(descriptors)

    def _found(self) -> socket.socket | None:
        name, descriptor = named(self._folder)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(SECONDS)
        try:
            line.connect(name)
        except OSError:
            line.close()
            return None
        finally:
            os.close(descriptor)
        return line

    def _started(self) -> socket.socket:
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
        line = self._found() if not said else None
        if line is None:
            raise NoNetwork(f"pods cannot have networks here: {said or 'the hub did not start'}")
        return line


def _peer(line: socket.socket) -> int:
    """The process at the other end."""
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", told)[0]
    return pid
