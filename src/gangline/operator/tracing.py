"""Traces by OpenTelemetry, if its standard variables ask for them. Needs the extra `gangline[otel]`.

Nothing of OpenTelemetry is imported unless traces are wanted.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any

from gangline import __version__
from gangline.base.errors import InputError
from gangline.base.tracing import AttributeValue, TraceSpan, set_tracer

log = logging.getLogger(__name__)

FLUSH_LIMIT = timedelta(seconds=3)
"""How long a process that ends waits for a collector to take the last spans."""
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
POD_ATTRIBUTES = {
    "POD_NAME": "k8s.pod.name",
    "POD_NAMESPACE": "k8s.namespace.name",
    "POD_UID": "k8s.pod.uid",
    "NODE_NAME": "k8s.node.name",
}
"""Attributes of the resource, by the variable in which the pod's template puts them."""


def wanted_exporter(environ: Mapping[str, str]) -> str:
    """`otlp` or `console`; empty: no traces. Raises `InputError` for what is not supported."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    endpoint = next((environ[name] for name in ENDPOINTS if environ.get(name)), "")
    exporter = environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if endpoint else "none")
    if exporter == "none":
        return ""
    if exporter not in ("otlp", "console"):
        raise InputError(f"OTEL_TRACES_EXPORTER: {exporter} is not supported; write otlp, console or none")
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), "http/protobuf")
    if exporter == "otlp" and protocol != "http/protobuf":
        raise InputError(f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol} is not supported; write http/protobuf")
    return exporter


@asynccontextmanager
async def tracing(service: str, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """Record spans inside the block if the environment asks for them. Raises `InputError`."""
    exporter = wanted_exporter(environ)
    if not exporter:
        yield
        return
    try:
        tracer = OpenTelemetryTracer(_tracer_provider(exporter, service, environ))
    except ImportError as error:
        raise InputError(f"traces need more packages: pip install 'gangline[otel]' ({error})") from error
    set_tracer(tracer)
    try:
        yield
    finally:
        set_tracer(None)
        await _run_beside(tracer.shutdown, FLUSH_LIMIT)


async def _run_beside(work: Callable[[], object], limit: timedelta) -> None:
    """Run a blocking function in a thread. After the limit it is left alone, and ends with the process."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        work()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="traces", daemon=True).start()
    try:
        async with asyncio.timeout(limit.total_seconds()):
            await ended.wait()
    except TimeoutError:
        log.warning("last traces not sent", extra={"limit": limit})


class OpenTelemetryTracer:
    """Starts spans with a tracer provider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace

        self._provider, self._trace = provider, trace
        self._tracer = provider.get_tracer("gangline", __version__)
        self._kinds = {True: trace.SpanKind.CLIENT, False: trace.SpanKind.INTERNAL}

    @contextmanager
    def start_span(
        self, name: str, attributes: Mapping[str, AttributeValue], *, is_request: bool
    ) -> Iterator[TraceSpan]:
        with self._tracer.start_as_current_span(name, kind=self._kinds[is_request], attributes=attributes) as span:
            yield span

    def trace_parent(self) -> str:
        context = self._trace.get_current_span().get_span_context()
        if not context.is_valid:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def shutdown(self) -> None:
        """Send what is left and end. Blocks."""
        self._provider.shutdown()


def _tracer_provider(exporter: str, service: str, environ: Mapping[str, str]) -> Any:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    resource = Resource.create(resource_attributes(service, environ))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    sender: Any
    if exporter == "console":
        sender = ConsoleSpanExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        sender = OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(sender))
    return provider


def resource_attributes(service: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What the traces come from. OTEL_RESOURCE_ATTRIBUTES are added by the SDK, and OTEL_SERVICE_NAME wins."""
    pod = {name: environ[variable] for variable, name in POD_ATTRIBUTES.items() if environ.get(variable)}
    named = {"service.name": environ.get("OTEL_SERVICE_NAME") or service}
    return {**named, "service.version": __version__, **pod}
