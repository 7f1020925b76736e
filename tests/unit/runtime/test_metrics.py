import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import pytest

from gangline.kube.errors import StreamBroken, Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket
from gangline.runtime.controller import ReconcileResult
from gangline.runtime.events import RecordResult
from gangline.runtime.metrics import MeteredTransport, PrometheusMetrics
from gangline.runtime.rate_limits import default_retry_limiter
from gangline.runtime.work_queue import WorkQueue
from gangline.testing.clock import FakeClock

NAMES = [
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries_total",
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds",
    "controller_runtime_active_workers",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_terminal_reconcile_errors_total",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds",
    "leader_election_master_status",
    "gangline_informer_objects",
    "gangline_informer_relists_total",
    "gangline_informer_watch_restarts_total",
    "gangline_events_total",
]


def value(metrics: PrometheusMetrics, name: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_names_are_those_of_controller_runtime_and_client_go() -> None:
    text = PrometheusMetrics().render()[0].decode()
    found = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert set(NAMES) <= found
    assert not [name for name in found if name.endswith("_created")]


def test_known_labels_start_at_zero() -> None:
    metrics = PrometheusMetrics()
    metrics.queue_metrics("tfjob")
    metrics.controller_metrics("tfjob", workers=4)
    metrics.leader_gauge("operator")
    queue = {"name": "tfjob", "controller": "tfjob"}
    for name in ("workqueue_depth", "workqueue_adds_total", "workqueue_retries_total"):
        assert value(metrics, name, **queue) == 0
    for result in ReconcileResult:
        assert value(metrics, "controller_runtime_reconcile_total", controller="tfjob", result=result) == 0
    assert value(metrics, "controller_runtime_terminal_reconcile_errors_total", controller="tfjob") == 0
    assert value(metrics, "controller_runtime_max_concurrent_reconciles", controller="tfjob") == 4
    assert value(metrics, "leader_election_master_status", name="operator") == 0
    assert value(metrics, "gangline_events_total", outcome=RecordResult.SPAM) == 0


async def test_queue_reports_its_work() -> None:
    metrics, clock = PrometheusMetrics(), FakeClock()
    queue: WorkQueue[str] = WorkQueue(default_retry_limiter(clock), clock, metrics=metrics.queue_metrics("q"), name="q")
    metrics.register_queue(queue)
    labels = {"name": "q", "controller": "q"}
    queue.add("a")
    queue.add("b")
    queue.retry("c")
    assert value(metrics, "workqueue_depth", **labels) == 2
    assert value(metrics, "workqueue_adds_total", **labels) == 2
    assert value(metrics, "workqueue_retries_total", **labels) == 1
    async with queue.lease():
        await clock.advance(timedelta(seconds=2))
        assert value(metrics, "workqueue_longest_running_processor_seconds", **labels) == 2
        assert value(metrics, "workqueue_unfinished_work_seconds", **labels) == 2
    assert value(metrics, "workqueue_work_duration_seconds_sum", **labels) == 2
    assert value(metrics, "workqueue_queue_duration_seconds_count", **labels) == 1


def test_controller_reports_results() -> None:
    metrics = PrometheusMetrics()
    report = metrics.controller_metrics("c", workers=1)
    for result, terminal in ((ReconcileResult.SUCCESS, False), (ReconcileResult.ERROR, True), (None, False)):
        report.on_start()
        assert value(metrics, "controller_runtime_active_workers", controller="c") == 1
        report.on_end(result, 0.5, terminal=terminal)
    assert value(metrics, "controller_runtime_active_workers", controller="c") == 0
    assert value(metrics, "controller_runtime_reconcile_total", controller="c", result="success") == 1
    assert value(metrics, "controller_runtime_reconcile_errors_total", controller="c") == 1
    assert value(metrics, "controller_runtime_terminal_reconcile_errors_total", controller="c") == 1
    assert value(metrics, "controller_runtime_reconcile_time_seconds_count", controller="c") == 3


def test_leadership_is_one_or_zero() -> None:
    metrics = PrometheusMetrics()
    report = metrics.leader_gauge("operator")
    for leading in (True, False):
        report(leading)
        assert value(metrics, "leader_election_master_status", name="operator") == leading


class Wire:
    """Returns a status, or raises `Unreachable`."""

    def __init__(self, status: int | None, clock: FakeClock) -> None:
        self._status, self._clock = status, clock

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        await self._clock.advance(timedelta(seconds=3))
        if self._status is None:
            raise Unreachable("refused")
        return Response(self._status)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        class Broken:
            response = Response(200)

            async def chunks(self) -> AsyncIterator[bytes]:
                yield b""
                raise StreamBroken("cut")

        yield Broken()

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


async def test_requests_are_counted_by_code_and_timed() -> None:
    metrics, clock = PrometheusMetrics(), FakeClock()
    for status in (200, 409, None):
        transport: Transport = MeteredTransport(Wire(status, clock), metrics, host="api:6443", clock=clock)
        try:
            await transport.send(Request("GET", "/api"))
        except Unreachable:
            assert status is None
    for code in ("200", "409", "<error>"):
        assert value(metrics, "rest_client_requests_total", code=code, method="GET", host="api:6443") == 1
    labels = {"verb": "GET", "host": "api:6443"}
    assert value(metrics, "rest_client_request_duration_seconds_sum", **labels) == 9


async def test_stream_counts_once_also_when_it_breaks() -> None:
    metrics, clock = PrometheusMetrics(), FakeClock()
    transport = MeteredTransport(Wire(200, clock), metrics, clock=clock)

    async def watch() -> None:
        async with transport.stream(Request("GET", "/watch")) as stream:
            async for _ in stream.chunks():
                pass

    with pytest.raises(StreamBroken):
        await watch()
    assert value(metrics, "rest_client_requests_total", code="200", method="GET", host="") == 1
    assert value(metrics, "rest_client_requests_total", code="<error>", method="GET", host="") is None


def test_openmetrics_is_given_to_who_asks() -> None:
    assert "text/plain" in PrometheusMetrics().render("*/*")[1]
    assert "openmetrics" in PrometheusMetrics().render("application/openmetrics-text; version=1.0.0")[1]


@pytest.mark.parametrize("module", ["work_queue", "controller", "leader_election", "events", "manager"])
def test_the_runtime_does_not_import_prometheus(module: str) -> None:
    code = f"import sys, gangline.runtime.{module}; sys.exit('prometheus_client' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
