"""The diagnosis of `gangline why` for a page: log lines and objects in it are links, commands can be copied. Pure."""

import re

from gangline.dashboard.rows.job_row import ViewStruct
from gangline.why.diagnosis.report import Cause, Diagnosis

_LOG_LINE = re.compile(r"^\s*(?P<replica>[\w.-]+)│ ?(?P<text>.*)$", re.DOTALL)
_COMMAND = re.compile(r"(?:^|: )((?:gangline|kubectl|echo|cd|pip|python) .+)$", re.DOTALL)
_OBJECT = re.compile(r"\b(?P<kind>pod|node|claim|queue|service|job) (?P<name>[a-z0-9][a-z0-9.-]*[a-z0-9])\b")


class EvidenceLink(ViewStruct, frozen=True):
    """Where evidence comes from: a line of a replica's log, or an object."""

    kind: str
    # The replica for a log, `pod/bert-worker-1` for an object.
    pod: str = ""
    line: str = ""
    path: str = ""


class Evidence(ViewStruct, frozen=True):
    """One line of evidence."""

    text: str
    link: EvidenceLink | None = None


class NextStep(ViewStruct, frozen=True):
    """What to do next; with a command that can be copied, if there is one."""

    text: str
    command: str | None = None


class CauseView(ViewStruct, frozen=True):
    """A cause, its evidence and what to do."""

    cause: str
    evidence: list[Evidence]
    next: list[NextStep]
    replicas: tuple[str, ...]


class WhyView(ViewStruct, frozen=True):
    """The whole diagnosis. `cause`, `evidence` and `next` are those of the likeliest cause."""

    headline: str
    healthy: bool
    cause: str
    evidence: list[Evidence]
    next: list[NextStep]
    # Further causes.
    others: list[CauseView]
    notes: tuple[str, ...]
    # What could not be read.
    unread: tuple[str, ...]


def uneventful_view(name: str) -> WhyView:
    """What is said of a recorded job about which nothing was."""
    headline = f"{name} neither failed nor waited for long while it was recorded."
    return WhyView(headline=headline, healthy=True, cause="", evidence=[], next=[], others=[], notes=(), unread=())


def why_view(report: Diagnosis) -> WhyView:
    """A diagnosis as the page shows it."""
    causes = [_cause_view(cause) for cause in report.causes]
    first = causes[0] if causes else None
    return WhyView(
        headline=report.summary,
        healthy=report.healthy,
        cause=report.cause,
        evidence=first.evidence if first else [evidence_view(text) for text in report.evidence],
        next=first.next if first else [next_step(text) for text in report.next],
        others=causes[1:],
        notes=report.notes,
        unread=report.unread,
    )


def _cause_view(cause: Cause) -> CauseView:
    return CauseView(
        cause=cause.cause,
        evidence=[evidence_view(text) for text in cause.evidence],
        next=[next_step(text) for text in cause.next],
        replicas=cause.replicas,
    )


def evidence_view(text: str) -> Evidence:
    """A line of evidence, with a link if it quotes a log or names an object."""
    quoted = _LOG_LINE.match(text)
    if quoted is not None:
        link = EvidenceLink(kind="log", pod=quoted["replica"], line=quoted["text"].removesuffix("…"))
        return Evidence(text=text, link=link)
    named = _OBJECT.search(text)
    if named is not None:
        return Evidence(text=text, link=EvidenceLink(kind="object", path=f"{named['kind']}/{named['name']}"))
    return Evidence(text=text)


def next_step(text: str) -> NextStep:
    """A next step, with the command at its end."""
    command = _COMMAND.search(text)
    return NextStep(text=text, command=command[1] if command is not None else None)
