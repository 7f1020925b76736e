"""Our API server with 100,000 pods in its store: time to start, memory for each pod, lists in pages. Run it as `make bench-scale`.

The pods are those of training jobs as a production server has them (bench/pods.py), each owned by an object that exists, so
that the garbage collector has its usual work. Exits with 1 when a promise is missed: it answers within two seconds of
its start (seconds of CPU count, the machine may be shared), and reading all pods in pages takes no more memory than
reading a tenth of them.
"""

import argparse
import json
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import pods
from bench.measure import Figures, concluded, machine, seconds, show, size
from bench.servers import PLANE, call, process_cpu, process_memory

from gangline.apiserver.store.journal import JournalContents
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.records import StoreRecord
from gangline.apiserver.store.sqlite import write_database
from support.servers.real import HOST, LoggedProcess, free_ports

FULL, PAGE = 100_000, 500
START_SECONDS = 2.0
HISTORY = 20_000  # changes that a busy store keeps for watches
SLACK_BYTES = 16e6  # of an allocator, not of a list


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, default=FULL)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "pods": asked.pods}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parents[1]) as folder:
        found["empty"] = measure(Path(folder) / "empty", 0)
        found["full"] = measure(Path(folder) / "full", asked.pods)
    report(found)
    return concluded(found, began, asked.json, broken_promises(found))


def measure(folder: Path, count: int) -> Figures:
    """The figures of a server whose store has so many pods, after it was stopped once."""
    folder.mkdir()
    if count:
        write_database(folder / "state", contents(count))
    with_certificates = ScaleServer(folder)
    with_certificates.start()  # the first start makes certificates, roles and namespaces
    with_certificates.stop()
    server = ScaleServer(folder)
    found = server.start()
    try:
        found["json bytes"] = sum(len(pods.stored(number)) for number in range(0, count, 100)) * 100
        found["memory"] = server.memory()
        found["peak"] = server.peak()
        found["settled cpu"] = server.wait_until_idle()
        found["settled memory"] = server.memory()
        if count:
            found |= pages(server, count)
        return found
    finally:
        server.stop()


