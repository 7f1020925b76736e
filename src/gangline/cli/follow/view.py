"""Draws a running job: a `JobFrame` in, lines of styled text out. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate

import msgspec

from gangline.api.core import ContainerStatus, Pod, PodPhase
from gangline.api.durations import human_duration
from gangline.api.in_place import IN_PLACE_ANNOTATION, IN_PLACE_REASONS
from gangline.cli.output.text import (
    Span,
    StyledLine,
    clip_line,
    column_count,
    elapsed_text,
    number_text,
    plain_text,
)
from gangline.jobs.pods.held_pods import program_statuses
from gangline.node.usage import ResourceUsage
from gangline.progress.line import Progress
from gangline.summary.pending_reasons import NORMAL_WAIT_REASONS
from gangline.timeline.model import ProgressPoint, TeamTimeline
from gangline.why.diagnosis.wording import count_phrase, signal_name

BAR_WIDTH, MIN_BAR_WIDTH = 20, 5
MIN_USAGE_WIDTH = 68
"""Columns that must be free for CPU and memory to be shown beside the progress."""
NUMBER_WIDTH = 8
"""Columns reserved for the value of a metric."""
LEFT_WIDTH = len("9m59s left")
"""Columns reserved for the time that is left."""
NAME_WIDTH, STATE_WIDTH, RESTARTS_WIDTH = 8, 11, 12
"""The minimal widths of the columns; longer words make them wider."""
WIDE = 90
"""Columns from which on the restarts of replicas are shown even if there were none."""
STOPPED = "Stopped"
"""The state of a job whose run was stopped."""
FINISHED_STATES = ("Succeeded", "Failed", STOPPED)


class RestartHistory(msgspec.Struct, frozen=True):
    """The restarts of one replica, over all of its pods."""

    # How often containers of each pod were restarted, by the pod's uid.
    restarts_by_pod: Mapping[str, int] = {}
    # The exit code of the last failed container.
    exit_code: int | None = None

    @property
    def restarts(self) -> int:
        return max(0, len(self.restarts_by_pod) - 1) + sum(self.restarts_by_pod.values())


class ReplicaState(msgspec.Struct, frozen=True):
    """One replica of the job, now."""

    name: str
    pod: Pod | None = None
    history: RestartHistory = RestartHistory()
    progress: Progress | None = None
    # The failure is shown for a moment, even if the replica runs again sooner.
    failed_recently: bool = False
    usage: ResourceUsage | None = None
    # The name with the framework's rank; empty if that is not known.
    ranked_name: str = ""
    # The progress bar that the program draws itself.
    bar: str = ""

    @property
    def shown_name(self) -> str:
        return self.ranked_name or self.name


class JobFrame(msgspec.Struct, frozen=True):
    """All values that one redraw of a job needs."""

    kind: str
    name: str
    state: str
    replicas: tuple[ReplicaState, ...] = ()
    # The number of replicas in the spec, by replica type.
    replica_counts: Mapping[str, int] = {}
    elapsed: float = 0.0
    # Lines below the replicas.
    notices: tuple[StyledLine, ...] = ()
    # What the team did so far, and what its replicas reported.
    timeline: TeamTimeline | None = None
    reports: Mapping[str, Sequence[ProgressPoint]] = {}


def updated_history(history: RestartHistory, pod: Pod) -> RestartHistory:
    """The history with the restarts and exit codes that the pod's status reports."""
    restarts = sum(status.restart_count for status in program_statuses(pod))
    codes = [code for status in pod.status.container_statuses if (code := _failure_exit_code(status)) is not None]
    return RestartHistory(
        {**history.restarts_by_pod, pod.metadata.uid: max(restarts, history.restarts_by_pod.get(pod.metadata.uid, 0))},
        codes[-1] if codes else history.exit_code,
    )


def _failure_exit_code(status: ContainerStatus) -> int | None:
    for state in (status.state, status.last_state):
        end = state.terminated
        if end is not None and end.exit_code and end.reason not in IN_PLACE_REASONS:
            return end.exit_code
    return None


# Lines


