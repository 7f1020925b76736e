"""What a person should see of a job that runs: facts in, lines of styled text out. Pure; nobody draws here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gangline.api.core import ContainerStatus, Pod, PodPhase
from gangline.progress.line import Progress
from gangline.why.model.wording import count, signal_name

BAR, SHORT = 20, 5
"""How long a bar is, and how long at least."""
ROOMY = 68
"""How much room there must be for what a member takes, beside how far it is."""
LONG = 8
"""What a number may take."""
NAMES, STATES, RESTARTS = 8, 11, 12
"""The least widths of columns; longer words make them wider."""
OVER = ("Succeeded", "Failed")
QUIET = ("", "ContainerCreating", "PodInitializing", "Completed", "Error")
"""Why a container waits when nothing is wrong with it."""


class Span(NamedTuple):
    """Text in one style: `green`, `bold`, `dim` ...; empty for plain."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class History(msgspec.Struct, frozen=True):
    """What is remembered of one seat, over all pods that sat there."""

    # How often containers of each pod were started again, by the pod's uid.
    pods: Mapping[str, int] = {}
    # With what the last run that failed ended.
    exit_code: int | None = None

    @property
    def restarts(self) -> int:
        return max(0, len(self.pods) - 1) + sum(self.pods.values())


class Use(NamedTuple):
    """What a member takes: a share of one core, and bytes."""

    cpu: float
    memory: int


class Seat(msgspec.Struct, frozen=True):
    """One member of the team, now."""

    name: str
    pod: Pod | None = None
    history: History = History()
    progress: Progress | None = None
    # It failed only just now: a person should see that, however soon it runs again.
    struck: bool = False
    use: Use | None = None


class Facts(msgspec.Struct, frozen=True):
    """All that is drawn."""

    kind: str
    name: str
    state: str
    seats: tuple[Seat, ...] = ()
    # Replicas asked for, by type.
    wanted: Mapping[str, int] = {}
    elapsed: float = 0.0


def noted(history: History, pod: Pod) -> History:
    """What is remembered once a pod was seen as it is."""
    restarts = sum(status.restart_count for status in pod.status.container_statuses)
    codes = [code for status in pod.status.container_statuses if (code := _failed_with(status)) is not None]
    return History(
        {**history.pods, pod.metadata.uid: max(restarts, history.pods.get(pod.metadata.uid, 0))},
        codes[-1] if codes else history.exit_code,
    )


def _failed_with(status: ContainerStatus) -> int | None:
    for state in (status.state, status.last_state):
        if state.terminated is not None and state.terminated.exit_code:
            return state.terminated.exit_code
    return None


# Lines


def block(facts: Facts, width: int = 100, rows: int = 40) -> list[Line]:
    """The head, then one line per member: at most `rows` of these, those that need attention first."""
    shown = chosen(facts.seats, rows)
    names = max([NAMES, *(len(seat.name) for seat in shown)])
    over = facts.state in OVER
    lines = [head(facts, width), *(clipped(row(seat, names, width, over=over), width) for seat in shown)]
    left = len(facts.seats) - len(shown)
    if left:
        lines.append((Span(f"  … and {left} more", "dim"),))
    return lines


def head(facts: Facts, width: int) -> Line:
    """Which job, of whom it is made, its state and how long it has been going."""
    name = f"{facts.kind.lower()}/{facts.name}"
    team = " · ".join(f"{kind.lower()} {number}" for kind, number in facts.wanted.items())
    end = f"{facts.state}  {elapsed(facts.elapsed)}"
    gap = max(2, width - len(name) - 2 - len(team) - len(end))
    style = {"Succeeded": "bold green", "Failed": "bold red", "Running": "bold"}.get(
        facts.state, "bold yellow"
    )
    return (Span(name, "bold"), Span(f"  {team}", "dim"), Span(" " * gap), Span(end, style))


def row(seat: Seat, names: int = NAMES, width: int = 120, *, over: bool = False) -> Line:
    """A light, a word, restarts; then how far it is, or what is wrong. Once the job is over nothing goes on."""
    light, word, style = condition(seat)
    if over and word not in ("succeeded", "failed"):
        light, word, style = "○", "stopped", "dim"
    restarts = seat.history.restarts
    start = (
        Span(f"  {seat.name:<{names}}  "),
        Span(f"{light} ", style),
        Span(f"{word:<{STATES}}  "),
        Span(f"{count(restarts, 'restart'):<{RESTARTS}}", "yellow" if restarts else "dim"),
    )
    return (*start, *_more(seat, word, width - len(text(start))))


