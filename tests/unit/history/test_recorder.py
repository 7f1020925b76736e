"""The recorder: ends of logs, verdicts, disks that fail, and clusters through informers."""

import logging
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME
from gangline.apiserver.store.paths import ObjectPath
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.history.cluster import ClusterRecorder
from gangline.history.endings import ContainerEnd, last_lines, lines_until
from gangline.history.reader import HistoryReader
from gangline.history.recorder import RETRY_SECONDS, HistoryRecorder
from gangline.history.retention import HistoryLimits, segment_paths
from gangline.kube.client import Client
from gangline.kube.pod_metrics import PodUsage
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from gangline.testing.clock import FakeClock
from support.builders.histories import busy_team
from support.waiting import wait_until

JOB, POD = "/kubeflow.org/pytorchjobs/default/bert", "//pods/default/bert-worker-0"


def job(*conditions: str) -> JSON:
    held = [{"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"} for kind in conditions]
    metadata = {"name": "bert", "namespace": "default", "uid": "job-1"}
    return {
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": {}},
        "status": {"conditions": held},
    }


def pod(restarts: int, **state: JSON) -> JSON:
    owner = {"uid": "job-1", "controller": True}
    container: JSON = {"name": "main", "restartCount": restarts, "containerID": f"process://{restarts}", "state": state}
    if restarts:
        container["lastState"] = {"terminated": {"containerID": f"process://{restarts - 1}"}}
    metadata = {"name": "bert-worker-0", "namespace": "default", "uid": "pod-1", "ownerReferences": [owner]}
    return {"kind": "Pod", "metadata": metadata, "status": {"containerStatuses": [container]}}


class Observer:
    """Gives every log the text of its run, and every job a verdict."""

    def __init__(self) -> None:
        self.explained: list[str] = []

    async def read_log(self, path: ObjectPath, body: JSON, end: ContainerEnd) -> str:
        return f"2026-01-01T00:00:00Z {end.container} {end.run} {end.attempt}\n"

    async def diagnose(self, path: ObjectPath) -> JSON | None:
        self.explained.append(path.name)
        return {"cause": f"number {len(self.explained)}"}


class SteppedClock(FakeClock):
    """A clock whose time, but not whose running, is ahead by a step."""

    step = timedelta()

    def now(self) -> datetime:
        return super().now() + self.step


def recorder(folder: Path, clock: FakeClock, observer: Observer) -> HistoryRecorder:
    made = HistoryRecorder(folder, clock, "one", read_log=observer.read_log, diagnose=observer.diagnose)
    made.begin(made.now, {})
    return made


async def collected(recording: HistoryRecorder) -> None:
    await recording.collect_logs()
    await recording.collect_verdicts()
    await recording.write()


async def test_what_pods_use_is_recorded_while_they_run(tmp_path: Path) -> None:
    clock, asked = FakeClock(), 0

    async def measure() -> dict[str, PodUsage]:
        nonlocal asked
        asked += 1
        return {POD: PodUsage(1.5, 3 * 2**20), "//pods/default/unknown": PodUsage(9.0, 1)}

    recording = HistoryRecorder(tmp_path, clock, "one", measure=measure)
    recording.begin(recording.now, {JOB: job("Running")})
    await recording.collect_usage()
    assert asked == 0, "no pod runs"
    running = pod(0, running={})
    recording.record(recording.now, POD, {**running, "status": {**running["status"], "phase": "Running"}})
    await recording.collect_usage()
    await recording.write()
    (sample,) = HistoryReader(tmp_path).usage("default", "pytorchjobs", "bert")
    assert (sample.pod, sample.uid, sample.cores, sample.memory) == ("bert-worker-0", "pod-1", 1.5, 3 * 2**20)
    recording.finish()
    assert HistoryReader(tmp_path).usage("default", "pytorchjobs", "bert") == [sample]


