"""What a node writes on its pods, and what it reads there: progress and drills."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.drill import FaultKind, FaultRequest, fault_response
from gangline.api.kubeflow.training import DRILL_ANNOTATION, DRILL_RESULT_ANNOTATION, PROGRESS_ANNOTATION
from gangline.api.meta import JSON
from support.cluster.node import FAST_SETTINGS, file_text, main_container_status, running_node
from support.servers.node_api import NodeApi, command_pod, default_key, shell_command
from support.waiting import wait_until


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


def ordered(order: FaultRequest) -> JSON:
    return {"metadata": {"annotations": {DRILL_ANNOTATION: msgspec.json.encode(order).decode()}}}


def notes(api: NodeApi) -> dict[str, str]:
    found: dict[str, str] = api.stored_pod("p")["metadata"].get("annotations", {})
    return found


async def test_the_last_report_of_a_program_is_on_its_pod_before_its_end_is(api: NodeApi, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST_SETTINGS, progress_period=timedelta(hours=1))
    script = 'for n in 1 2 3; do echo \'{"progress": {"step": \'$n\', "total": 3}}\'; sleep 0.2; done'
    async with running_node(api, tmp_path, settings):
        await api.client().create(Pod, command_pod("p", *shell_command(script)))
        await api.wait_phase("p", "Succeeded")
    bodies = [body for _, slot, _, body in api.history if slot == ("pods", "default", "p")]
    ends = [body for body in bodies if body["status"].get("phase") == "Succeeded"]
    assert {body["metadata"]["annotations"][PROGRESS_ANNOTATION] for body in ends} == {
        '{"progress":{"step":3,"total":3}}'
    }
    told = [body["metadata"].get("annotations", {}).get(PROGRESS_ANNOTATION, "") for body in bodies]
    assert len(set(told) - {""}) <= 2, "the first, and the last; what is between is not due"


async def test_a_program_that_reports_nothing_leaves_its_pod_alone(api: NodeApi, tmp_path: Path) -> None:
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command("echo '{\"progress\": 1}'")))
        await api.wait_phase("p", "Succeeded")
    assert notes(api) == {}


async def test_an_order_is_answered_and_obeyed_once(api: NodeApi, tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/runs; exec sleep 600"
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command(script), restart="OnFailure"))
        await api.wait_phase("p", "Running")
        await wait_until(lambda: file_text(tmp_path / "runs"))
        await api.client().patch(Pod, default_key("p"), ordered(FaultRequest(id="a", fault=FaultKind.KILL)))
        await api.wait_until(lambda: main_container_status(api.stored_pod("p")["status"])["restartCount"] == 1)
        answer = fault_response(notes(api))
        assert answer is not None
        assert (answer.id, answer.refuses) == ("a", "")
        assert answer.does.startswith("SIGKILL to process group ")
        await wait_until(lambda: file_text(tmp_path / "runs") == "run\nrun")
        await api.client().patch(Pod, default_key("p"), {"metadata": {"labels": {"x": "y"}}})
        await api.client().patch(Pod, default_key("p"), ordered(FaultRequest(id="b", fault=FaultKind.OOM)))
        await api.wait_until(lambda: main_container_status(api.stored_pod("p")["status"])["restartCount"] == 2)
    assert main_container_status(api.stored_pod("p")["status"])["lastState"]["terminated"]["reason"] == "OOMKilled"


async def test_an_order_that_was_answered_by_an_earlier_node_is_not_obeyed_again(api: NodeApi, tmp_path: Path) -> None:
    body = command_pod("p", *shell_command(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"))
    order = ordered(FaultRequest(id="a", fault=FaultKind.KILL))["metadata"]["annotations"]
    body["metadata"]["annotations"] = {**order, DRILL_RESULT_ANNOTATION: '{"id": "a", "does": "it"}'}
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        await api.wait_phase("p", "Running")
        (tmp_path / "go").touch()
        await api.wait_phase("p", "Succeeded")


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (FaultRequest(id="a", fault=FaultKind.PORT), "it has no port of its own on this node"),
        (FaultRequest(id="a", fault=FaultKind.SLOW), "a pause takes longer than nothing"),
    ],
)
async def test_what_cannot_be_done_is_refused(api: NodeApi, tmp_path: Path, order: FaultRequest, why: str) -> None:
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command("exec sleep 600")))
        await api.wait_phase("p", "Running")
        await api.client().patch(Pod, default_key("p"), ordered(order))
        await api.wait_until(lambda: DRILL_RESULT_ANNOTATION in notes(api))
        answer = fault_response(notes(api))
        assert answer is not None
        assert (answer.refuses, answer.does) == (why, "")
        assert "running" in main_container_status(api.stored_pod("p")["status"])["state"]


async def test_what_is_no_order_is_passed_over(api: NodeApi, tmp_path: Path) -> None:
    body = command_pod("p", "true")
    body["metadata"]["annotations"] = {DRILL_ANNOTATION: '{"id": "a", "fault": "earthquake"}'}
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        await api.wait_phase("p", "Succeeded")
    assert DRILL_RESULT_ANNOTATION not in notes(api)


async def test_a_slow_pod_goes_on_when_the_drill_is_over(api: NodeApi, tmp_path: Path) -> None:
    script = f"while :; do echo >> {tmp_path}/ticks; sleep 0.005; done"

    def ticks() -> int:
        return (tmp_path / "ticks").stat().st_size if (tmp_path / "ticks").exists() else 0

    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command(script)))
        await api.wait_phase("p", "Running")
        await wait_until(ticks)
        order = FaultRequest(id="a", fault=FaultKind.SLOW, seconds=0.2, pause=0.1)
        await api.client().patch(Pod, default_key("p"), ordered(order))
        await api.wait_until(lambda: DRILL_RESULT_ANNOTATION in notes(api))
        stopped = ticks()
        await wait_until(lambda: ticks() > stopped + 40)
    assert {each["phase"] for each in api.status_history("p")} == {"Pending", "Running"}
    assert main_container_status(api.stored_pod("p")["status"])["restartCount"] == 0