def pages(server: "ScaleServer", count: int) -> Figures:
    """Read a tenth of the pods in pages, then all. The most memory that the server had in either time, above before."""
    found: Figures = {}
    for name, limit in (("a tenth", count // 10), ("all", count)):
        before, used, read = server.reset_peak(), server.cpu(), 0
        began = time.perf_counter()
        for page in server.pages(limit):
            read += page
        found[name] = {
            "pods": read,
            "seconds": time.perf_counter() - began,
            "cpu": server.cpu() - used,
            "memory": server.peak() - before,
        }
    return found


def contents(count: int) -> JournalContents:
    """A store with pods, the objects that own them, and their namespace."""
    bodies: list[tuple[str, dict[str, Any]]] = [
        (object_path("", "namespaces", "", pods.NAMESPACE), _object("Namespace", pods.NAMESPACE, "n"))
    ]
    for number in range(0, count, pods.GANG):
        fact = pods.facts(number)
        owner = _object("ConfigMap", fact["job"], fact["job_uid"])
        owner["metadata"]["namespace"] = pods.NAMESPACE
        bodies.append((object_path("", "configmaps", pods.NAMESPACE, fact["job"]), owner))
    changes: list[tuple[StoreRecord, bool]] = []
    for revision, (path, body) in enumerate(bodies, start=2):
        body["metadata"]["resourceVersion"] = str(revision)
        changes.append((StoreRecord(path, revision, json.dumps(body, separators=(",", ":")).encode()), False))
    for number in range(count):
        revision, fact = len(changes) + 2, pods.facts(number)
        text = pods.stored(number).replace(fact["version"], str(revision))
        text = text.replace('"apiVersion":"kubeflow.org/v1","kind":"TFJob"', '"apiVersion":"v1","kind":"ConfigMap"')
        path = object_path("", "pods", pods.NAMESPACE, f"{fact['job']}-{fact['seat']}")
        changes.append((StoreRecord(path, revision, text.encode()), False))
    newest = len(changes) + 1
    return JournalContents("7d2c6a3e-0000-4000-8000-000000000000", newest, max(1, newest - HISTORY), changes)


def _object(kind: str, name: str, uid: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid, "creationTimestamp": "2026-01-05T06:00:00Z"}
    return {"kind": kind, "apiVersion": "v1", "metadata": metadata}


class ScaleServer:
    """Our server as a process on a folder that may have state already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        self.url, self.token, self.ca = (
            f"https://{HOST}:{self._port}",
            "admin-token",
            folder / "certificates" / "ca.crt",
        )
        self._process: LoggedProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Figures:
        """Return when it answers: how long that took, and how much CPU."""
        began = time.monotonic()
        command = [sys.executable, str(PLANE), str(self._folder), str(self._port), self.token]
        self._process = LoggedProcess(command, self._folder / "log")
        self._process.wait_until(self._ready)
        return {"start seconds": time.monotonic() - began, "start cpu": self.cpu()}

    def stop(self) -> None:
        """End it as `gangline down` does, so that its store is closed."""
        assert self._process is not None
        self._process.signal(signal.SIGTERM)
        self._process.wait_until_ended()

    def wait_until_idle(self) -> float:
        """Wait until its controllers have looked at everything. The CPU that it has used by then."""
        used, since = self.cpu(), time.monotonic()
        while time.monotonic() - since < 1.0:
            time.sleep(0.1)
            now = self.cpu()
            if now - used > 0.02:
                used, since = now, time.monotonic()
        return self.cpu()

    def cpu(self) -> float:
        return process_cpu(self.pid)

    def memory(self) -> int:
        return process_memory(self.pid)

    def peak(self) -> int:
        return process_memory(self.pid, "VmHWM")

    def reset_peak(self) -> int:
        """Let the peak begin at what it has in memory now, and return that."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.peak()

    def pages(self, limit: int) -> Iterator[int]:
        """Read pods in pages until so many are read; the number in each."""
        connection = HTTPSConnection(HOST, self._port, context=ssl.create_default_context(cafile=self.ca))
        token, read = "", 0
        try:
            while read < limit:
                path = f"/api/v1/pods?limit={PAGE}" + (f"&continue={quote(token)}" if token else "")
                connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
                answer = connection.getresponse()
                page = json.loads(answer.read())
                assert answer.status == 200, page
                read += len(page["items"])
                yield len(page["items"])
                token = page["metadata"].get("continue", "")
                if not token:
                    return
        finally:
            connection.close()

    def _ready(self) -> bool:
        try:
            return all(call(self, "GET", path) == 200 for path in ("/readyz", "/api/v1/namespaces/default"))
        except (OSError, HTTPException):
            return False


def report(found: Figures) -> None:
    empty, full, count = found["empty"], found["full"], found["pods"]
    show(
        "start until the first answer",
        ("store", "time", "CPU", "CPU when idle", "memory", "peak"),
        [
            (
                name,
                seconds(row["start seconds"]),
                seconds(row["start cpu"]),
                seconds(row["settled cpu"]),
                size(row["settled memory"]),
                size(row["peak"]),
            )
            for name, row in (("empty", empty), (f"{count:,} pods", full))
        ],
    )
    each = (full["settled memory"] - empty["settled memory"]) / count
    print(f"\n{each / 1000:.1f} kB of memory for a pod of {full['json bytes'] / count / 1000:.1f} kB JSON")
    show(
        f"lists in pages of {PAGE}",
        ("read", "time", "CPU of the server", "memory above before"),
        [
            (f"{row['pods']:,} pods", seconds(row["seconds"]), seconds(row["cpu"]), size(row["memory"]))
            for row in (full["a tenth"], full["all"])
        ],
    )


def broken_promises(found: Figures) -> list[str]:
    full = found["full"]
    missed = []
    if full["start cpu"] > START_SECONDS:
        missed.append(f"the start takes {full['start cpu']:.1f} s of CPU, promised are {START_SECONDS:.0f} s")
    if full["all"]["memory"] > full["a tenth"]["memory"] + SLACK_BYTES:
        missed.append("a list in pages takes memory that grows with the number of pods")
    return missed


if __name__ == "__main__":
    sys.exit(main())
