"""Points of curves from logs: only what is new is read, and no more than a bound."""

import json
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any

import pytest

from gangline.api.meta import JSON, Key
from gangline.dashboard.live import log_points
from gangline.dashboard.live.log_points import LogPointReader
from gangline.kube.errors import Forbidden, Status
from gangline.summary.objects import JOB_KINDS, ServerJob

START = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


def job(name: str = "bert") -> ServerJob:
    return ServerJob(JOB_KINDS[1], {"metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}})


def report(second: float, step: int) -> bytes:
    stamp = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"{stamp} {json.dumps({'progress': {'step': step, 'loss': 1 / (step + 1)}})}".encode()


class FakeServer:
    """One pod with a log, as the API serves it. `sinceTime` is in whole seconds, as kubelets read it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.sent: list[bytes] = []
        self.restarts = 0
        self.refuses = False

    async def list_replicas(self, client: Any, of: ServerJob) -> list[JSON]:
        status = {"name": "pytorch", "restartCount": self.restarts, "state": {"running": {}}}
        metadata = {"name": f"{of.key.name}-worker-0", "namespace": "default", "uid": f"pod-of-{of.key.name}"}
        spec = {"containers": [{"name": "pytorch"}]}
        return [{"metadata": metadata, "spec": spec, "status": {"containerStatuses": [status]}}]

    def __call__(self, client: Any) -> "FakeServer":
        return self

    async def logs(self, key: Key, **options: Any) -> AsyncGenerator[bytes, None]:
        if self.refuses:
            raise Forbidden(Status(code=403, message="jane may not"))
        since, left = options["since"], options["limit_bytes"]
        for line in self.lines:
            at = datetime.fromisoformat(line.split()[0].decode())
            if since is not None and at < since.replace(microsecond=0):
                continue
            part = line[: max(left, 0)]
            left -= len(line) + 1
            if not part:
                return
            self.sent.append(part)
            yield part


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    server = FakeServer()
    monkeypatch.setattr(log_points, "PodSubresources", server)
    monkeypatch.setattr(log_points, "list_replicas", server.list_replicas)
    return server


def new_reader() -> LogPointReader:
    client: Any = None
    return LogPointReader(client)


async def test_only_lines_that_are_new_are_read_again(server: FakeServer) -> None:
    reader = new_reader()
    server.lines = [report(second, second) for second in range(100)]
    points, _ = await reader.read(job())
    assert [point.step for point in points] == list(range(100))
    server.sent = []
    server.lines.append(report(100, 100))
    points, _ = await reader.read(job())
    assert [point.step for point in points] == list(range(101))
    assert len(server.sent) == 2, "the last second and the new line"


async def test_a_long_log_is_read_piece_by_piece(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_points, "MAX_TEAM_BYTES", 0)  # 64 KiB for each
    reader = new_reader()
    server.lines = [report(number / 10, number) for number in range(2000)]
    points, notes = await reader.read(job())
    assert 100 < len(points) < 2000
    assert notes == ["worker-0: its log is long; the rest of it is being read"]
    for _ in range(3):
        points, notes = await reader.read(job())
    assert [point.step for point in points] == list(range(2000)), "none is missing, none comes twice"
    assert notes == []


async def test_a_second_with_too_many_lines_does_not_hold_up_the_rest(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_points, "MAX_TEAM_BYTES", 0)
    reader = new_reader()
    server.lines = [*(report(1 + number / 10_000, number) for number in range(5000)), report(3, 9999)]
    for _ in range(9):
        await reader.read(job())
    points, notes = await reader.read(job())
    assert (points[-1].step, notes) == (9999, [])


async def test_points_of_a_run_that_ended_stay(server: FakeServer) -> None:
    reader = new_reader()
    server.lines = [report(1, 1)]
    await reader.read(job())
    server.restarts, server.lines = 2, [report(5, 2)]
    points, _ = await reader.read(job())
    assert [(point.step, point.attempt) for point in points] == [(1, 0), (2, 1), (2, 2)]


async def test_what_may_not_be_read_any_more_is_forgotten(server: FakeServer) -> None:
    reader = new_reader()
    server.lines = [report(1, 1)]
    await reader.read(job())
    server.refuses = True
    assert await reader.read(job()) == ([], ["worker-0: jane may not"])


async def test_points_and_jobs_are_bounded(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_points, "MAX_POINTS", 100)
    monkeypatch.setattr(log_points, "MAX_JOBS", 2)
    reader = new_reader()
    server.lines = [report(second, second) for second in range(1000)]
    points, _ = await reader.read(job())
    assert len(points) <= 100
    assert points[0].step == 0
    assert max(point.step for point in points) >= 990
    for name in ("a", "b"):
        await reader.read(job(name))
    server.sent = []
    await reader.read(job())
    assert len(server.sent) == 1000, "it was forgotten"
