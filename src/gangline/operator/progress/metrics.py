"""Metrics of progress reports. Labels are bounded: no names of pods or jobs."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from gangline.operator.progress.writer import ReportOutcome

ANSWERS = (200, 400, 401, 403, 404, 405, 408, 413, 429, 503)


class ProgressMetrics:
    """The counters of the endpoint, of the writer and of the log reader."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = Counter(
            "gangline_progress_reports_total",
            "Progress reports that pods sent to this process, by the status of the answer.",
            ("code",),
            registry=registry,
        )
        self._writes = Counter(
            "gangline_progress_writes_total",
            "Progress reports that were to be written to the annotation of their pod, by result.",
            ("result",),
            registry=registry,
        )
        self._logs = Gauge(
            "gangline_progress_log_streams",
            "Pods of running jobs whose logs are read for progress, and those left out because of the limit.",
            ("state",),
            registry=registry,
        )
        for code in ANSWERS:
            self._reports.labels(str(code))
        for result in ReportOutcome:
            self._writes.labels(result)
        self.set_log_streams(0, 0)

    def count_report(self, status: int) -> None:
        self._reports.labels(str(status)).inc()

    def count_write(self, result: ReportOutcome) -> None:
        self._writes.labels(result).inc()

    def set_log_streams(self, followed: int, left_out: int) -> None:
        self._logs.labels("followed").set(followed)
        self._logs.labels("left_out").set(left_out)
