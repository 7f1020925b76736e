"""The timeline and the curves of one job for `gangline top`: from its objects as they are, and as they were seen before."""

from collections.abc import Sequence

from gangline.api.meta import JSON, Selector
from gangline.cli.output.metric_curve import metric_curve_lines, metric_names
from gangline.cli.output.text import Span, StyledLine
from gangline.cli.output.timeline import (
    TimelineStyle,
    is_eventful,
    legend_lines,
    mark_lines,
    timeline_lines,
    timeline_metrics,
)
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden
from gangline.summary.event_rows import is_about
from gangline.summary.objects import EVENTS, ServerJob
from gangline.summary.replicas import owns_pod
from gangline.timeline.curves import leading_replica, progress_points
from gangline.timeline.live import LiveTimeline
from gangline.timeline.model import ProgressPoint, RecordedVersion, TimedVersion

MAX_ROWS = 32


class TopTimeline:
    """Collects what `top` sees of one job; with `--watch`, more at each look."""

    def __init__(self) -> None:
        self._timeline = LiveTimeline()
        self._reports: dict[str, list[ProgressPoint]] = {}
        self._paths: set[str] = set()

    async def look(self, client: Client, job: ServerJob, pods: Sequence[JSON], at: float) -> None:
        """Take in the job, its pods and its events as they are now."""
        own = [pod for pod in pods if owns_pod(job, pod)]
        versions = [TimedVersion(at, self._path(job.resource.plural, job.body), job.body)]
        versions += [TimedVersion(at, self._path("pods", pod), pod) for pod in own]
        events: Sequence[JSON]
        try:
            events = (await client.list(EVENTS, Selector(job.key.namespace))).items
        except Forbidden:
            # Events add only what operator and scheduler did.
            events = ()
        versions += [TimedVersion(at, self._path("events", one), one) for one in events if is_about(one, job)]
        seen = {version.path for version in versions}
        gone = sorted(path for path in self._paths - seen if "/events/" not in path)
        for version in (*versions, *(TimedVersion(at, path, None) for path in gone)):
            self._timeline.add(*version)
        self._paths = seen
        for point in progress_points(versions, job.key.name):
            reports = self._reports.setdefault(point.replica, [])
            if not reports or (reports[-1].step, reports[-1].metrics) != (point.step, point.metrics):
                reports.append(point)

    def add_recorded(self, versions: Sequence[RecordedVersion], job: str) -> None:
        """Take in what was recorded of a job that is gone."""
        for version in versions:
            self._timeline.add(version.at, version.path, version.body)
        for point in progress_points(versions, job):
            self._reports.setdefault(point.replica, []).append(point)

    def lines(self, now: float, style: TimelineStyle, curves: Sequence[str] = ()) -> list[StyledLine]:
        """The timeline, its legend, what happened, and the named curves."""
        timeline = self._timeline.timeline(now, fresh=True)
        leading = self._reports.get(leading_replica(self._reports), [])
        lines = timeline_lines(timeline, style._replace(rows=MAX_ROWS), leading, timeline_metrics(leading))
        if is_eventful(timeline):
            # A job of less than a second has no bar, but something to tell.
            lines += [*(legend_lines(timeline, style) if lines else ()), *mark_lines(timeline, style)]
        for name in curves:
            drawn = metric_curve_lines(name, self._reports, timeline.marks, style.width)
            lines += drawn or [(Span(f"no curve of {name}: {self._reported_text()}", "yellow"),)]
        return lines

    def _reported_text(self) -> str:
        names = ", ".join(metric_names(self._reports))
        return f"it needs two reports, and so far there is one, of {names}" if names else "nothing was reported"

    @staticmethod
    def _path(plural: str, body: JSON) -> str:
        metadata = body["metadata"]
        return f"/{plural}/{metadata.get('namespace', '')}/{metadata['name']}"
