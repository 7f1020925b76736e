"""What a node writes on its pods, and what it reads there: progress and drills."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.drill import Fault, Order, answered
from gangline.api.kubeflow.training import DRILL, DRILLED, PROGRESS
from gangline.api.meta import JSON
from support.cluster.node import QUICK, main, node, until, written
from support.servers.node_api import NodeApi, key, pod_body, sh


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


def ordered(order: Order) -> JSON:
    return {"metadata": {"annotations": {DRILL: msgspec.json.encode(order).decode()}}}


def notes(api: NodeApi) -> dict[str, str]:
    found: dict[str, str] = api.pod("p")["metadata"].get("annotations", {})
    return found


async def test_the_last_report_of_a_program_is_on_its_pod_before_its_end_is(
    api: NodeApi, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(QUICK, progress_period=timedelta(hours=1))
    script = 'for n in 1 2 3; do echo \'{"progress": {"step": \'$n\', "total": 3}}\'; sleep 0.2; done'
    async with node(api, tmp_path, settings):
        await api.client().create(Pod, pod_body("p", *sh(script)))
        await api.phase("p", "Succeeded")
    bodies = [body for _, slot, _, body in api.log if slot == ("pods", "default", "p")]
    ends = [body for body in bodies if body["status"].get("phase") == "Succeeded"]
    assert {body["metadata"]["annotations"][PROGRESS] for body in ends} == {
        '{"progress":{"step":3,"total":3}}'
    }
    told = [body["metadata"].get("annotations", {}).get(PROGRESS, "") for body in bodies]
    assert len(set(told) - {""}) <= 2, "the first, and the last; what is between is not due"


async def test_a_program_that_reports_nothing_leaves_its_pod_alone(api: NodeApi, tmp_path: Path) -> None:
    async with node(api, tmp_path):
        await api.client().create(Pod, pod_body("p", *sh("echo '{\"progress\": 1}'")))
        await api.phase("p", "Succeeded")
    assert notes(api) == {}


async def test_an_order_is_answered_and_obeyed_once(api: NodeApi, tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/runs; exec sleep 600"
    async with node(api, tmp_path):
        await api.client().create(Pod, pod_body("p", *sh(script), restart="OnFailure"))
        await api.phase("p", "Running")
        await until(lambda: written(tmp_path / "runs"))
        await api.client().patch(Pod, key("p"), ordered(Order(id="a", fault=Fault.KILL)))
        await api.until(lambda: main(api.pod("p")["status"])["restartCount"] == 1)
        answer = answered(notes(api))
        assert answer is not None
        assert (answer.id, answer.refuses) == ("a", "")
        assert answer.does.startswith("SIGKILL to process group ")
        await until(lambda: written(tmp_path / "runs") == "run\nrun")
        await api.client().patch(Pod, key("p"), {"metadata": {"labels": {"x": "y"}}})
        await api.client().patch(Pod, key("p"), ordered(Order(id="b", fault=Fault.OOM)))
        await api.until(lambda: main(api.pod("p")["status"])["restartCount"] == 2)
    assert main(api.pod("p")["status"])["lastState"]["terminated"]["reason"] == "OOMKilled"


async def test_an_order_that_was_answered_by_an_earlier_node_is_not_obeyed_again(
    api: NodeApi, tmp_path: Path
) -> None:
    body = pod_body("p", *sh(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"))
    order = ordered(Order(id="a", fault=Fault.KILL))["metadata"]["annotations"]
    body["metadata"]["annotations"] = {**order, DRILLED: '{"id": "a", "does": "it"}'}
    async with node(api, tmp_path):
        await api.client().create(Pod, body)
        await api.phase("p", "Running")
        (tmp_path / "go").touch()
        await api.phase("p", "Succeeded")


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Order(id="a", fault=Fault.PORT), "it has no port of its own on this node"),
        (Order(id="a", fault=Fault.SLOW), "a pause takes longer than nothing"),
    ],
)
async def test_what_cannot_be_done_is_refused(api: NodeApi, tmp_path: Path, order: Order, why: str) -> None:
    async with node(api, tmp_path):
        await api.client().create(Pod, pod_body("p", *sh("exec sleep 600")))
        await api.phase("p", "Running")
        await api.client().patch(Pod, key("p"), ordered(order))
        await api.until(lambda: DRILLED in notes(api))
        answer = answered(notes(api))
        assert answer is not None
        assert (answer.refuses, answer.does) == (why, "")
        assert "running" in main(api.pod("p")["status"])["state"]


async def test_what_is_no_order_is_passed_over(api: NodeApi, tmp_path: Path) -> None:
    body = pod_body("p", "true")
    body["metadata"]["annotations"] = {DRILL: '{"id": "a", "fault": "earthquake"}'}
    async with node(api, tmp_path):
        await api.client().create(Pod, body)
        await api.phase("p", "Succeeded")
    assert DRILLED not in notes(api)


async def test_a_slow_pod_goes_on_when_the_drill_is_over(api: NodeApi, tmp_path: Path) -> None:
    script = f"while :; do echo >> {tmp_path}/ticks; sleep 0.005; done"

    def ticks() -> int:
        return (tmp_path / "ticks").stat().st_size if (tmp_path / "ticks").exists() else 0

    async with node(api, tmp_path):
        await api.client().create(Pod, pod_body("p", *sh(script)))
        await api.phase("p", "Running")
        await until(ticks)
        order = Order(id="a", fault=Fault.SLOW, seconds=0.2, pause=0.1)
        await api.client().patch(Pod, key("p"), ordered(order))
        await api.until(lambda: DRILLED in notes(api))
        stopped = ticks()
        await until(lambda: ticks() > stopped + 40)
    assert {each["phase"] for each in api.statuses("p")} == {"Pending", "Running"}
    assert main(api.pod("p")["status"])["restartCount"] == 0