def job_lines(frame: JobFrame, width: int = 100, rows: int = 40) -> list[StyledLine]:
    """The header, then one line per replica: at most `rows` of these, those that need attention first."""
    replicas = visible_replicas(frame.replicas, rows)
    name_width = max([NAME_WIDTH, *(len(replica.shown_name) for replica in replicas)])
    finished = frame.state in FINISHED_STATES
    # Names with ranks are long: in little room a column of zeros would take that of the progress.
    ranked = any(replica.shown_name != replica.name for replica in replicas)
    restarts = width >= WIDE or not ranked or any(replica.history.restarts for replica in frame.replicas)
    lines = [
        header_line(frame, width),
        *(
            clip_line(replica_line(replica, name_width, width, finished=finished, restarts=restarts), width)
            for replica in replicas
        ),
    ]
    hidden = len(frame.replicas) - len(replicas)
    if hidden:
        lines.append((Span(f"  … and {hidden} more", "dim"),))
    return [*lines, *(clip_line(line, width) for line in frame.notices)]


def header_line(frame: JobFrame, width: int) -> StyledLine:
    """The job's name, its replica counts, its state and for how long it has been running."""
    name = f"{frame.kind.lower()}/{frame.name}"
    counts = " · ".join(f"{kind.lower()} {number}" for kind, number in frame.replica_counts.items())
    state = f"{frame.state}  {elapsed_text(frame.elapsed)}"
    gap = max(2, width - len(name) - 2 - len(counts) - len(state))
    style = {"Succeeded": "bold green", "Failed": "bold red", "Running": "bold"}.get(frame.state, "bold yellow")
    return (Span(name, "bold"), Span(f"  {counts}", "dim"), Span(" " * gap), Span(state, style))


def replica_line(
    replica: ReplicaState,
    name_width: int = NAME_WIDTH,
    width: int = 120,
    *,
    finished: bool = False,
    restarts: bool = True,
) -> StyledLine:
    """A light, a word, the restarts; then the progress or the error. In a finished job no replica still runs."""
    light, word, style = replica_condition(replica)
    if finished and word not in ("succeeded", "failed"):
        light, word, style = "○", "stopped", "dim"
    count = replica.history.restarts
    count_text = f"{count_phrase(count, 'restart'):<{RESTARTS_WIDTH}}" if restarts else ""
    start = (
        Span(f"  {replica.shown_name:<{name_width}}  "),
        Span(f"{light} ", style),
        Span(f"{word:<{STATE_WIDTH}}  "),
        Span(count_text, "yellow" if count else "dim"),
    )
    return (*start, *_replica_details(replica, word, width - len(plain_text(start))))


def replica_condition(replica: ReplicaState) -> tuple[str, str, str]:
    """The light of a replica, a word for its condition, and the style of both."""
    if replica.pod is None:
        return ("◐", "restarting", "yellow") if replica.history.restarts_by_pod else ("○", "waiting", "dim")
    phase, failed_before = replica.pod.status.phase, replica.history.exit_code is not None
    if phase == PodPhase.SUCCEEDED:
        return "✔", "succeeded", "green"
    if phase == PodPhase.FAILED:
        return "✖", "failed", "red"
    if replica.pod.metadata.deletion_timestamp is not None:
        return "◐", "stopping", "yellow"
    if _is_between_starts(replica.pod):
        return "◐", "restarting", "yellow"
    stuck = stuck_reason(replica.pod)
    if phase == PodPhase.RUNNING and not stuck:
        recovered = failed_before and replica.failed_recently
        return ("◐", "restarted", "yellow") if recovered else ("●", "running", "green")
    if failed_before:
        return "◐", "restarting", "yellow"
    return ("◐", "stuck", "red") if stuck else ("◐", "starting", "yellow")


def _is_between_starts(pod: Pod) -> bool:
    """Whether the program of a pod that restarts in place has ended, and has not started again."""
    statuses = program_statuses(pod) if IN_PLACE_ANNOTATION in pod.metadata.annotations else ()
    return any(status.state.terminated is not None and status.state.terminated.exit_code for status in statuses)


