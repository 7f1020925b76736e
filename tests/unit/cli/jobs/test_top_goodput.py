"""`gangline top --goodput`: a row for each queue, with a column of namespaces if there may be several."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner

from gangline.api.meta import JSON
from gangline.cli.connect.server import ServerTarget
from gangline.cli.jobs.top import top
from gangline.cli.jobs.top_goodput import show_goodput
from gangline.kube.config.connection import Connection
from gangline.kube.errors import NotFound, Status


class Page:
    def __init__(self, *items: JSON) -> None:
        self.items = items


class JobServer:
    """Serves PyTorchJobs, and no other kind. The versions of MPIJob would show the same jobs."""

    def __init__(self, *jobs: JSON) -> None:
        self.jobs = jobs

    async def pages(self, resource: Any, selector: Any) -> AsyncIterator[Page]:
        if resource.kind not in ("PyTorchJob", "MPIJob"):
            raise NotFound(Status(code=404))
        yield Page(*self.jobs)


def job(name: str, namespace: str, **seconds: int) -> JSON:
    ledger = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:00:00Z", "seconds": seconds}
    return {"metadata": {"name": name, "namespace": namespace, "uid": name}, "status": {"goodput": ledger}}


def target(namespace: str) -> ServerTarget:
    return ServerTarget(Connection(server="http://x", namespace="default"), namespace)


async def test_all_namespaces_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    server: Any = JobServer(
        job("a", "red", working=75, queueing=25), job("b", "blue", idle=5), job("c", "red", idle=100)
    )
    await show_goodput(None, server, target(""), headers=True)
    header, blue, red = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["NAMESPACE", "QUEUE", "JOBS", "TIME"]
    assert blue.split() == ["blue", "-", "1", "5s", "-", "-", "-", "-", "-", "-", "100", "%"]
    # Each job is counted once, though two kinds show it.
    assert red.split()[:4] == ["red", "-", "2", "3m20s"]


async def test_jobs_without_a_ledger_are_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    server: Any = JobServer({"metadata": {"name": "a", "uid": "a"}})
    await show_goodput(None, server, target("red"), headers=False)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no job has a ledger of its time" in shown.err


@pytest.mark.parametrize("flags", [["--watch"], ["bert", "--curve", "loss"]])
def test_goodput_is_shown_once(flags: list[str]) -> None:
    result = CliRunner().invoke(top, ["--goodput", *flags])
    assert result.exit_code == 1
    assert "leave out --watch and --curve" in f"{result.output}{result.exception}"
