"""The state of one job as a follower has seen it: pods, restarts, progress, curves and last log lines."""

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.in_place import IN_PLACE_REASONS
from gangline.api.kubeflow.training import ConditionType, Failure, JobKind, TrainingJob
from gangline.cli.follow.mistakes import ProgramMistake, program_mistakes, team_mistake
from gangline.cli.follow.view import JobFrame, ReplicaState, RestartHistory, stuck_reason, updated_history
from gangline.cli.output.curve import Point
from gangline.cli.output.text import StyledLine
from gangline.frameworks.ranks import ranks_per_replica, replica_with_rank, single_rank
from gangline.jobs.plan.conditions import current_condition
from gangline.jobs.pods.replicas import Member
from gangline.node.usage import ResourceUsage
from gangline.progress.line import Progress
from gangline.timeline.model import ProgressPoint, TeamTimeline
from gangline.why.diagnosis.failures import ReplicaFailure

if TYPE_CHECKING:
    from gangline.timeline.live import LiveTimeline

TAIL_LINES = 20
FAILURE_SHOWN_SECONDS = 2.0
"""For so many seconds a replica is shown as restarted after a failure."""
MAX_CURVE_POINTS = 4000
"""Points kept of each replica's curve."""
MAX_REPORTS = 1000
"""Reports with all of their metrics that are kept of each replica."""

PointT = TypeVar("PointT", Point, ProgressPoint)


def _container_failure(replica: str, pod: Pod) -> ReplicaFailure | None:
    """How a container of the pod failed; None if none has."""
    for status in pod.status.container_statuses:
        for state in (status.state.terminated, status.last_state.terminated):
            if state is not None and state.exit_code and state.reason not in IN_PLACE_REASONS:
                return ReplicaFailure(
                    replica,
                    pod.metadata.name,
                    status.name,
                    exit_code=state.exit_code,
                    reason=state.reason,
                    message=state.message,
                    finished_at=state.finished_at,
                )
    return None


def add_point(curve: list[PointT], point: PointT, limit: int = MAX_CURVE_POINTS) -> None:
    """Append a point to a curve. Beyond the limit every other point is dropped."""
    curve.append(point)
    if len(curve) > limit:
        del curve[1:-1:2]


def replica_counts(job: object, kind: JobKind) -> dict[str, int]:
    """The number of replicas in the spec of a job, by replica type."""
    specs = getattr(getattr(job, "spec", None), kind.attribute, {})
    return {type_: spec.replicas if spec.replicas is not None else 1 for type_, spec in specs.items()}