def stuck_reason(pod: Pod) -> str:
    """Why a container of the pod cannot start; empty if it is only starting."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    reasons = (status.state.waiting.reason for status in statuses if status.state.waiting is not None)
    return next((reason for reason in reasons if reason not in NORMAL_WAIT_REASONS), "")


def _replica_details(replica: ReplicaState, word: str, room: int) -> Iterable[Span]:
    if word in ("restarting", "restarted", "failed", "stuck"):
        code, pod = replica.history.exit_code, replica.pod
        reason = pod.status.reason or stuck_reason(pod) if pod is not None else ""
        parts = [exit_code_text(code)] if code is not None else []
        yield Span("  ".join([*parts, *([reason] if reason else [])]), "red")
        return
    if replica.usage is not None and word == "running" and room >= MIN_USAGE_WIDTH:
        usage = usage_text(replica.usage)
        room -= len(usage)
        yield Span(usage, "dim")
    if replica.progress is not None:
        yield from progress_bar(replica.progress, room)
    elif replica.bar and word == "running":
        yield Span(replica.bar.strip()[: max(0, room)])


def progress_bar(progress: Progress, room: int = 100) -> Iterable[Span]:
    """`step 240/400 ━━━━━━━━━━━━╺━━━━━━━ 60 %  3m left  loss 0.113`; in less room the bar is shorter, or left out.

    Metrics beyond the first for which there is no room are left out, too.
    """
    share = progress.fraction
    # As wide as the text of the last step, so that the bar does not move.
    step = f"{step_text(progress):<{len(step_text(progress._replace(step=progress.total or 0)))}}"
    percent = "" if share is None else f" {share:4.0%}".replace("%", " %")
    left = remaining_text(progress)
    # The bar gives way to the time that is left.
    percent += f"  {left:<{LEFT_WIDTH}}" if left else ""
    metrics = [(f"  {name} ", number_text(value)) for name, value in progress.metrics.items()]
    widths = accumulate(column_count(name) + max(NUMBER_WIDTH, len(value)) for name, value in metrics)
    fitting = sum(len(step) + len(percent) + width <= room for width in widths)
    metrics = metrics[: max(1, fitting)]
    # Room for longer values is reserved, so that the bar keeps its length.
    metric_widths = (column_count(name) + max(NUMBER_WIDTH, len(value)) for name, value in metrics)
    text_width = len(step) + len(percent) + sum(metric_widths)
    bar = min(BAR_WIDTH, room - text_width - 1)
    yield Span(step)
    if share is not None and bar >= MIN_BAR_WIDTH:
        full = int(share * bar)
        yield Span(f" {'━' * full}", "green")
        yield Span("╺" + "━" * (bar - full - 1) if full < bar else "", "dim")
    yield Span(percent)
    for name, value in metrics:
        yield Span(name, "dim")
        yield Span(value)


def remaining_text(progress: Progress) -> str:
    """`3m left`; empty if that is unknown, or nothing is left."""
    seconds, share = progress.remaining_seconds, progress.fraction
    if seconds is None or (share is not None and share >= 1):
        return ""
    return f"{human_duration(timedelta(seconds=seconds))} left"


def plain_progress(progress: Progress) -> str:
    """The progress without a bar: `step 240/400  60 %  3m left  loss 0.113`."""
    share, left = progress.fraction, remaining_text(progress)
    parts = [step_text(progress), *([f"{share:.0%}".replace("%", " %")] if share is not None else [])]
    parts += [left] if left else []
    return "  ".join([*parts, *(f"{name} {number_text(value)}" for name, value in progress.metrics.items())])


def usage_text(usage: ResourceUsage) -> str:
    """`  31 % cpu    44 MB   `, of constant width."""
    return f"{usage.cores * 100:4.0f} % cpu {usage.memory / 1e6:6.0f} MB   "


def step_text(progress: Progress) -> str:
    """`step 240/400`."""
    return f"step {progress.step:g}" if progress.total is None else f"step {progress.step:g}/{progress.total:g}"


def exit_code_text(code: int) -> str:
    """`exit 137 (SIGKILL)`."""
    name = signal_name(code)
    return f"exit {code} ({name})" if name else f"exit {code}"


def visible_replicas(replicas: Sequence[ReplicaState], rows: int) -> tuple[ReplicaState, ...]:
    """At most `rows` replicas, those that need attention preferred, in their original order."""
    if len(replicas) <= rows:
        return tuple(replicas)
    order = {"failed": 0, "stuck": 0, "restarting": 1, "stopping": 2, "starting": 3, "running": 4}
    ranked = sorted(range(len(replicas)), key=lambda at: (order.get(replica_condition(replicas[at])[1], 5), at))
    return tuple(replicas[at] for at in sorted(ranked[:rows]))