def condition(seat: Seat) -> tuple[str, str, str]:
    """How a member is: its light, a word, and the style of both."""
    if seat.pod is None:
        return ("◐", "restarting", "yellow") if seat.history.pods else ("○", "waiting", "dim")
    phase, again = seat.pod.status.phase, seat.history.exit_code is not None
    if phase == PodPhase.SUCCEEDED:
        return "✔", "succeeded", "green"
    if phase == PodPhase.FAILED:
        return "✖", "failed", "red"
    if seat.pod.metadata.deletion_timestamp is not None:
        return "◐", "stopping", "yellow"
    stuck = waits_for(seat.pod)
    if phase == PodPhase.RUNNING and not stuck:
        return ("◐", "restarted", "yellow") if again and seat.struck else ("●", "running", "green")
    if again:
        return "◐", "restarting", "yellow"
    return ("◐", "stuck", "red") if stuck else ("◐", "starting", "yellow")


def waits_for(pod: Pod) -> str:
    """Why a container of it cannot start; empty when that is only a matter of time."""
    everyone = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    reasons = (status.state.waiting.reason for status in everyone if status.state.waiting is not None)
    return next((reason for reason in reasons if reason not in QUIET), "")


def _more(seat: Seat, word: str, room: int) -> Iterable[Span]:
    if word in ("restarting", "restarted", "failed", "stuck"):
        code = seat.history.exit_code
        reason = seat.pod.status.reason or waits_for(seat.pod) if seat.pod is not None else ""
        told = [ended(code)] if code is not None else []
        yield Span("  ".join([*told, *([reason] if reason else [])]), "red")
        return
    if seat.use is not None and word == "running" and room >= ROOMY:
        taken = used(seat.use)
        room -= len(taken)
        yield Span(taken, "dim")
    if seat.progress is not None:
        yield from gauge(seat.progress, room)


def gauge(progress: Progress, room: int = 100) -> Iterable[Span]:
    """`step 240/400 ━━━━━━━━━━━━╺━━━━━━━ 60 %  loss 0.113`; in less room the bar is shorter, or left out."""
    share = progress.share
    # As wide as it will be in the end, so that the bar stands still.
    told = f"{steps(progress):<{len(steps(progress._replace(step=progress.total or 0)))}}"
    percent = "" if share is None else f" {share:4.0%}".replace("%", " %")
    metrics = [(f"  {name} ", number(value)) for name, value in progress.metrics.items()]
    # The room of a number that will be longer is kept, for the bar's sake.
    rest = len(told) + len(percent) + sum(len(name) + max(LONG, len(value)) for name, value in metrics)
    bar = min(BAR, room - rest - 1)
    yield Span(told)
    if share is not None and bar >= SHORT:
        full = int(share * bar)
        yield Span(f" {'━' * full}", "green")
        yield Span("╺" + "━" * (bar - full - 1) if full < bar else "", "dim")
    yield Span(percent)
    for name, value in metrics:
        yield Span(name, "dim")
        yield Span(value)


def used(use: Use) -> str:
    """`  31 % cpu    44 MB   `, always as wide."""
    return f"{use.cpu * 100:4.0f} % cpu {use.memory / 1e6:6.0f} MB   "


def steps(progress: Progress) -> str:
    """`step 240/400`."""
    return (
        f"step {progress.step:g}" if progress.total is None else f"step {progress.step:g}/{progress.total:g}"
    )


# Words


def ended(code: int) -> str:
    """`exit 137 (SIGKILL)`."""
    name = signal_name(code)
    return f"exit {code} ({name})" if name else f"exit {code}"


def number(value: float) -> str:
    """Three digits that matter: `0.113`, `0.0000452`, `1.92`, `12300`."""
    if (value and abs(value) < 1e-6) or abs(value) >= 1e9:
        return f"{value:.2e}"
    text = f"{value:.3g}"
    return f"{float(text):.10f}".rstrip("0").rstrip(".") if "e" in text else text


def elapsed(seconds: float) -> str:
    """`00:07`, `12:30`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def lasted(seconds: float) -> str:
    """`0.6 s`, `14 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def plain(progress: Progress) -> str:
    """The same without drawing: `step 240/400  60 %  loss 0.113`."""
    share = progress.share
    parts = [
        steps(progress),
        *([f"{share:.0%}".replace("%", " %")] if share is not None else []),
    ]
    return "  ".join([*parts, *(f"{name} {number(value)}" for name, value in progress.metrics.items())])


def text(line: Line) -> str:
    return "".join(span.text for span in line)


def clipped(line: Line, width: int) -> Line:
    """No more than fits: a line that wraps would make the block jump."""
    kept: list[Span] = []
    left = width
    for span in line:
        kept.append(Span(span.text[:left], span.style))
        left -= len(span.text)
        if left <= 0:
            break
    return tuple(kept)


def chosen(seats: Sequence[Seat], rows: int) -> tuple[Seat, ...]:
    """Those that are shown when not all can be, in the order of the team."""
    if len(seats) <= rows:
        return tuple(seats)
    order = {"failed": 0, "stuck": 0, "restarting": 1, "stopping": 2, "starting": 3, "running": 4}
    ranked = sorted(range(len(seats)), key=lambda at: (order.get(condition(seats[at])[1], 5), at))
    return tuple(seats[at] for at in sorted(ranked[:rows]))
