"""A log that is read again where it was left: no line twice, none lost."""

import asyncio

import msgspec
import pytest
from aiohttp import web

from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.cli.follow.remotelines import Mark, RemoteLines, Unread
from gangline.cli.output.log_lines import Line
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from support.servers.http import serving


def line(moment: str, text: str) -> Line:
    return Line(f"2026-01-02T03:04:{moment}.000000000Z" if moment else "", "worker-0", text)


LOG = [
    line(*each) for each in (("01", "a"), ("02", "b"), ("02", "c"), ("02", "d"), ("", "broken"), ("03", "e"))
]


def read(mark: Mark, found: list[Line]) -> tuple[Mark, list[str]]:
    unread, seen = Unread(mark), []
    for each in found:
        if unread.has(each):
            mark = mark.after(each)
            seen.append(each.text)
    return mark, seen


@pytest.mark.parametrize("cut", range(len(LOG) + 1))
def test_a_log_that_broke_off_goes_on_where_it_was(cut: int) -> None:
    mark, first = read(Mark(), LOG[:cut])
    # The server begins again at the second of the last line, or before.
    again = [each for each in LOG if not mark.moment or not each.moment or each.moment >= mark.moment]
    _, rest = read(mark, again)
    assert [text for text in first + rest if text != "broken"] == ["a", "b", "c", "d", "e"]


def test_lines_of_one_moment_are_all_told() -> None:
    assert read(Mark(), LOG)[1] == ["a", "b", "c", "d", "broken", "e"]


def test_a_mark_says_from_when_on_to_read() -> None:
    assert Mark().since is None
    since = Mark().after(line("05", "x")).since
    assert since is not None
    assert since.isoformat() == "2026-01-02T03:04:05+00:00"


async def test_the_container_that_trains_is_read_whatever_it_is_called() -> None:
    state = {"name": "mine", "state": {"terminated": {"exitCode": 0}}}
    pod = msgspec.convert(
        {
            "metadata": {"name": "job-launcher", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "mine"}, {"name": "other"}]},
            "status": {"phase": "Succeeded", "containerStatuses": [state]},
        },
        Pod,
    )
    asked: list[str] = []

    async def log(request: web.Request) -> web.Response:
        asked.append(request.query["container"])
        return web.Response(body=b"2026-01-02T03:04:05.000000000Z trained\n")

    async with serving(log) as url, HttpTransport(Connection(server=url)) as transport:
        found = RemoteLines(Client(transport), "mpi", SystemClock())
        found.seen(pod)
        reading = asyncio.ensure_future(found.read())
        await found.rest()
        reading.cancel()
        assert [said.text for said in found.lines()] == ["trained"]
    assert asked == ["mine"]