class JobView:
    """Collects what a follower sees of one job. All mappings are by replica name, such as `worker-1`."""

    def __init__(self) -> None:
        self.job: TrainingJob | None = None
        self.pods: dict[str, Pod] = {}
        self.histories: dict[str, RestartHistory] = {}
        # Replicas that failed, and when that was first drawn. None: not drawn yet.
        self.failures_shown_at: dict[str, float | None] = {}
        self.progress: dict[str, Progress] = {}
        # The progress bars that programs draw themselves.
        self.bars: dict[str, str] = {}
        self.curves: dict[str, list[Point]] = {}
        self.metric = ""
        # The reports with all of their metrics.
        self.reports: dict[str, list[ProgressPoint]] = {}
        self.usage: dict[str, ResourceUsage] = {}
        self.tails: dict[str, deque[str]] = {}
        # How each replica failed first, without its log.
        self.first_failures: dict[str, ReplicaFailure] = {}

    @cached_property
    def timeline(self) -> "LiveTimeline":
        """What the team did. Loaded with the first version of an object, when the plane runs already."""
        from gangline.timeline.live import LiveTimeline

        return LiveTimeline()

    def update_pod(self, replica: str, pod: Pod | None) -> None:
        """Store the newest state of a replica's pod; None: the pod was deleted."""
        if pod is None:
            self.pods.pop(replica, None)
            return
        self.pods[replica] = pod
        before = self.histories.get(replica, RestartHistory())
        after = self.histories[replica] = updated_history(before, pod)
        failure = _container_failure(replica, pod) if replica not in self.first_failures else None
        if failure is not None:
            self.first_failures[replica] = failure
        changed = (before.exit_code, before.restarts) != (after.exit_code, after.restarts)
        if after.exit_code is not None and changed:
            self.failures_shown_at[replica] = None

    def add_line(self, replica: str, text: str) -> None:
        self.tails.setdefault(replica, deque(maxlen=TAIL_LINES)).append(text)

    def add_progress(self, replica: str, progress: Progress, at: float) -> None:
        """Store a progress report. Its metric called loss, else its first one, becomes a point of the curve."""
        self.progress[replica] = progress
        attempt = self.histories.get(replica, RestartHistory()).restarts
        report = ProgressPoint(at, progress.step, dict(progress.metrics), replica, attempt)
        add_point(self.reports.setdefault(replica, []), report, MAX_REPORTS)
        if not self.metric and progress.metrics:
            self.metric = "loss" if "loss" in progress.metrics else next(iter(progress.metrics))
        if self.metric in progress.metrics:
            add_point(self.curves.setdefault(replica, []), Point(progress.step, progress.metrics[self.metric]))

    def failed_replicas(self) -> dict[str, int | None]:
        """The replicas whose pod has failed, with their exit codes."""
        failed = [name for name, pod in self.pods.items() if pod.status.phase == PodPhase.FAILED]
        return {name: self.histories[name].exit_code for name in sorted(failed)}

    def mistake(self, replicas: int) -> ProgramMistake | None:
        """The mistake in the program by which all replicas failed at once; `replicas` is their number in the spec."""
        restarts = {replica: history.restarts for replica, history in self.histories.items()}
        return team_mistake(self._failures_with_logs(), restarts, replicas)

    def mistake_of(self, replica: str) -> ProgramMistake | None:
        """The mistake in the program by which this replica failed first; None if it failed otherwise, or not."""
        failure = self._failures_with_logs().get(replica)
        return next(iter(program_mistakes([failure])), None) if failure is not None else None

    def _failures_with_logs(self) -> dict[str, ReplicaFailure]:
        return {
            replica: msgspec.structs.replace(failure, log=tuple(self.tails.get(replica, ())))
            for replica, failure in self.first_failures.items()
        }

    def live_replicas(self) -> list[str]:
        """The replicas that have a process, or are about to."""
        return [name for name, pod in self.pods.items() if pod.status.phase in ("Pending", "Running")]

    def failure_record(self, kind: JobKind, replica: str) -> Failure:
        """The first failure of a replica, as the status of a job records it."""
        failure = self._failures_with_logs()[replica]
        spec, counts = getattr(self.job, "spec", None), replica_counts(self.job, kind)
        return Failure(
            replica=replica,
            rank=single_rank(kind.kind, spec, counts, replica) if sum(counts.values()) > 1 else None,
            pod=failure.pod,
            exit_code=failure.exit_code,
            reason=failure.reason,
            message=failure.message,
            time=failure.finished_at,
            log=failure.log,
        )

    def ranked_name(self, kind: JobKind, replica: str) -> str:
        """The replica with its framework's rank: `worker-1 (rank 2)`. A job of one replica has no ranks to tell apart."""
        spec, counts = getattr(self.job, "spec", None), replica_counts(self.job, kind)
        count = getattr(spec, "nproc_per_node", None) or getattr(spec, "slots_per_worker", None)
        processes = ranks_per_replica(getattr(spec, "elastic_policy", None), count)
        if processes is None or sum(counts.values()) < 2:
            return replica
        return replica_with_rank(kind.kind, counts, replica, processes=processes)

    @property
    def backoff_limit(self) -> int | None:
        """How often the job says that it may be restarted; None if it does not say."""
        policy = getattr(getattr(self.job, "spec", None), "run_policy", None)
        return policy.backoff_limit if policy is not None else None

    @property
    def has_all_usage(self) -> bool:
        """Whether the CPU use of every running replica is known."""
        running = [name for name, pod in self.pods.items() if pod.status.phase == PodPhase.RUNNING]
        return all(name in self.usage for name in running)

    @property
    def is_running(self) -> bool:
        """Whether the job and at least one of its pods run, and none of them is stuck."""
        if self.job is None or current_condition(self.job.status) not in (ConditionType.RUNNING, ConditionType.STALLED):
            return False
        phases = [pod.status.phase for pod in self.pods.values()]
        return PodPhase.RUNNING in phases and not any(map(stuck_reason, self.pods.values()))

    @property
    def stall(self) -> str:
        """Why the job makes no progress, as the operator says; empty if it does not say so."""
        condition = self.job.status.condition(ConditionType.STALLED) if self.job is not None else None
        return condition.message if condition is not None and condition.status == "True" else ""

    def frame(
        self,
        kind: JobKind,
        name: str,
        seconds: float,
        notices: Sequence[StyledLine] = (),
        timeline: TeamTimeline | None = None,
    ) -> JobFrame:
        """The values to draw, `seconds` after the start, with these lines and this timeline below the replicas."""
        counts = replica_counts(self.job, kind)
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
                    self._progress_of(replica),
                    self._failed_recently(replica, seconds),
                    self.usage.get(replica),
                    self.ranked_name(kind, replica),
                    self.bars.get(replica, ""),
                )
                for replica in replicas
            ),
            counts,
            seconds,
            tuple(notices),
            timeline,
            self.reports,
        )

    def _progress_of(self, replica: str) -> Progress | None:
        """The last report of a replica, with the time that is left as the operator estimates it, if it does not say so."""
        progress, status = self.progress.get(replica), self.job.status.progress if self.job is not None else None
        if progress is None or progress.remaining_seconds is not None or status is None or status.replica != replica:
            return progress
        return progress._replace(remaining_seconds=status.estimated_remaining_seconds)

    def _failed_recently(self, replica: str, now: float) -> bool:
        """Counted from the first redraw that shows it: if redraws stalled, the failure is still shown."""
        if replica not in self.failures_shown_at:
            return False
        shown_at = self.failures_shown_at[replica]
        if shown_at is None:
            shown_at = self.failures_shown_at[replica] = now
        return now - shown_at < FAILURE_SHOWN_SECONDS
