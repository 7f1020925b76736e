"""Probes and hooks."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.node.pod_types import Action, Probe
from gangline.node.pods.probes import ThresholdCounter, run_action, run_probe
from gangline.node.ports import bind_port
from gangline.node.runtime.runtime import ContainerTarget
from gangline.testing.clock import FakeClock, settle


async def tried(tmp_path: Path, ports: dict[str, int] | None = None, **action: JSON) -> str:
    target = ContainerTarget(dict(os.environ), tmp_path, ports or {})
    return await run_action(msgspec.convert(action, Action), target, timedelta(seconds=10), SystemClock())


async def test_a_command_passes_by_its_exit_code(tmp_path: Path) -> None:
    assert await tried(tmp_path, exec={"command": ["true"]}) == ""
    assert await tried(tmp_path, exec={"command": ["sh", "-c", "echo bad; exit 1"]}) == "bad\n"
    assert "not found" in await tried(tmp_path, exec={"command": ["no-such-program"]})


async def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    action = msgspec.convert({"exec": {"command": ["sleep", "99"]}}, Action)
    target = ContainerTarget(dict(os.environ), tmp_path)
    assert await run_action(action, target, timedelta(seconds=0.1), SystemClock()) == "timed out after 0.1s"


async def test_http_passes_from_200_to_399(tmp_path: Path) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=int(request.path[1:]), headers={"Location": "/500"})

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        for status, message in ((200, ""), (302, ""), (404, "HTTP probe failed with statuscode: 404")):
            assert await tried(tmp_path, {"web": port}, httpGet={"port": "web", "path": f"/{status}"}) == message
    finally:
        await runner.cleanup()
    assert "Get" in await tried(tmp_path, httpGet={"port": port})


async def test_tcp_passes_when_somebody_listens(tmp_path: Path) -> None:
    listening = bind_port(0)
    listening.listen()
    port = listening.getsockname()[1]
    assert await tried(tmp_path, tcpSocket={"port": port}) == ""
    # The node may have allocated another port than the one in the spec.
    assert await tried(tmp_path, {"2222": port}, tcpSocket={"port": 2222}) == ""
    listening.close()
    assert "Connect call failed" in await tried(tmp_path, tcpSocket={"port": port})


async def test_an_unknown_port_name_fails(tmp_path: Path) -> None:
    assert await tried(tmp_path, tcpSocket={"port": "9x"}) != ""


@pytest.mark.parametrize(
    ("results", "states"),
    [
        ("+", [True]),
        ("---", [None, None, False]),
        ("--+--", [None, None, True, None, None]),
        ("----", [None, None, False, False]),
    ],
)
def test_thresholds(results: str, states: list[bool | None]) -> None:
    counter = ThresholdCounter(success=1, failure=3)
    assert [counter.add(passed=each == "+") for each in results] == states


async def test_probes_wait_and_repeat_by_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    states: list[bool] = []
    probe = msgspec.convert({"sleep": {"seconds": 0}, "initialDelaySeconds": 5, "periodSeconds": 10}, Probe)
    async with asyncio.TaskGroup() as group:
        target = ContainerTarget({}, tmp_path)
        task = group.create_task(run_probe(probe, target, clock, states.append))
        await settle()
        assert states == []
        await clock.advance(timedelta(seconds=5))
        assert states == [True]
        await clock.advance(timedelta(seconds=20))
        assert states == [True] * 3
        task.cancel()


async def test_every_failure_is_reported_and_the_state_after_the_threshold(tmp_path: Path) -> None:
    """As a kubelet does: `kubectl describe` shows why a pod is not ready, from the first failure on."""
    clock = FakeClock()
    states: list[bool] = []
    failures: list[str] = []
    probe = msgspec.convert({"exec": {"command": ["false"]}, "periodSeconds": 10, "failureThreshold": 3}, Probe)
    async with asyncio.TaskGroup() as group:
        target = ContainerTarget(dict(os.environ), tmp_path)
        task = group.create_task(run_probe(probe, target, clock, states.append, failures.append))
        for count in (1, 2, 3):
            async with asyncio.timeout(30):
                while len(failures) < count:
                    await settle()
            assert states == ([False] if count == 3 else [])
            await clock.advance(timedelta(seconds=10))
        task.cancel()
    assert set(failures) == {"command failed"}
