"""A job of which only the record is left."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from gangline.api.meta import JSON, Key
from gangline.dashboard.live.past import Past
from gangline.dashboard.live.rights import AccessRefused, Refusal, ViewerRights
from gangline.dashboard.settings import DashboardSettings
from gangline.dashboard.web.endpoints import ViewerEndpoints
from gangline.dashboard.web.guard import Refused
from gangline.history.writer import HistoryWriter
from gangline.kube.config.connection import Connection
from gangline.summary.objects import JOB_KINDS
from gangline.testing.clock import FakeClock

PYTORCH = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
BERT = Key("default", "bert")
JOB: JSON = {
    "kind": "PyTorchJob",
    "metadata": {"name": "bert", "namespace": "default", "uid": "1", "creationTimestamp": "2026-11-18T12:00:00Z"},
    "spec": {"pytorchReplicaSpecs": {}},
    "status": {},
}


class AllRights:
    """A viewer who may read everything."""

    async def is_granted(self, access: object) -> bool:
        return True


class TeamRights(AllRights):
    """A viewer who may read nodes, and pods of one namespace."""

    async def is_granted(self, access: Any) -> bool:
        return bool(access.resource.plural != "pods" or access.namespace == "team-a")

    async def refusal(self, access: Any) -> Refusal:
        return Refusal(resource=access.resource.plural, namespace="", message="no")


def pod(namespace: str, name: str, node: str = "") -> JSON:
    container = {"name": "pytorch", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running" if node else "Pending"},
    }


NODE: JSON = {
    "metadata": {"name": "one", "uid": "n"},
    "status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


async def test_the_cluster_of_an_earlier_moment_has_its_nodes_and_the_pods_that_may_be_read(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, "//nodes//one", NODE)
    writer.record(102.0, "//pods/team-a/p", pod("team-a", "p"))
    writer.record(103.0, "//pods/team-a/p", pod("team-a", "p", "one"))
    writer.record(103.0, "//pods/team-b/q", pod("team-b", "q", "one"))
    writer.record(104.0, "//pods/team-a/p", None)
    writer.close(105.0)

    async def used(at: float, viewer: AllRights) -> tuple[float, int]:
        rights: Any = viewer
        view = await Past(tmp_path, rights).cluster_at(datetime.fromtimestamp(at, UTC))
        (node,) = view.nodes
        return node.resources["cpu"].used, len(view.refused)

    assert [await used(at, AllRights()) for at in (102.5, 103.5, 104.5)] == [(0.0, 0), (4.0, 0), (2.0, 0)]
    assert await used(103.5, TeamRights()) == (2.0, 1)


@pytest.fixture
def past(tmp_path: Path) -> Past:
    """A record that does not know yet that the job was deleted: it is written once a second."""
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, "/kubeflow.org/pytorchjobs/default/bert", JOB)
    writer.close(102.0)
    rights: Any = AllRights()
    return Past(tmp_path, rights)


async def test_a_job_that_the_server_has_no_more_is_deleted_although_the_record_is_behind(past: Past) -> None:
    detail = await past.detail(PYTORCH, BERT, "", datetime.fromtimestamp(103, UTC), past=False)
    assert (detail.row.name, detail.deleted, detail.recorded) == ("bert", True, True)


async def test_at_an_earlier_moment_it_was_there(past: Past) -> None:
    detail = await past.detail(PYTORCH, BERT, "", datetime.fromtimestamp(101.5, UTC), past=True)
    assert (detail.row.name, detail.deleted) == ("bert", False)


async def test_who_may_not_read_logs_is_told_so(tmp_path: Path) -> None:
    server: Any = RefusingServer()
    past = Past(tmp_path, ViewerRights(server, FakeClock()))
    with pytest.raises(
        AccessRefused, match=r"jane may not get pods/log in namespace default; .* --clusterrole view"
    ) as refused:
        await past.log_ends(PYTORCH, BERT)
    assert refused.value.refusal.resource == "pods/log"


class RefusingServer:
    """A server on which jane may do nothing."""

    async def create(self, resource: Any, body: JSON) -> JSON:
        return {"status": {"allowed": False, "userInfo": {"username": "jane"}}}


async def test_jobs_of_one_name_on_two_servers_are_two_rows(tmp_path: Path) -> None:
    for source in ("one", "two"):
        writer = HistoryWriter(tmp_path, 100.0, source=source)
        writer.record(
            101.0, "/kubeflow.org/pytorchjobs/default/bert", JOB | {"metadata": JOB["metadata"] | {"uid": source}}
        )
        writer.close(110.0)
    rights: Any = AllRights()
    rows = await Past(tmp_path, rights).rows_at(datetime.fromtimestamp(105.0, UTC))
    assert sorted(row.uid for row in rows) == ["one", "two"]


async def test_a_verdict_of_another_version_is_named_as_that(tmp_path: Path) -> None:
    path = "/kubeflow.org/pytorchjobs/default/bert"
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, path, JOB)
    writer.record_verdict(102.0, path, JOB, {"verdict": {"of": "a later version"}})
    writer.close(103.0)
    rights: Any = AllRights()
    viewer: Any = SimpleNamespace(past=Past(tmp_path, rights))
    endpoints = ViewerEndpoints(DashboardSettings(connection=Connection(server="http://127.0.0.1:9")))
    place = {"namespace": "default", "plural": "pytorchjobs", "name": "bert"}
    request = make_mocked_request("GET", "/why?uid=1", match_info=place)
    with pytest.raises(
        Refused, match=r"bert: what was recorded about why is of another version of gangline"
    ) as refused:
        await endpoints.why(request, viewer)
    assert refused.value.code == 404
