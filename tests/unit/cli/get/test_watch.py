"""`get -w`: rows of changes, across a server that goes away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON, ListMeta, Selector
from gangline.api.scheme import Resource
from gangline.cli.connect.server import ServerTarget
from gangline.cli.get import watch
from gangline.cli.get.query import ObjectQuery
from gangline.cli.get.view import GetFlags, KindGroup
from gangline.cli.get.watch import watch_groups
from gangline.cli.resources.watch import Reconnects
from gangline.kube.config.connection import Connection
from gangline.kube.errors import KubeError, Unreachable
from gangline.kube.pages import Page
from gangline.kube.transport.api import Request
from gangline.summary.objects import JOB_KINDS, PODS
from gangline.testing.clock import FakeClock

TARGET = ServerTarget(Connection(server="http://server"), "team")


class Finished(Exception):
    """Raised at the end of the script."""


class TableServer:
    """Answers lists with tables of one pod each, and every watch by breaking it."""

    def __init__(self, *lists: Any) -> None:
        self._lists = list(lists)
        self.requests = self

    async def call_typed(self, request: Request, kind: Any) -> Any:
        answer = self._lists.pop(0) if self._lists else Finished()
        if isinstance(answer, Exception):
            raise answer
        return msgspec.convert(answer, kind)

    def stream(self, request: Request) -> Any:
        raise Unreachable("the connection broke")


def table(*rows: tuple[str, str, str]) -> JSON:
    columns = [{"name": "Name"}, {"name": "Status"}]
    return {
        "columnDefinitions": columns,
        "metadata": {"resourceVersion": "1"},
        "rows": [
            {"cells": [name, state], "object": {"metadata": {"uid": name, "resourceVersion": version}}}
            for name, state, version in rows
        ],
    }


def query(kind: Resource[JSON]) -> KindGroup:
    return KindGroup((ObjectQuery(kind, (), Selector("team"), "team"),))


async def test_the_table_of_a_server_that_comes_back_shows_what_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "Reconnects", lambda limit: Reconnects(limit, _NoWait()))
    server: Any = TableServer(
        table(("a", "Pending", "1"), ("b", "Running", "2")),
        Unreachable("refused"),
        table(("a", "Running", "3"), ("b", "Running", "2")),
    )
    with suppress(ExceptionGroup):
        await watch_groups(server, [query(PODS)], TARGET, GetFlags(watch=True))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [["NAME", "STATUS"], ["a", "Pending"], ["b", "Running"], ["a", "Running"]]


class _NoWait(FakeClock):
    async def sleep(self, duration: Any) -> None:
        pass


class WaitingJob:
    """A job that stays Created; its pod is first unscheduled for one reason, then for another."""

    def __init__(self) -> None:
        self.message = "no node has a gpu"
        self.listed = asyncio.Event()

    async def pages(self, kind: Resource[JSON], selector: Selector, *, limit: int) -> AsyncIterator[Page[JSON]]:
        yield await self.list(kind, selector)

    async def list(self, kind: Resource[JSON], selector: Selector) -> Page[JSON]:
        if kind is PODS:
            self.listed.set()
            condition = {"type": "PodScheduled", "status": "False", "message": self.message}
            labels = {"training.kubeflow.org/job-name": "bert"}
            metadata = {"namespace": "team", "name": "bert-worker-0", "labels": labels}
            return Page(items=({"metadata": metadata, "status": {"conditions": [condition]}},), metadata=ListMeta())
        if kind not in JOB_KINDS:
            raise KubeError("no such kind")
        metadata = {"namespace": "team", "name": "bert", "uid": "u", "resourceVersion": "1"}
        status = {"conditions": [{"type": "Created", "status": "True"}]}
        return Page(items=({"metadata": metadata, "spec": {}, "status": status},), metadata=ListMeta())

    async def watch(self, kind: Resource[JSON], selector: Selector, *, since: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


async def test_a_waiting_job_has_its_reason_and_a_new_row_when_the_reason_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(watch, "SystemClock", lambda: clock)
    server: Any = WaitingJob()
    watching = asyncio.create_task(watch_groups(server, [query(JOB_KINDS[1])], TARGET, GetFlags(watch=True)))
    await server.listed.wait()
    await clock.advance(watch.REFRESH_INTERVAL)
    server.message = "no node is left"
    for _ in range(2):
        await clock.advance(watch.REFRESH_INTERVAL)
    watching.cancel()
    await asyncio.wait([watching])
    reasons = [line.rpartition("   ")[2] for line in capsys.readouterr().out.splitlines()]
    assert reasons == ["REASON", "worker-0: no node has a gpu", "worker-0: no node is left"]
