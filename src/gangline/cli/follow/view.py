"""What a person should see of a job that runs: facts in, lines of styled text out. Pure; nobody draws here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gangline.api.core import ContainerStatus, Pod, PodPhase
from gangline.progress.line import Progress
from gangline.why.diagnosis.wording import count_phrase, signal_name

BAR_WIDTH, MIN_BAR_WIDTH = 20, 5
"""How long a bar is, and how long at least."""
MIN_USAGE_WIDTH = 68
"""How much room there must be for what a member takes, beside how far it is."""
NUMBER_WIDTH = 8
"""What a number may take."""
NAME_WIDTH, STATE_WIDTH, RESTARTS_WIDTH = 8, 11, 12
"""The least widths of columns; longer words make them wider."""
FINISHED_STATES = ("Succeeded", "Failed")
NORMAL_WAIT_REASONS = ("", "ContainerCreating", "PodInitializing", "Completed", "Error")
"""Why a container waits when nothing is wrong with it."""


class Span(NamedTuple):
    """Text in one style: `green`, `bold`, `dim` ...; empty for plain."""

    text: str
    style: str = ""


StyledLine = tuple[Span, ...]


class RestartHistory(msgspec.Struct, frozen=True):
    """What is remembered of one seat, over all pods that sat there."""

    # How often containers of each pod were started again, by the pod's uid.
    restarts_by_pod: Mapping[str, int] = {}
    # With what the last run that failed ended.
    exit_code: int | None = None

    @property
    def restarts(self) -> int:
        return max(0, len(self.restarts_by_pod) - 1) + sum(self.restarts_by_pod.values())


class ReplicaUsage(NamedTuple):
    """What a member takes: a share of one core, and bytes."""

    cpu: float
    memory: int


class ReplicaState(msgspec.Struct, frozen=True):
    """One member of the team, now."""

    name: str
    pod: Pod | None = None
    history: RestartHistory = RestartHistory()
    progress: Progress | None = None
    # It failed only just now: a person should see that, however soon it runs again.
    failed_recently: bool = False
    usage: ReplicaUsage | None = None


class JobFrame(msgspec.Struct, frozen=True):
    """All that is drawn."""

    kind: str
    name: str
    state: str
    replicas: tuple[ReplicaState, ...] = ()
    # Replicas asked for, by type.
    replica_counts: Mapping[str, int] = {}
    elapsed: float = 0.0


def updated_history(history: RestartHistory, pod: Pod) -> RestartHistory:
    """What is remembered once a pod was seen as it is."""
    restarts = sum(status.restart_count for status in pod.status.container_statuses)
    codes = [code for status in pod.status.container_statuses if (code := _failure_exit_code(status)) is not None]
    return RestartHistory(
        {
            **history.restarts_by_pod,
            pod.metadata.uid: max(restarts, history.restarts_by_pod.get(pod.metadata.uid, 0)),
        },
        codes[-1] if codes else history.exit_code,
    )


def _failure_exit_code(status: ContainerStatus) -> int | None:
    for state in (status.state, status.last_state):
        if state.terminated is not None and state.terminated.exit_code:
            return state.terminated.exit_code
    return None


# Lines


def job_lines(facts: JobFrame, width: int = 100, rows: int = 40) -> list[StyledLine]:
    """The head, then one line per member: at most `rows` of these, those that need attention first."""
    shown = visible_replicas(facts.replicas, rows)
    names = max([NAME_WIDTH, *(len(seat.name) for seat in shown)])
    over = facts.state in FINISHED_STATES
    lines = [
        header_line(facts, width),
        *(clip_line(replica_line(seat, names, width, over=over), width) for seat in shown),
    ]
    left = len(facts.replicas) - len(shown)
    if left:
        lines.append((Span(f"  … and {left} more", "dim"),))
    return lines


def header_line(facts: JobFrame, width: int) -> StyledLine:
    """Which job, of whom it is made, its state and how long it has been going."""
    name = f"{facts.kind.lower()}/{facts.name}"
    team = " · ".join(f"{kind.lower()} {number}" for kind, number in facts.replica_counts.items())
    end = f"{facts.state}  {elapsed_text(facts.elapsed)}"
    gap = max(2, width - len(name) - 2 - len(team) - len(end))
    style = {"Succeeded": "bold green", "Failed": "bold red", "Running": "bold"}.get(facts.state, "bold yellow")
    return (Span(name, "bold"), Span(f"  {team}", "dim"), Span(" " * gap), Span(end, style))


def replica_line(seat: ReplicaState, names: int = NAME_WIDTH, width: int = 120, *, over: bool = False) -> StyledLine:
    """A light, a word, restarts; then how far it is, or what is wrong. Once the job is over nothing goes on."""
    light, word, style = replica_condition(seat)
    if over and word not in ("succeeded", "failed"):
        light, word, style = "○", "stopped", "dim"
    restarts = seat.history.restarts
    start = (
        Span(f"  {seat.name:<{names}}  "),
        Span(f"{light} ", style),
        Span(f"{word:<{STATE_WIDTH}}  "),
        Span(f"{count_phrase(restarts, 'restart'):<{RESTARTS_WIDTH}}", "yellow" if restarts else "dim"),
    )
    return (*start, *_replica_details(seat, word, width - len(plain_text(start))))


def replica_condition(seat: ReplicaState) -> tuple[str, str, str]:
    """How a member is: its light, a word, and the style of both."""
    if seat.pod is None:
        return ("◐", "restarting", "yellow") if seat.history.restarts_by_pod else ("○", "waiting", "dim")
    phase, again = seat.pod.status.phase, seat.history.exit_code is not None
    if phase == PodPhase.SUCCEEDED:
        return "✔", "succeeded", "green"
    if phase == PodPhase.FAILED:
        return "✖", "failed", "red"
    if seat.pod.metadata.deletion_timestamp is not None:
        return "◐", "stopping", "yellow"
    stuck = stuck_reason(seat.pod)
    if phase == PodPhase.RUNNING and not stuck:
        return ("◐", "restarted", "yellow") if again and seat.failed_recently else ("●", "running", "green")
    if again:
        return "◐", "restarting", "yellow"
    return ("◐", "stuck", "red") if stuck else ("◐", "starting", "yellow")


def stuck_reason(pod: Pod) -> str:
    """Why a container of it cannot start; empty when that is only a matter of time."""
    everyone = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    reasons = (status.state.waiting.reason for status in everyone if status.state.waiting is not None)
    return next((reason for reason in reasons if reason not in NORMAL_WAIT_REASONS), "")


def _replica_details(seat: ReplicaState, word: str, room: int) -> Iterable[Span]:
    if word in ("restarting", "restarted", "failed", "stuck"):
        code = seat.history.exit_code
        reason = seat.pod.status.reason or stuck_reason(seat.pod) if seat.pod is not None else ""
        told = [exit_code_text(code)] if code is not None else []
        yield Span("  ".join([*told, *([reason] if reason else [])]), "red")
        return
    if seat.usage is not None and word == "running" and room >= MIN_USAGE_WIDTH:
        taken = usage_text(seat.usage)
        room -= len(taken)
        yield Span(taken, "dim")
    if seat.progress is not None:
        yield from progress_bar(seat.progress, room)


def progress_bar(progress: Progress, room: int = 100) -> Iterable[Span]:
    """`step 240/400 ━━━━━━━━━━━━╺━━━━━━━ 60 %  loss 0.113`; in less room the bar is shorter, or left out."""
    share = progress.fraction
    # As wide as it will be in the end, so that the bar stands still.
    told = f"{step_text(progress):<{len(step_text(progress._replace(step=progress.total or 0)))}}"
    percent = "" if share is None else f" {share:4.0%}".replace("%", " %")
    metrics = [(f"  {name} ", number_text(value)) for name, value in progress.metrics.items()]
    # The room of a number that will be longer is kept, for the bar's sake.
    rest = len(told) + len(percent) + sum(len(name) + max(NUMBER_WIDTH, len(value)) for name, value in metrics)
    bar = min(BAR_WIDTH, room - rest - 1)
    yield Span(told)
    if share is not None and bar >= MIN_BAR_WIDTH:
        full = int(share * bar)
        yield Span(f" {'━' * full}", "green")
        yield Span("╺" + "━" * (bar - full - 1) if full < bar else "", "dim")
    yield Span(percent)
    for name, value in metrics:
        yield Span(name, "dim")
        yield Span(value)


def usage_text(use: ReplicaUsage) -> str:
    """`  31 % cpu    44 MB   `, always as wide."""
    return f"{use.cpu * 100:4.0f} % cpu {use.memory / 1e6:6.0f} MB   "


def step_text(progress: Progress) -> str:
    """`step 240/400`."""
    return f"step {progress.step:g}" if progress.total is None else f"step {progress.step:g}/{progress.total:g}"


# Words


def exit_code_text(code: int) -> str:
    """`exit 137 (SIGKILL)`."""
    name = signal_name(code)
    return f"exit {code} ({name})" if name else f"exit {code}"


def number_text(value: float) -> str:
    """Three digits that matter: `0.113`, `0.0000452`, `1.92`, `12300`."""
    if (value and abs(value) < 1e-6) or abs(value) >= 1e9:
        return f"{value:.2e}"
    text = f"{value:.3g}"
    return f"{float(text):.10f}".rstrip("0").rstrip(".") if "e" in text else text


def elapsed_text(seconds: float) -> str:
    """`00:07`, `12:30`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def duration_text(seconds: float) -> str:
    """`0.6 s`, `14 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def plain_progress(progress: Progress) -> str:
    """The same without drawing: `step 240/400  60 %  loss 0.113`."""
    share = progress.fraction
    parts = [
        step_text(progress),
        *([f"{share:.0%}".replace("%", " %")] if share is not None else []),
    ]
    return "  ".join([*parts, *(f"{name} {number_text(value)}" for name, value in progress.metrics.items())])


def plain_text(line: StyledLine) -> str:
    return "".join(span.text for span in line)


def clip_line(line: StyledLine, width: int) -> StyledLine:
    """No more than fits: a line that wraps would make the block jump."""
    kept: list[Span] = []
    left = width
    for span in line:
        kept.append(Span(span.text[:left], span.style))
        left -= len(span.text)
        if left <= 0:
            break
    return tuple(kept)


def visible_replicas(seats: Sequence[ReplicaState], rows: int) -> tuple[ReplicaState, ...]:
    """Those that are shown when not all can be, in the order of the team."""
    if len(seats) <= rows:
        return tuple(seats)
    order = {"failed": 0, "stuck": 0, "restarting": 1, "stopping": 2, "starting": 3, "running": 4}
    ranked = sorted(range(len(seats)), key=lambda at: (order.get(replica_condition(seats[at])[1], 5), at))
    return tuple(seats[at] for at in sorted(ranked[:rows]))
