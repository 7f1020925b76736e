"""Counts the time of replicas second by second from recorded versions: slow, simple, and another way than the operator's.

All that happens in the recorded histories happens at whole seconds.
"""

from collections import Counter
from typing import NamedTuple

from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, ROUND_ANNOTATION
from gangline.api.meta import JSON
from gangline.progress.line import parse_progress
from gangline.timeline.job_history import JobHistory, job_history, replica_counts
from gangline.timeline.model import TimedVersion
from gangline.timeline.pods import PodLife


class PodSight(NamedTuple):
    """A pod as it was from a time on."""

    at: float
    body: JSON | None


class GoodputOracle:
    """The count of one history, until `end`."""

    def __init__(self, versions: list[TimedVersion], end: float) -> None:
        history = job_history(versions)
        assert history is not None
        self._history: JobHistory = history
        self._end = end
        self._sights: dict[str, list[PodSight]] = {}
        for version in versions:
            if version.path.startswith("pods/"):
                self._sights.setdefault(version.path.removeprefix("pods/default/bert-"), []).append(
                    PodSight(version.at, version.body)
                )
        self._formed: int | None = None
        self._best: float | None = None
        self._process, self._stale_line, self._repeats = "", "", False

    def count(self) -> Counter[str]:
        """Seconds by activity."""
        seconds: Counter[str] = Counter()
        at = int(self._history.job.bodies[0][0])
        while at < self._end:
            body = self._job_at(at)
            if not _holds(body, "Suspended"):
                # Also when nothing runs: what was formed or reported stays so.
                together = self._together(body, at)
                for name in _wanted(body):
                    own = self._own(name, at)
                    seconds[together if own == "running" else own] += 1
            at += 1
        return +seconds

    def _job_at(self, at: float) -> JSON:
        return [body for since, body in self._history.job.bodies if since <= at][-1]

    def _life(self, name: str, at: float) -> PodLife | None:
        lives = [
            life
            for life in self._history.pods
            if life.replica.name == name and life.created <= at and (life.gone is None or life.gone > at)
        ]
        return lives[-1] if lives else None

    def _own(self, name: str, at: float) -> str:
        """What a replica does by itself."""
        life = self._life(name, at)
        if life is None or life.bound is None or life.bound > at:
            return "idle" if life is not None and life.ended is not None and life.ended <= at else "queueing"
        runs = [run for run in life.runs if run.started <= at]
        if life.ended is not None and life.ended <= at:
            return "idle"
        if not runs:
            return "starting"
        if runs[-1].ended is None or runs[-1].ended > at:
            return "running"
        return "idle" if runs[-1].exit_code == 0 else "starting"

    def _together(self, body: JSON, at: float) -> str:
        """What a replica does whose process runs."""
        number = ((body.get("status") or {}).get("ledger") or {}).get("round", 0)
        names = _wanted(body)
        pods = {name: pod for name in names if (pod := self._pod_at(name, at)) is not None and _round(pod) >= number}
        self._follow_steps(names, at)
        started = [name for name in pods if _container(pods[name]).get("state")]
        if len(started) == len(names) or any(_line(pods[name]) for name in started):
            self._formed = number
        if self._formed != number:
            return "idle"
        if _holds(body, "Stalled"):
            return "stalled"
        leader = next((name for name in names if name in pods and _line(pods[name])), None)
        progress = parse_progress(_line(pods[leader])) if leader is not None else None
        if progress is not None and progress.checkpoint == "begin":
            return "checkpointing"
        return "recomputing" if self._repeats else "working"

    def _follow_steps(self, names: list[str], at: float) -> None:
        """Follow what the master reports: in these histories nobody else does."""
        pod = self._pod_at(names[0], at)
        if pod is None:
            return
        line, container = _line(pod), _container(pod)
        progress = parse_progress(line)
        process = f"{pod['metadata']['uid']}/{container.get('restartCount', 0)}" if container.get("state") else ""
        if self._best is None:
            if progress is not None:
                self._best, self._process = progress.step, process
            return
        if process and process != self._process:
            # A pod keeps the last line of the process before; a new pod has none.
            same_pod = process.partition("/")[0] == self._process.partition("/")[0]
            self._process, self._repeats, self._stale_line = process, True, line if same_pod else ""
        if progress is None or line == self._stale_line:
            return
        if not self._repeats or progress.step >= self._best:
            self._best, self._repeats, self._stale_line = max(self._best, progress.step), False, ""

    def _pod_at(self, name: str, at: float) -> JSON | None:
        body = None
        for sight in self._sights.get(name, ()):
            if sight.at > at:
                break
            body = sight.body
        return body


def _wanted(body: JSON) -> list[str]:
    return [f"{kind}-{index}" for kind, count in replica_counts(body).items() for index in range(count)]


def _holds(body: JSON, kind: str) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or []
    return any(found["type"] == kind and found["status"] == "True" for found in conditions)


def _container(pod: JSON) -> JSON:
    statuses = pod["status"].get("containerStatuses") or [{}]
    container: JSON = statuses[0]
    return container


def _line(pod: JSON) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(PROGRESS_ANNOTATION, ""))


def _round(pod: JSON) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(ROUND_ANNOTATION, 0))