async def test_usage_of_a_job_that_does_not_change_is_found_in_every_segment(tmp_path: Path) -> None:
    async def measure() -> dict[str, PodUsage]:
        return {POD: PodUsage(1.0, 2**20)}

    recording = HistoryRecorder(tmp_path, FakeClock(), "one", measure=measure, limits=HistoryLimits(segment_bytes=1))
    running = pod(0, running={})
    body = {**running, "status": {**running["status"], "phase": "Running"}}
    recording.begin(recording.now, {JOB: job("Running"), POD: body})
    for _ in range(100):
        await recording.collect_usage()
        await recording.write()
    assert len(segment_paths(tmp_path)) > 2
    assert len(HistoryReader(tmp_path).usage("default", "pytorchjobs", "bert")) == 100
    recording.finish()
    assert len(HistoryReader(tmp_path).usage("default", "pytorchjobs", "bert")) == 100


async def test_each_run_of_a_container_leaves_the_end_of_its_log_once(tmp_path: Path) -> None:
    recording = recorder(tmp_path, FakeClock(), Observer())
    recording.record(recording.now, JOB, job("Running"))
    for body in (pod(0, running={}), pod(1, running={}), pod(1, running={"startedAt": "x"}), pod(2, running={}), None):
        recording.record(recording.now, POD, body)
        await collected(recording)
    recording.finish()
    ends = HistoryReader(tmp_path).log_ends("default", "pytorchjobs", "bert")
    assert [(end.run, end.attempt) for end in ends] == [("process://0", 0), ("process://1", 1), ("process://2", 2)]


async def test_a_failure_is_explained_once_and_a_long_wait_too(tmp_path: Path) -> None:
    clock, observer = FakeClock(), Observer()
    recording = recorder(tmp_path, clock, observer)
    recording.record(recording.now, JOB, job("Created"))
    for _ in range(5):
        await clock.advance(timedelta(seconds=50))
        recording.record(recording.now, JOB, job("Created"))
        await collected(recording)
    assert observer.explained == ["bert"]
    for _ in range(3):
        recording.record(recording.now, JOB, job("Created", "Failed"))
        await collected(recording)
    recording.finish()
    verdicts = HistoryReader(tmp_path).verdicts("default", "pytorchjobs", "bert")
    assert [verdict.report["cause"] for verdict in verdicts] == ["number 1", "number 2"]


async def test_a_disk_that_fails_costs_lines_of_the_history_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, folder = FakeClock(), tmp_path / "history"
    folder.write_text("in the way")
    recording = recorder(folder, clock, Observer())
    recording.record(recording.now, JOB, job("Created"))
    with caplog.at_level(logging.WARNING):
        await recording.write()
        await recording.write()
    assert [record.message for record in caplog.records] == ["the history cannot be written, will retry"]
    folder.unlink()
    recording.record(recording.now, JOB, job("Running"))
    await clock.advance(timedelta(seconds=RETRY_SECONDS + 1))
    recording.record(recording.now, POD, pod(0))
    await recording.write()
    recording.finish()
    reader = HistoryReader(folder)
    assert reader.objects_at(recording.now) == {JOB: job("Running"), POD: pod(0)}


async def test_after_the_clock_was_set_back_moments_are_those_of_the_new_time(tmp_path: Path) -> None:
    clock, reader = SteppedClock(), HistoryReader(tmp_path)
    clock.step = timedelta(days=300)
    recording = recorder(tmp_path, clock, Observer())

    async def shows(*conditions: str) -> bool:
        await clock.advance(timedelta(seconds=1))
        moment = reader.last_recorded(recording.now)
        return moment is not None and reader.objects_at(moment) == {JOB: job(*conditions)}

    async with background_tasks(recording.run()):
        recording.record(recording.now, JOB, job("Created"))
        await wait_until(lambda: shows("Created"))
        clock.step = timedelta()
        assert reader.last_recorded(recording.now) is None
        await wait_until(lambda: shows("Created"))
        recording.record(recording.now, JOB, job("Running"))
        await wait_until(lambda: shows("Running"))
    recording.finish()


def test_the_end_of_a_log_is_complete_lines() -> None:
    assert last_lines("a\nb\nc\n", 2, 100) == "b\nc\n"
    assert last_lines("aaaa\nbbbb\ncccc\n", 9, 10) == "bbbb\ncccc\n"
    assert last_lines("", 9, 10) == ""


