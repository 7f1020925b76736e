"""The state of one job as a follower has seen it: pods, restarts, progress, curves and last log lines."""

from collections import deque

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.cli.follow.view import JobFrame, ReplicaState, RestartHistory, updated_history
from gangline.cli.output.curve import Point
from gangline.cli.resources.process_usage import ResourceUsage
from gangline.jobs.plan.conditions import current_condition
from gangline.jobs.pods.replicas import Member
from gangline.progress.line import Progress

TAIL_LINES = 20
FAILURE_SHOWN_SECONDS = 2.0
"""For so many seconds a replica is shown as restarted after a failure."""
MAX_CURVE_POINTS = 4000
"""Points kept of each replica's curve."""


def add_point(curve: list[Point], point: Point) -> None:
    """Append a point to a curve. Beyond `MAX_CURVE_POINTS` every other point is dropped."""
    curve.append(point)
    if len(curve) > MAX_CURVE_POINTS:
        del curve[1:-1:2]


class JobView:
    """Collects what a follower sees of one job. All mappings are by replica name, such as `worker-1`."""

    def __init__(self) -> None:
        self.job: TrainingJob | None = None
        self.pods: dict[str, Pod] = {}
        self.histories: dict[str, RestartHistory] = {}
        # Replicas that failed, and when that was first drawn. None: not drawn yet.
        self.failures_shown_at: dict[str, float | None] = {}
        self.progress: dict[str, Progress] = {}
        self.curves: dict[str, list[Point]] = {}
        self.metric = ""
        self.usage: dict[str, ResourceUsage] = {}
        self.tails: dict[str, deque[str]] = {}

    def update_pod(self, replica: str, pod: Pod | None) -> None:
        """Store the newest state of a replica's pod; None: the pod was deleted."""
        if pod is None:
            self.pods.pop(replica, None)
            return
        self.pods[replica] = pod
        before = self.histories.get(replica, RestartHistory())
        after = self.histories[replica] = updated_history(before, pod)
        changed = (before.exit_code, before.restarts) != (after.exit_code, after.restarts)
        if after.exit_code is not None and changed:
            self.failures_shown_at[replica] = None

    def add_line(self, replica: str, text: str) -> None:
        self.tails.setdefault(replica, deque(maxlen=TAIL_LINES)).append(text)

    def add_progress(self, replica: str, progress: Progress) -> None:
        """Store a progress report. Its metric called loss, else its first one, becomes a point of the curve."""
        self.progress[replica] = progress
        if not self.metric and progress.metrics:
            self.metric = "loss" if "loss" in progress.metrics else next(iter(progress.metrics))
        if self.metric in progress.metrics:
            add_point(self.curves.setdefault(replica, []), Point(progress.step, progress.metrics[self.metric]))

    def failed_replicas(self) -> dict[str, int | None]:
        """The replicas whose pod has failed, with their exit codes."""
        failed = [name for name, pod in self.pods.items() if pod.status.phase == PodPhase.FAILED]
        return {name: self.histories[name].exit_code for name in sorted(failed)}

    def live_replicas(self) -> list[str]:
        """The replicas that have a process, or are about to."""
        return [name for name, pod in self.pods.items() if pod.status.phase in ("Pending", "Running")]

    def frame(self, kind: JobKind, name: str, seconds: float) -> JobFrame:
        """The values to draw, `seconds` after the start."""
        specs = getattr(getattr(self.job, "spec", None), kind.attribute, {})
        counts = {type_: spec.replicas if spec.replicas is not None else 1 for type_, spec in specs.items()}
        members = [str(Member(type_, index)) for type_, number in counts.items() for index in range(number)]
        replicas = [*members, *(replica for replica in self.pods if replica not in members)]
        return JobFrame(
            kind.kind,
            name,
            current_condition(self.job.status) if self.job is not None else "Pending",
            tuple(
                ReplicaState(
                    replica,
                    self.pods.get(replica),
                    self.histories.get(replica, RestartHistory()),
                    self.progress.get(replica),
                    self._failed_recently(replica, seconds),
                    self.usage.get(replica),
                )
                for replica in replicas
            ),
            counts,
            seconds,
        )

    def _failed_recently(self, replica: str, now: float) -> bool:
        """Counted from the first redraw that shows it: if redraws stalled, the failure is still shown."""
        if replica not in self.failures_shown_at:
            return False
        shown_at = self.failures_shown_at[replica]
        if shown_at is None:
            shown_at = self.failures_shown_at[replica] = now
        return now - shown_at < FAILURE_SHOWN_SECONDS
