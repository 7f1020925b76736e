"""What is said at the end of a removal, and when a command is interrupted."""

import asyncio
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.install import run
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.record import ObjectRef
from gangline.cli.install.uninstall import has_kubeflow_operator, kept_text, list_jobs
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from support.servers.scripted import ScriptedTransport, json_response

CRDS = [ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "tfjobs.kubeflow.org")]
RUNNING: JSON = {"metadata": {"name": "a", "namespace": "team"}, "status": {}}


def test_jobs_without_an_operator_are_named_and_those_of_another_one_are_not() -> None:
    text = "kept: 1 definitions (CRDs) and 1 jobs"
    assert kept_text(CRDS, [RUNNING]) == f"{text} (1 have not ended, and no operator looks after them now)"
    assert kept_text(CRDS, [RUNNING], is_served=True) == text
    assert kept_text([], []) == ""


@pytest.mark.parametrize(("replicas", "runs"), [(1, True), (0, False)])
async def test_the_kubeflow_operator_may_have_the_jobs_again(replicas: int, runs: bool) -> None:
    template = {"spec": {"containers": [{"image": "docker.io/kubeflow/training-operator:v1"}]}}
    other = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"template": {"spec": {"containers": []}}}}
    kubeflow = {"metadata": other["metadata"], "spec": {"replicas": replicas, "template": template}}
    transport = ScriptedTransport(lambda _: json_response({"items": [other, kubeflow], "metadata": {}}))
    assert await has_kubeflow_operator(ClusterObjects(Client(transport))) is runs


def test_an_interrupted_command_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ServerTarget(Connection(server="https://a.example"), "default")

    def run_here(_: ServerOptions, work: Any, **__: object) -> int:
        code: int = asyncio.run(work(None, target))
        return code

    async def interrupted(_: Client, __: ServerTarget) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_blocking", run_here)
    with pytest.raises(KeyboardInterrupt):
        run.run_on_cluster(ServerOptions(), interrupted)
    assert "write the same command again" in capsys.readouterr().err


async def test_only_the_jobs_of_the_served_namespaces_are_counted() -> None:
    job: JSON = {"metadata": {"name": "a", "namespace": "team"}}
    transport = ScriptedTransport(
        lambda request: json_response(
            {"items": [job] if "/namespaces/team/tfjobs" in request.path else [], "metadata": {}}
        )
    )
    objects = ClusterObjects(Client(transport))
    assert len(await list_jobs(objects, ["other", "team"])) == 1
    assert await list_jobs(objects, ["other"]) == []
