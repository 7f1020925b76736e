"""A log that is resumed after an interruption: no line twice, none lost."""

import asyncio
from functools import partial

import msgspec
import pytest
from aiohttp import web

from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.cli.follow.log_sources import LogPosition, ResumeFilter, ServerLogSource
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from gangline.summary.log_lines import TimedLine
from support.servers.http import http_server


def line(moment: str, text: str) -> TimedLine:
    return TimedLine(f"2026-01-02T03:04:{moment}.000000000Z" if moment else "", "worker-0", text)


LOG = [line(*each) for each in (("01", "a"), ("02", "b"), ("02", "c"), ("02", "d"), ("", "broken"), ("03", "e"))]


def read(position: LogPosition, lines: list[TimedLine]) -> tuple[LogPosition, list[str]]:
    resume, texts = ResumeFilter(position), []
    for each in lines:
        if resume.is_new(each):
            position = position.advanced_by(each)
            texts.append(each.text)
    return position, texts


@pytest.mark.parametrize("cut", range(len(LOG) + 1))
def test_an_interrupted_log_is_resumed_at_its_position(cut: int) -> None:
    position, first = read(LogPosition(), LOG[:cut])
    # The server sends the log again from the timestamp of the last line on.
    second_read = [
        each for each in LOG if not position.timestamp or not each.timestamp or each.timestamp >= position.timestamp
    ]
    _, rest = read(position, second_read)
    assert [text for text in first + rest if text != "broken"] == ["a", "b", "c", "d", "e"]


def test_lines_of_one_timestamp_are_all_new() -> None:
    assert read(LogPosition(), LOG)[1] == ["a", "b", "c", "d", "broken", "e"]


def test_a_position_has_the_time_to_resume_from() -> None:
    assert LogPosition().since is None
    since = LogPosition().advanced_by(line("05", "x")).since
    assert since is not None
    assert since.isoformat() == "2026-01-02T03:04:05+00:00"


async def test_the_training_container_is_read_whatever_its_name() -> None:
    state = {"name": "mine", "state": {"terminated": {"exitCode": 0}}}
    pod = msgspec.convert(
        {
            "metadata": {"name": "job-launcher", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "mine"}, {"name": "other"}]},
            "status": {"phase": "Succeeded", "containerStatuses": [state]},
        },
        Pod,
    )
    containers: list[str] = []

    async def log(request: web.Request) -> web.Response:
        containers.append(request.query["container"])
        return web.Response(body=b"2026-01-02T03:04:05.000000000Z trained\n")

    async with http_server(log) as url, HttpTransport(Connection(server=url)) as transport:
        lines = ServerLogSource(Client(transport), partial(training_container_name, container="mpi"), SystemClock())
        lines.update_pod(pod)
        reading = asyncio.ensure_future(lines.run())
        await lines.drain()
        reading.cancel()
        assert [said.text for said in lines.new_lines()] == ["trained"]
    assert containers == ["mine"]
