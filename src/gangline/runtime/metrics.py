"""Prometheus metrics with the names of controller-runtime and client-go, so that existing dashboards and alerts work.

The registry is not the global one, so that two managers in one process do not share metrics. Labels are bounded (names of
controllers and resources, never of jobs), and series with known labels exist from the start, at zero.

Only this module and `gangline.operator.metrics` (metrics of jobs) import prometheus_client; the queue, the controllers and
the other parts use small protocols.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from gangline.base.clock import Clock, SystemClock
from gangline.base.watchdog import report_progress
from gangline.kube.errors import KubeError
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket
from gangline.runtime.controller import ReconcileResult
from gangline.runtime.events import RecordResult
from gangline.runtime.informer import Informer
from gangline.runtime.work_queue import WorkQueue

MetricFamily = GaugeMetricFamily | CounterMetricFamily

QUEUE_BUCKETS = tuple(10.0**power for power in range(-8, 4))
RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
                     1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60)  # fmt: skip
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)


class _Registry(CollectorRegistry):
    """A registry without the `_created` series that prometheus_client adds to counters: Go's clients have none."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class PrometheusMetrics:
    """All metrics of a manager, and the objects to which its parts report."""

    def __init__(self) -> None:
        self.registry = _Registry()
        ProcessCollector(registry=self.registry)
        self._queues = _QueueFamilies(self.registry)
        self._controllers = _ControllerFamilies(self.registry)
        self._informers = _InformerCollector()
        self.registry.register(self._informers)
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server, by status code, method and host.",
            ("code", "method", "host"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "rest_client_request_duration_seconds",
            "How long requests took, by verb and host.",
            ("verb", "host"),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._request_children: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}
        self._leader_status = Gauge(
            "leader_election_master_status",
            "1 on the process that leads, 0 on the others.",
            ("name",),
            registry=self.registry,
        )
        self._events = Counter(
            "gangline_events_total",
            "What became of recorded Events.",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in RecordResult:
            self._events.labels(outcome.value)
        self._build_info = Gauge(
            "gangline_build_info",
            "Always 1; the labels tell which program serves these metrics, and its version.",
            ("component", "version"),
            registry=self.registry,
        )

    def set_build_info(self, component: str, version: str) -> None:
        """Name the program that serves these metrics."""
        self._build_info.labels(component, version).set(1)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its content type, chosen by the Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def queue_metrics(self, name: str) -> "PrometheusQueueMetrics":
        """For `WorkQueue(metrics=…)`."""
        return PrometheusQueueMetrics(self._queues, name)

    def register_queue(self, queue: WorkQueue[Any]) -> None:
        """Read the durations of the running work from the queue at every scrape."""
        labels = (queue.name, queue.name)
        self._queues.unfinished.labels(*labels).set_function(queue.unfinished_seconds)
        self._queues.longest_running.labels(*labels).set_function(queue.oldest_lease_seconds)

    def controller_metrics(self, name: str, workers: int) -> "PrometheusControllerMetrics":
        """For `Controller(metrics=…)`."""
        return PrometheusControllerMetrics(self._controllers, name, workers)

    def register_informer(self, informer: Informer[Any]) -> None:
        """Read the counters of the informer at every scrape."""
        self._informers.informers.append(informer)

    def leader_gauge(self, name: str) -> Callable[[bool], None]:
        """For `LeaderElector(report=…)`."""
        gauge = self._leader_status.labels(name)
        gauge.set(0)
        return gauge.set

    def count_event(self, outcome: RecordResult) -> None:
        """For `EventRecorder(count=…)`."""
        self._events.labels(outcome.value).inc()

    def observe_request(self, method: str, host: str, code: str, seconds: float) -> None:
        """Record a request. `code` is its status, or `<error>` without a response."""
        children = self._request_children.get((method, host, code))
        if children is None:
            # Looking up children by their labels costs more than counting.
            children = self._requests.labels(code, method, host), self._request_seconds.labels(method, host)
            self._request_children[method, host, code] = children
        children[0].inc()
        children[1].observe(seconds)


class _QueueFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("name", "controller")
        self.depth = Gauge("workqueue_depth", "Keys that wait for a worker.", labels, registry=registry)
        self.adds = Counter("workqueue_adds_total", "Keys added.", labels, registry=registry)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited for a worker.",
            labels,
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "How long the work on a key took.",
            labels,
            buckets=QUEUE_BUCKETS,
            registry=registry,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work under way, summed. Grows when a worker is stuck.",
            labels,
            registry=registry,
        )
        self.longest_running = Gauge(
            "workqueue_longest_running_processor_seconds",
            "For how long the longest work under way has run.",
            labels,
            registry=registry,
        )
        self.retries = Counter("workqueue_retries_total", "Keys retried.", labels, registry=registry)


