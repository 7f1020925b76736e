"""Signs of life as they are read: from the server's answers, and from files and processes of this machine."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gangline.api.kubeflow.kinds import TFJOB
from gangline.api.kubeflow.training import DRILL_ANNOTATION
from gangline.api.meta import Key
from gangline.health import local_signs
from gangline.health.cluster_signs import MAX_LOGS, ClusterSignReader
from gangline.kube.errors import Forbidden, NotFound, Status
from gangline.kube.pods import PodSubresources
from gangline.node.checkpoint import RunFiles
from gangline.testing import FakeClock
from gangline.testing.builders import make_member

PODS = [make_member("Worker", index, of=TFJOB) for index in range(MAX_LOGS + 2)]
LINE = b"2026-01-01T00:00:07.5Z loss 0.3"


class FakeServer:
    """Answers with metrics of all pods and one line of each log, and counts the requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[str] = []
        self.refusals: dict[str, Exception] = {}

        async def logs(pods: object, key: Key, **options: Any) -> AsyncGenerator[bytes, None]:
            self.ask("logs")
            assert (options["tail"], options["timestamps"]) == (1, True)
            yield LINE

        monkeypatch.setattr(PodSubresources, "logs", logs)

    def ask(self, what: str) -> None:
        self.requests.append(what)
        if what in self.refusals:
            raise self.refusals[what]

    async def list(self, kind: object, where: object) -> Any:
        self.ask("metrics")
        usage = [{"usage": {"cpu": "250m"}}, {"usage": {"cpu": "1"}}]
        return SimpleNamespace(items=[{"metadata": {"name": pod.metadata.name}, "containers": usage} for pod in PODS])


async def test_a_cluster_says_the_last_lines_of_a_few_and_the_cpu_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(monkeypatch)
    signs = await ClusterSignReader(cast(Any, server), FakeClock()).read(TFJOB, PODS)
    assert [one.cores for one in signs] == [1.25] * len(PODS)
    assert [(one.log_mark, one.last_line) for one in signs[:1]] == [("2026-01-01T00:00:07.5Z", "loss 0.3")]
    assert [one.log_mark is None for one in signs] == [False] * MAX_LOGS + [True] * 2
    assert server.requests == ["metrics", *["logs"] * MAX_LOGS]


async def test_what_the_server_refuses_is_said_once_and_not_asked_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gangline.health")
    server, clock = FakeServer(monkeypatch), FakeClock()
    server.refusals = {"logs": Forbidden(Status(code=403)), "metrics": NotFound(Status(code=404))}
    reader = ClusterSignReader(cast(Any, server), clock)
    for _ in range(3):
        signs = await reader.read(TFJOB, PODS)
        assert {(one.log_mark, one.cores) for one in signs} == {(None, None)}
    assert server.requests == ["metrics", "logs"]
    assert len(caplog.records) == 2


def test_a_new_line_or_another_bar_changes_the_mark(tmp_path: Path) -> None:
    run = RunFiles(tmp_path, 0)
    assert local_signs._log_end(run) == (None, "")
    run.log_file.write_bytes(b"2026-01-01T00:00:07Z stdout F saving the model\n")
    mark, line = local_signs._log_end(run)
    assert line == "saving the model"
    run.bar_file.write_text("50 %")
    assert local_signs._log_end(run)[0] != mark


def test_a_replica_that_a_drill_stops_is_to_be_noticed() -> None:
    pod = make_member("Worker", 0, of=TFJOB)
    assert not local_signs._is_drilled(pod)
    for fault, drilled in (("hang", True), ("kill", False)):
        annotations = {DRILL_ANNOTATION: f'{{"id": "x", "fault": "{fault}"}}'}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        assert local_signs._is_drilled(msgspec.structs.replace(pod, metadata=metadata)) == drilled


def test_processes_are_counted_as_long_as_they_live() -> None:
    usage = local_signs._usage([os.getpid(), 2**22 + 1])
    assert usage is not None
    assert usage.cpu_seconds > 0
    assert not usage.is_stopped
    assert local_signs._usage([2**22 + 1]) is None
