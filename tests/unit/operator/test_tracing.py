"""Traces: wanted by OpenTelemetry's own variables, sent as spans that belong together, and free of cost when off."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from gangline.api.meta import Key
from gangline.base.errors import InputError
from gangline.base.tracing import is_tracing, trace_parent, trace_span
from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.kube.transport.traced import traced
from gangline.operator.tracing import resource_attributes, tracing, wanted_exporter
from gangline.runtime.controller import Controller
from gangline.runtime.rate_limits import default_retry_limiter
from gangline.runtime.work_queue import WorkQueue
from gangline.testing.clock import FakeClock
from support.requirements import skip_or_fail
from support.waiting import wait_until

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
JOB = Key("team", "job")


@pytest.mark.parametrize(
    ("environ", "exporter"),
    [
        ({}, ""),
        ({ENDPOINT: "http://collector:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_the_standard_variables_decide(environ: dict[str, str], exporter: str) -> None:
    assert wanted_exporter(environ) == exporter


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: zipkin is not supported; write otlp"),
        ({ENDPOINT: "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc is not supported; write http/protobuf"),
    ],
)
def test_what_is_not_supported_is_said_in_one_line(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        wanted_exporter(environ)


def test_the_resource_is_the_pod() -> None:
    environ = {"POD_NAME": "gangline-operator-0", "NODE_NAME": "n1", "OTEL_SERVICE_NAME": "ours"}
    found = resource_attributes("gangline-operator", environ)
    assert found.pop("service.version")
    assert found == {"service.name": "ours", "k8s.pod.name": "gangline-operator-0", "k8s.node.name": "n1"}


# Off


def test_nothing_of_opentelemetry_is_imported_unless_traces_are_wanted() -> None:
    program = (
        "import sys, gangline.operator.operator_process, gangline.operator.scheduler_process, gangline.operator.tracing;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_tracing_one_span_serves_all_and_the_transport_is_left_as_it_is() -> None:
    transport = FakeTransport()
    assert traced(transport) is transport
    assert trace_span("one") is trace_span("other", {"a": 1})
    assert trace_parent() == ""


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(InputError, match=r"pip install 'gangline\[otel\]'"):
        async with tracing("gangline-operator", {"OTEL_TRACES_EXPORTER": "console"}):
            pass


# On: a receiver on loopback gets what a collector would get


class FakeTransport:
    """Answers every request, and notes it. One path cannot be reached."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        self.requests.append(request)
        if request.path == "/gone":
            raise Unreachable("no")
        return Response(201)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        raise NotImplementedError

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError


def always() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@asynccontextmanager
async def receiver(answers: asyncio.Event | None = None) -> AsyncIterator[tuple[str, list[Any]]]:
    """An OTLP receiver: its address, and the spans that it gets, each with its resource. It answers after the event."""
    try:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        skip_or_fail("OpenTelemetry not found: pip install 'gangline[otel]'")
    spans: list[Any] = []
    answers = answers or always()

    async def take(request: web.BaseRequest) -> web.Response:
        assert request.path == "/v1/traces"
        body = await request.read()
        await answers.wait()
        if request.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        message = ExportTraceServiceRequest.FromString(body)
        for group in message.resource_spans:
            spans.extend((group.resource, span) for scope in group.scope_spans for span in scope.spans)
        return web.Response(body=b"", content_type="application/x-protobuf")

    runner = web.ServerRunner(web.Server(take, access_log=None), shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", spans
    finally:
        await runner.cleanup()


def attributes_of(owner: Any) -> dict[str, Any]:
    values = {pair.key: pair.value for pair in owner.attributes}
    return {
        key: value.int_value if value.HasField("int_value") else value.string_value for key, value in values.items()
    }


async def test_a_reconcile_is_a_span_and_its_requests_are_children_that_the_server_can_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = FakeTransport()

    class Reconciler:
        async def reconcile(self, key: Key) -> None:
            api = traced(transport)
            await api.send(Request("POST", "/api/v1/namespaces/team/pods"))
            async with asyncio.TaskGroup() as group:
                group.create_task(api.send(Request("PATCH", "/apis/kubeflow.org/v1/namespaces/team/tfjobs/job/status")))
            await api.send(Request("GET", "/gone"))

    async with receiver() as (address, spans):
        monkeypatch.setenv(ENDPOINT, address)
        async with tracing("gangline-operator", {ENDPOINT: address, "POD_NAME": "pod-0"}):
            assert is_tracing()
            clock = FakeClock()
            queue: WorkQueue[Key] = WorkQueue(default_retry_limiter(clock), clock, name="tfjob-controller")
            controller = Controller("tfjob-controller", queue, Reconciler(), [], workers=1, clock=clock)
            queue.add(JOB)
            queue.close(drain=True)
            await controller.run()
        assert not is_tracing()
        by_name = {span.name: span for _, span in spans}
        assert set(by_name) == {"reconcile", "POST", "PATCH", "GET"}
        reconcile = by_name["reconcile"]
        found = attributes_of(reconcile)
        assert found.pop("gangline.reconcile_id")
        assert found == {
            "gangline.controller": "tfjob-controller",
            "k8s.namespace.name": "team",
            "gangline.name": "job",
            "gangline.result": "error",
        }
        for request in transport.requests:
            span = by_name[request.method]
            assert (span.trace_id, span.parent_span_id) == (reconcile.trace_id, reconcile.span_id)
            *identity, flags = request.trace_parent.split("-")
            assert identity == ["00", span.trace_id.hex(), span.span_id.hex()]
            assert int(flags, 16) & 1, "it is sampled"
            assert attributes_of(span)["url.path"] == request.path
        assert attributes_of(by_name["POST"])["http.response.status_code"] == 201
        assert attributes_of(by_name["GET"])["error.type"] == "Unreachable"
        resource = attributes_of(spans[0][0])
        assert resource["service.name"] == "gangline-operator"
        assert resource["k8s.pod.name"] == "pod-0"


async def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gangline.operator.tracing.FLUSH_LIMIT", timedelta(milliseconds=50))
    answers = asyncio.Event()
    async with receiver(answers) as (address, spans):
        monkeypatch.setenv(ENDPOINT, address)
        async with tracing("gangline-operator", {ENDPOINT: address}):
            with trace_span("last"):
                pass
        assert "last traces not sent" in [record.message for record in caplog.records]
        answers.set()
        await wait_until(lambda: spans)