class PrometheusQueueMetrics:
    """The `QueueMetrics` of one queue."""

    def __init__(self, families: _QueueFamilies, name: str) -> None:
        labels = (name, name)
        self._depth, self._adds = families.depth.labels(*labels), families.adds.labels(*labels)
        self._queue_seconds, self._work_seconds = (
            families.queue_seconds.labels(*labels),
            families.work_seconds.labels(*labels),
        )
        self._retries = families.retries.labels(*labels)
        families.unfinished.labels(*labels)
        families.longest_running.labels(*labels)

    def on_add(self, depth: int) -> None:
        self._adds.inc()
        self._depth.set(depth)

    def on_lease(self, waited_seconds: float, depth: int) -> None:
        self._queue_seconds.observe(waited_seconds)
        self._depth.set(depth)

    def on_release(self, worked_seconds: float) -> None:
        self._work_seconds.observe(worked_seconds)

    def on_retry(self) -> None:
        self._retries.inc()


class _ControllerFamilies:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels, prefix = ("controller",), "controller_runtime_"
        self.reconciles = Counter(
            f"{prefix}reconcile_total",
            "Reconciliations, by result.",
            ("controller", "result"),
            registry=registry,
        )
        self.errors = Counter(f"{prefix}reconcile_errors_total", "Failed reconciliations.", labels, registry=registry)
        self.terminal = Counter(
            f"{prefix}terminal_reconcile_errors_total",
            "Reconciliations that failed for good.",
            labels,
            registry=registry,
        )
        self.seconds = Histogram(
            f"{prefix}reconcile_time_seconds",
            "How long reconciliations took.",
            labels,
            buckets=RECONCILE_BUCKETS,
            registry=registry,
        )
        self.active = Gauge(f"{prefix}active_workers", "Workers at work.", labels, registry=registry)
        self.workers = Gauge(f"{prefix}max_concurrent_reconciles", "Workers.", labels, registry=registry)


class PrometheusControllerMetrics:
    """The `ControllerMetrics` of one controller."""

    def __init__(self, families: _ControllerFamilies, name: str, workers: int) -> None:
        self._reconciles = {result: families.reconciles.labels(name, result.value) for result in ReconcileResult}
        self._errors, self._terminal = families.errors.labels(name), families.terminal.labels(name)
        self._seconds, self._active = families.seconds.labels(name), families.active.labels(name)
        families.workers.labels(name).set(workers)

    def on_start(self) -> None:
        self._active.inc()

    def on_end(self, result: ReconcileResult | None, seconds: float, *, terminal: bool) -> None:
        self._active.dec()
        self._seconds.observe(seconds)
        if result is not None:
            self._reconciles[result].inc()
        if result is ReconcileResult.ERROR:
            self._errors.inc()
        if terminal:
            self._terminal.inc()


class _InformerCollector:
    """Reads informers at every scrape. Informers with the same name (other selectors of a kind) are summed."""

    def __init__(self) -> None:
        self.informers: list[Informer[Any]] = []

    def collect(self) -> Iterable[Metric]:
        yield self._summed(
            GaugeMetricFamily("gangline_informer_objects", "Objects in the cache.", labels=("resource",)),
            lambda informer: len(informer.cache),
        )
        yield self._summed(
            GaugeMetricFamily("gangline_informer_unreadable_objects", "Objects that do not fit.", labels=("resource",)),
            lambda informer: len(informer.unreadable),
        )
        yield self._summed(
            CounterMetricFamily("gangline_informer_relists", "Lists completed after the first.", labels=("resource",)),
            lambda informer: informer.relists,
        )
        yield self._summed(
            CounterMetricFamily(
                "gangline_informer_watch_restarts",
                "Lists and watches that failed and were tried again.",
                labels=("resource",),
            ),
            lambda informer: informer.restarts,
        )

    def _summed(self, family: MetricFamily, value: Callable[[Informer[Any]], int]) -> MetricFamily:
        totals: dict[str, int] = {}
        for informer in self.informers:
            totals[informer.name] = totals.get(informer.name, 0) + value(informer)
        for name, total in totals.items():
            family.add_metric((name,), total)
        return family


class RequestMetrics(Protocol):
    """Receives the metrics of a `MeteredTransport`."""

    def observe_request(self, method: str, host: str, code: str, seconds: float) -> None: ...


class MeteredTransport:
    """A transport that counts and times the requests of another one. A stream is counted when its response begins.

    Each beginning and end is progress of the reconcile that sends the request.
    """

    def __init__(
        self, transport: Transport, metrics: RequestMetrics, *, host: str = "", clock: Clock | None = None
    ) -> None:
        self._transport, self._metrics, self._host = transport, metrics, host
        self._clock: Clock = clock or SystemClock()

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        began = self._clock.monotonic()
        report_progress()
        try:
            response = await self._transport.send(request, timeout=timeout)
        except KubeError:
            self._report(request, "<error>", began)
            raise
        self._report(request, str(response.status), began)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        began = self._clock.monotonic()
        opened = False
        try:
            async with self._transport.stream(request, idle=idle) as stream:
                self._report(request, str(stream.response.status), began)
                opened = True
                yield stream
        except KubeError:
            if not opened:
                self._report(request, "<error>", began)
            raise

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)

    def _report(self, request: Request, code: str, began: float) -> None:
        report_progress()
        self._metrics.observe_request(request.method, self._host, code, self._clock.monotonic() - began)
