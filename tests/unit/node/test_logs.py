"""Reading the logs of containers."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from gangline.api.meta import Key
from gangline.base.errors import InputError
from gangline.kube.podstreams import LogOptions, NoLogs
from gangline.node.api.server import NodeApi, log_options, serve_node_api
from gangline.node.checkpoint import RunFiles, RunRecord, StateFolder
from gangline.node.logs import (
    CHUNK_BYTES,
    LogFollower,
    NamespaceLogTail,
    NodeLogReader,
    PodLogLine,
    tail_text,
)
from gangline.testing.clock import FakeClock, settle

KEY = Key("default", "p")


def line(text: str, *, second: int = 0, mark: str = "F") -> str:
    return f"2026-01-01T00:00:{second:02d}.123456789Z stdout {mark} {text}\n"


def run(state: Path, attempt: int = 0, container: str = "main") -> RunFiles:
    files = StateFolder(state).pod(KEY, "u").run_files(container, attempt)
    files.begin(RunRecord("id", attempt))
    return files


async def read(state: Path, **options: object) -> str:
    reader = NodeLogReader(state, FakeClock())
    parts = [part async for part in reader.read(KEY, "main", LogOptions(**options))]  # type: ignore[arg-type]
    return b"".join(parts).decode()


@pytest.fixture
def three(tmp_path: Path) -> Path:
    run(tmp_path).log_file.write_text("".join(line(f"l{number}", second=number) for number in range(3)))
    return tmp_path


async def test_all_of_it(three: Path) -> None:
    assert await read(three) == "l0\nl1\nl2\n"


async def test_the_last_lines(three: Path) -> None:
    assert await read(three, tail=2) == "l1\nl2\n"
    assert await read(three, tail=0) == ""
    assert await read(three, tail=9) == "l0\nl1\nl2\n"


async def test_since_a_moment(three: Path) -> None:
    assert await read(three, since=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)) == "l1\nl2\n"


async def test_with_timestamps(three: Path) -> None:
    assert (await read(three, tail=1, timestamps=True)) == "2026-01-01T00:00:02.123456789Z l2\n"


async def test_no_more_bytes_than_asked(three: Path) -> None:
    assert await read(three, limit_bytes=4) == "l0\nl"


async def test_parts_of_a_long_line_are_one_line(tmp_path: Path) -> None:
    run(tmp_path).log_file.write_text(line("a") + line("b", mark="P") + line("c", mark="P") + line("d") + line("e"))
    assert await read(tmp_path) == "a\nbcd\ne\n"
    assert await read(tmp_path, tail=2) == "bcd\ne\n"


async def test_a_long_log_is_read_in_pieces_and_comes_whole(tmp_path: Path) -> None:
    texts = [f"{number:05d} {'x' * 100}" for number in range(3 * CHUNK_BYTES // 100)]
    run(tmp_path).log_file.write_text("".join(map(line, texts)))
    assert (await read(tmp_path)).splitlines() == texts
    assert (await read(tmp_path, tail=4000)).splitlines() == texts[-4000:]
    assert (await read(tmp_path, tail=1)).splitlines() == texts[-1:]
    assert len(await read(tmp_path, limit_bytes=CHUNK_BYTES)) == CHUNK_BYTES


async def test_a_run_is_found_by_its_identity(tmp_path: Path) -> None:
    for attempt, name in enumerate(("first", "second")):
        files = run(tmp_path, attempt)
        files.begin(RunRecord(name, attempt))
        files.log_file.write_text(line(f"the {name}"))
    reader = NodeLogReader(tmp_path, FakeClock())
    log = reader.read_run(KEY, "u", "main", "first", LogOptions())
    assert [part async for part in log] == [b"the first\n"]
    with pytest.raises(NoLogs, match="unable to retrieve container logs for process://third"):
        reader.read_run(KEY, "u", "main", "third", LogOptions())


async def test_the_previous_run(three: Path) -> None:
    with pytest.raises(NoLogs, match="previous terminated container"):
        await read(three, previous=True)
    run(three, 1).log_file.write_text(line("again"))
    assert await read(three) == "again\n"
    assert await read(three, previous=True) == "l0\nl1\nl2\n"


async def test_an_unknown_container_has_no_logs(tmp_path: Path) -> None:
    with pytest.raises(NoLogs):
        await read(tmp_path)


async def test_rotated_files_are_read_in_order(tmp_path: Path) -> None:
    log = run(tmp_path).log_file
    for name, text in (("0.log.2", "a"), ("0.log.1", "b"), ("0.log", "c")):
        (log.parent / name).write_text(line(text))
    assert await read(tmp_path) == "a\nb\nc\n"


async def test_following_ends_with_the_run(tmp_path: Path) -> None:
    files, clock = run(tmp_path), FakeClock()
    lock = files.lock.acquire()
    files.log_file.write_text(line("first"))
    parts: list[bytes] = []

    async def follow() -> None:
        async for part in NodeLogReader(tmp_path, clock).read(KEY, "main", LogOptions(follow=True)):
            parts.append(part)  # noqa: PERF401 - `parts` is read while it grows

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        await settle()
        assert parts == [b"first\n"]
        with files.log_file.open("a") as log:
            log.write(line("second"))
        await clock.advance(timedelta(seconds=1))
        assert parts == [b"first\n", b"second\n"]
        with files.log_file.open("a") as log:
            log.write(line("last"))
        os.close(lock)
        await clock.advance(timedelta(seconds=1))
    assert parts[-1] == b"last\n"


def test_a_follower_crosses_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text(line("a"))
    follower = LogFollower(log)
    assert [entry.text for entry in follower.read()] == [b"a"]
    with log.open("a") as file:
        file.write(line("b"))
    log.rename(tmp_path / "0.log.1")
    log.write_text(line("c"))
    assert [entry.text for entry in follower.read()] == [b"b", b"c"]
    assert follower.read() == []
    follower.close()


def test_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    files = run(tmp_path)
    tail = NamespaceLogTail(tmp_path)
    files.log_file.write_text(line("a") + line("half", mark="P"))
    assert list(tail.lines("default")) == [PodLogLine("p", "main", "a")]
    with files.log_file.open("a") as log:
        log.write(line("-line"))
    assert list(tail.lines("default")) == [PodLogLine("p", "main", "half-line")]
    assert list(tail.lines("other")) == []
    tail.close()


def test_the_end_of_a_log_is_a_message(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text("".join(line(f"l{number}") for number in range(200)))
    assert tail_text(log).endswith("l198\nl199\n")
    assert len(tail_text(log).splitlines()) == 80


async def test_a_kube_apiserver_reads_logs_from_the_kubelets_path(three: Path) -> None:
    server = NodeApi(NodeLogReader(three, FakeClock()), FakeClock().now)
    async with serve_node_api(server, "127.0.0.1") as port, aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status, await answer.text()

        assert await get("/containerLogs/default/p/main?tailLines=1") == (200, "l2\n")
        assert await get("/containerLogs/default/p/main?follow=true") == (200, "l0\nl1\nl2\n")
        assert (await get("/containerLogs/default/p/main?tailLines=x"))[0] == 400
        assert (await get("/containerLogs/default/p/other"))[0] == 404
        assert await get("/healthz") == (200, "ok")


def test_options_of_a_request() -> None:
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    query = {"follow": "true", "tailLines": "5", "sinceSeconds": "60", "limitBytes": "9", "timestamps": "1"}
    assert log_options(query, now) == LogOptions(
        follow=True, tail=5, since=now - timedelta(minutes=1), limit_bytes=9, timestamps=True
    )
    assert log_options({"sinceTime": "2026-01-01T00:01:00Z"}, now).since == now
    with pytest.raises(InputError, match="sinceTime"):
        log_options({"sinceTime": "yesterday"}, now)