class LogServer:
    """Serves a log as a kubelet does: of the last lines, the first bytes."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    async def logs(self, pod: Key, *, tail: int, limit_bytes: int, **options: object) -> AsyncIterator[bytes]:
        for line in b"".join(line + b"\n" for line in self._lines[-tail:])[:limit_bytes].split(b"\n")[:-1]:
            yield line


@pytest.mark.parametrize("length", [50, 5_000, 50_000, 500_000])
async def test_of_a_clusters_logs_the_end_is_recorded(tmp_path: Path, length: int) -> None:
    nobody: Any = None
    recording = ClusterRecorder(nobody, tmp_path, FakeClock(), "cluster")
    recording._pods = cast(Any, LogServer(*([b"x" * length] * 99), b"the end"))
    end = ContainerEnd("main", "process://0", 0, previous=False)
    text = await recording._read_log(ObjectPath("", "pods", "default", "bert-worker-0"), {}, end)
    assert text.endswith("the end\n")


def test_a_line_that_is_too_long_is_cut_and_takes_no_other_with_it() -> None:
    assert last_lines(f"before\n{'x' * 1000}\n", 9, 100) == f"before\n{'x' * 49}\n"
    assert last_lines(f"before\n{'é' * 1000}\nafter\n", 9, 100) == f"before\n{'é' * 24}\nafter\n"


def test_a_progress_bar_is_one_line() -> None:
    bar = "2026-11-18T12:00:00.5Z 10%\r 20% done\x0c\u2028\n"
    assert last_lines(f"first\n{bar}", 1, 100) == bar
    assert lines_until(bar, datetime(2026, 11, 18, 13, tzinfo=UTC)) == [bar]
    assert lines_until(bar, datetime(2026, 11, 18, 11, tzinfo=UTC)) == []


async def test_a_cluster_is_recorded_through_a_client_that_only_reads(tmp_path: Path) -> None:
    clock = SystemClock()
    async with (
        Store() as store,
        control_plane(store, PlaneSettings(), clock) as plane,
        HttpTransport(plane.connection) as transport,
    ):
        client = Client(transport, scheme=CORE_SCHEME, clock=clock)
        pods, secrets = CORE_SCHEME.find("pods"), CORE_SCHEME.find("secrets")
        container = {"name": "main", "image": "none"}
        for name in ("one", "two"):
            body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
            await client.create(pods, {"apiVersion": "v1", "kind": "Pod", **body})
        recording = ClusterRecorder(client, tmp_path, clock, "cluster")
        reader = HistoryReader(tmp_path)

        def paths() -> set[str]:
            span = max(reader.spans(), key=lambda span: span.end, default=None)
            return set(reader.objects_at(span.end)) if span is not None else set()

        async with background_tasks(recording.run()):
            await wait_until(lambda: {"//pods/default/one", "//pods/default/two"} <= paths())
            body = {"metadata": {"name": "login", "namespace": "default"}, "stringData": {"password": "sesame"}}
            await client.create(secrets, {"apiVersion": "v1", "kind": "Secret", **body})
            await client.delete(pods, Key("default", "one"), grace=timedelta())
            await wait_until(lambda: "//pods/default/one" not in paths())
        assert "//pods/default/two" in paths()
        assert not any("/secrets/" in version.path for version in reader.changes(0, sys.maxsize))


def test_a_busy_team_takes_little_space(tmp_path: Path) -> None:
    """A fiftieth of a week of 200 jobs a day; `make bench-history` writes the whole week."""
    from gangline.history.records import LogLine
    from gangline.history.selection import recorded_body
    from gangline.history.writer import HistoryWriter

    writer, flushed, last = None, 0.0, 0.0
    for at, path, body, log in busy_team(7 / 50, 200):
        writer = writer or HistoryWriter(tmp_path, at, source="one")
        if at - flushed > 1:
            writer.flush()
            flushed = at
        if log and body is not None:
            writer.record_log(at, path, body, LogLine(0, 0, "main", "process://1", 0, log))
        else:
            writer.record(at, path, recorded_body(path, body) if body is not None else None)
        last = at
    assert writer is not None
    writer.close(last)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100e6 / 50
    jobs = HistoryReader(tmp_path).jobs()
    assert len(jobs) == 28
    assert {job.state for job in jobs} == {"Succeeded"}
