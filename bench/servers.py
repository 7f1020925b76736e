"""The two servers of the bench, started the same way and asked the same things."""

import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Protocol

import msgspec
from bench.measure import Figures

from support.servers.real import HOST, LoggedProcess, RealServer, free_ports

PLANE, LOAD = Path(__file__).with_name("plane.py"), Path(__file__).with_name("load.py")
TICKS = os.sysconf("SC_CLK_TCK")
LOAD_TIMEOUT = 600.0


class ServerAccess(Protocol):
    """How a server is reached."""

    url: str
    token: str
    ca: Path


class Server(ServerAccess, Protocol):
    """A server with its store."""

    startup_seconds: float
    """From the start of its first process until it answers."""

    @property
    def pids(self) -> Mapping[str, int]: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Kubernetes(RealServer):
    """kube-apiserver and etcd, which syncs to the disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=Path(tempfile.mkdtemp(prefix="kubernetes-", dir=folder)), durable=True)


class Gangline:
    """Ours: one process, SQLite with `synchronous=FULL`."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gangline-", dir=folder))
        (self._port,) = free_ports(1)
        self.url, self.token = f"https://{HOST}:{self._port}", "admin-token"
        self.ca = self._folder / "certificates" / "ca.crt"
        self.startup_seconds = 0.0
        self._process: LoggedProcess | None = None

    @property
    def pids(self) -> Mapping[str, int]:
        return {"gangline": self._process.pid} if self._process is not None else {}

    def start(self) -> None:
        """Return when it answers what kube-apiserver is asked for, too. Its certificates are its own work."""
        began = time.monotonic()
        command = [sys.executable, str(PLANE), str(self._folder), str(self._port), self.token]
        self._process = LoggedProcess(command, self._folder / "log")
        self._process.wait_until(self._ready)
        self.startup_seconds = time.monotonic() - began

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ready(self) -> bool:
        try:
            return all(call(self, "GET", path) == 200 for path in ("/readyz", "/api/v1/namespaces/default"))
        except (OSError, HTTPException):
            return False


def call(server: ServerAccess, method: str, path: str, body: object = None) -> int:
    """One request; its status. Raises OSError without an answer."""
    host, port = server.url.removeprefix("https://").split(":")
    connection = HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=server.ca))
    try:
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        connection.request(method, path, msgspec.json.encode(body) if body is not None else None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def load(server: Server, what: str, *numbers: int) -> Figures:
    """What a load measured, with the CPU that the server spent on it."""
    before = cpu(server)
    command = [sys.executable, str(LOAD), server.url, server.token, str(server.ca), what, *map(str, numbers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LOAD_TIMEOUT, check=True)
    found: Figures = msgspec.json.decode(done.stdout)
    return found | {"server_cpu": cpu(server) - before}


def cpu(server: Server) -> float:
    """Seconds of CPU that all processes of a server have had."""
    return sum(map(process_cpu, server.pids.values()))


def process_cpu(pid: int) -> float:
    """Seconds of CPU that a process has had."""
    # After the name, which may have anything in it; the 12th and 13th of what follows are user and system time.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(server: Server) -> dict[str, int]:
    """Bytes in memory, by process."""
    return {name: process_memory(pid) for name, pid in server.pids.items()}


def process_memory(pid: int, field: str = "VmRSS") -> int:
    """Bytes of a process in memory now, or at most (`VmHWM`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
