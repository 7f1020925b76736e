"""Counts requests, for `/metrics` of the server, with the names of kube-apiserver's metrics."""

import os
from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from gangline.base.clock import Clock
from gangline.base.metrics_text import Sample, metric_text, sample_lines

BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
KNOWN_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
COMPONENT = {"component": "apiserver"}


class RequestLabels(NamedTuple):
    """What a request asked for. Only what the server serves, so that nobody can make series without bound."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""


class RequestMetrics:
    """The requests of one server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._codes: dict[tuple[RequestLabels, int], int] = {}
        # By labels: the count of each bucket, the last one for all that took longer; and the sum of seconds.
        self._durations: dict[RequestLabels, list[int]] = {}
        self._seconds: dict[RequestLabels, float] = {}
        self._inflight = {"readOnly": 0, "mutating": 0}

    def begin(self, method: str) -> float:
        """Count a request that begins. Returns when."""
        self._inflight[_request_kind(method)] += 1
        return self._clock.monotonic()

    def end(self, began: float, method: str, labels: RequestLabels | None, code: int) -> None:
        """Count a request that has ended, with None as labels if it was for no resource. Watches have no duration."""
        self._inflight[_request_kind(method)] -= 1
        labels = labels or RequestLabels(method if method in KNOWN_METHODS else "OTHER")
        key = (labels, code)
        self._codes[key] = self._codes.get(key, 0) + 1
        if labels.verb == "WATCH":
            return
        seconds = self._clock.monotonic() - began
        buckets = self._durations.get(labels)
        if buckets is None:
            buckets = self._durations[labels] = [0] * (len(BUCKETS) + 1)
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[labels] = self._seconds.get(labels, 0.0) + seconds

    def text(self, objects: dict[str, int]) -> str:
        """All metrics. `objects` are the numbers of stored objects by resource."""
        counts = [
            ({"code": str(code), **COMPONENT, **labels._asdict()}, n) for (labels, code), n in self._codes.items()
        ]
        cpu = os.times()
        return "".join(
            (
                metric_text(
                    "apiserver_request_total",
                    "counter",
                    "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP "
                    "response code.",
                    counts,
                ),
                self._histogram(),
                metric_text(
                    "apiserver_current_inflight_requests",
                    "gauge",
                    "Number of requests that are being served now, watches and streams included.",
                    [({"request_kind": kind}, count) for kind, count in self._inflight.items()],
                ),
                metric_text(
                    "apiserver_storage_objects",
                    "gauge",
                    "Number of stored objects split by kind.",
                    [({"resource": name}, count) for name, count in sorted(objects.items())],
                ),
                metric_text(
                    "process_cpu_seconds_total",
                    "counter",
                    "Total user and system CPU time spent in seconds.",
                    [({}, cpu.user + cpu.system)],
                ),
            )
        )

    def _histogram(self) -> str:
        name, about = "apiserver_request_duration_seconds", "Response latency distribution in seconds for each request."
        bounds = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
        buckets: list[Sample] = []
        for labels, counts in self._durations.items():
            own = {**COMPONENT, **labels._asdict()}
            buckets += [({**own, "le": le}, n) for le, n in zip(bounds, accumulate(counts), strict=True)]
        totals = [({**COMPONENT, **labels._asdict()}, sum(counts)) for labels, counts in self._durations.items()]
        sums = [({**COMPONENT, **labels._asdict()}, seconds) for labels, seconds in self._seconds.items()]
        lines = [*sample_lines(f"{name}_sum", sums), *sample_lines(f"{name}_count", totals)]
        return metric_text(name, "histogram", about, buckets, "_bucket") + "".join(f"{line}\n" for line in lines)


def _request_kind(method: str) -> str:
    return "readOnly" if method in ("GET", "HEAD") else "mutating"
