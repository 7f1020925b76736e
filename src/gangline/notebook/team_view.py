"""The state of a team while its cell runs, from the job, its pods and its log lines."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gangline.api.codec.codec import to_json
from gangline.api.core import Pod, PodPhase
from gangline.frameworks.ranks import rank_of
from gangline.progress.line import Progress, parse_progress
from gangline.sdk.job import Job
from gangline.sdk.outcome.results import is_result_line
from gangline.timeline.live import LiveTimeline
from gangline.timeline.model import TeamTimeline

MAX_LINES = 1000
"""Log lines that are kept for the finished cell."""
STOPPED = "Stopped"
"""The state of a team that was interrupted, and of ranks that were ended with their job."""


class RankRow(NamedTuple):
    """One rank of the team, now."""

    replica: str
    rank: int | None = None
    state: str = "Pending"
    restarts: int = 0
    progress: Progress | None = None

    @property
    def label(self) -> str:
        return self.replica if self.rank is None else f"rank {self.rank}"


class TeamFrame(NamedTuple):
    """Everything that is shown at one moment."""

    kind: str
    name: str
    state: str
    rows: tuple[RankRow, ...]
    # Log lines with the label of their rank.
    lines: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    # What the user should know at the end.
    outcome: str = ""
    timeline: TeamTimeline | None = None


class TeamView:
    """Collects what the ranks of a job say and do."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._rows = {row.replica: row for row in _planned_rows(job)}
        self._shown_lines: deque[tuple[str, str]] = deque(maxlen=MAX_LINES)
        self._lines: dict[str, deque[str]] = {}
        self._timeline = LiveTimeline()
        self._pod_paths: set[str] = set()

    @property
    def lines(self) -> Mapping[str, Sequence[str]]:
        """The last log lines by the pod's name."""
        return {pod: tuple(lines) for pod, lines in self._lines.items()}

    def update_pods(self, pods: Sequence[Pod], at: float) -> None:
        """Take in the job and its pods as they are at that time, in Unix seconds."""
        namespace, name = self.job.metadata.namespace, self.job.metadata.name
        self._timeline.add(at, f"/{self.job.kind.lower()}s/{namespace}/{name}", self.job.to_dict())
        bodies = {f"/pods/{namespace}/{pod.metadata.name}": to_json(pod) for pod in pods}
        for path in (*bodies, *(self._pod_paths - bodies.keys())):
            self._timeline.add(at, path, bodies.get(path))
        self._pod_paths = set(bodies)
        for pod in pods:
            replica = self._replica(pod.metadata.name)
            row = self._rows.get(replica)
            if row is not None:
                restarts = sum(status.restart_count for status in pod.status.container_statuses)
                self._rows[replica] = row._replace(state=_state(pod), restarts=max(restarts, row.restarts))

    def add_line(self, pod: str, text: str) -> str | None:
        """Take in a log line. Returns it with its rank, if people should see it."""
        if is_result_line(text):
            return None
        row = self._rows.get(self._replica(pod)) or RankRow(self._replica(pod))
        progress = parse_progress(text)
        if progress is not None:
            self._rows[row.replica] = row._replace(progress=progress)
            return None
        self._lines.setdefault(pod, deque(maxlen=MAX_LINES)).append(text)
        self._shown_lines.append((row.label, text))
        return f"{row.label}│ {text}"

    def frame(self, seconds: float, now: float = 0.0, *, state: str = "", outcome: str = "") -> TeamFrame:
        """What to show `seconds` after the start, at `now` in Unix seconds."""
        rows = tuple(self._rows.values())
        if self.job.status.finished or state == STOPPED:
            rows = tuple(row if row.state in ("Succeeded", "Failed") else row._replace(state=STOPPED) for row in rows)
        return TeamFrame(
            self.job.kind,
            self.job.metadata.name,
            state or self.job.state,
            rows,
            tuple(self._shown_lines),
            seconds,
            outcome,
            self._timeline.timeline(now),
        )

    def _replica(self, pod: str) -> str:
        return pod.removeprefix(f"{self.job.metadata.name}-")


def _planned_rows(job: Job) -> Iterator[RankRow]:
    for replica_type, count in job.replicas.items():
        for index in range(count):
            replica = f"{replica_type.lower()}-{index}"
            yield RankRow(replica, rank_of(job.kind, job.replicas, replica))


def _state(pod: Pod) -> str:
    if pod.status.phase != PodPhase.RUNNING:
        return str(pod.status.phase or PodPhase.PENDING)
    waiting = any(status.state.waiting is not None for status in pod.status.container_statuses)
    return "Restarting" if waiting else "Running"
