"""Write the tables of metrics in docs/monitoring.md from the code; with --check, only say whether they are current."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from gangline.operator.metrics import JobMetrics, NotificationCounters
from gangline.operator.progress.metrics import ProgressMetrics
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.prometheus import PrometheusSchedulerMetrics

PAGE = Path(__file__).parents[1] / "docs" / "monitoring.md"


class MetricRow(NamedTuple):
    """One metric, as its line in a table says it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        labels = ", ".join(f"`{label}`" for label in self.labels)
        return f"| `{self.name}` | {self.kind} | {labels} | {self.text} |"


def metric_rows() -> dict[str, list[MetricRow]]:
    """The metrics by table: of both programs, of jobs, of the scheduler."""
    runtime, operator, scheduler = PrometheusMetrics(), PrometheusMetrics(), PrometheusMetrics()
    JobMetrics(operator.registry)
    ProgressMetrics(operator.registry)
    NotificationCounters(operator.registry)
    PrometheusSchedulerMetrics(scheduler.registry)
    both = sorted(_rows(runtime.registry))
    return {
        "jobs": sorted(set(_rows(operator.registry)) - set(both)),
        "scheduler": sorted(set(_rows(scheduler.registry)) - set(both)),
        "both": both,
    }


def _rows(registry: CollectorRegistry) -> Iterator[MetricRow]:
    for collector in registry._collector_to_names:  # noqa: SLF001 - there is no other way to the names of labels
        for family in collector.collect():
            labels: Iterable[str] = (
                getattr(collector, "_labelnames", None) or getattr(family, "_labelnames", None) or ()
            )
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield MetricRow(name, family.type, tuple(labels), family.documentation)


def page_with_tables(page: str) -> str:
    """The page with current tables between its marks."""
    for name, rows in metric_rows().items():
        table = "\n".join(["| name | type | labels | meaning |", "| --- | --- | --- | --- |", *map(str, rows)])
        begin = f"<!-- metrics: {name} -->\n"
        before, found, rest = page.partition(begin)
        _, end, after = rest.partition("<!-- end -->")
        if not (found and end):
            sys.exit(f"{PAGE.name}: no marks <!-- metrics: {name} --> and <!-- end -->")
        page = f"{before}{begin}{table}\n{end}{after}"
    return page


def main() -> int:
    old = PAGE.read_text()
    new = page_with_tables(old)
    if "--check" in sys.argv[1:]:
        return int(new != old)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
