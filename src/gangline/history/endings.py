"""What a new version of an object says has ended: runs of containers, and jobs that failed. Pure."""

from collections.abc import Container, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from gangline.api.meta import JSON
from gangline.history.selection import END_CONDITIONS, true_conditions

NOTABLE_CONDITIONS = ("Failed", "Restarting")
"""Conditions that are explained once each time they begin to hold."""
WAITING_SECONDS = 120.0
"""A job that has not run after this time is explained, once."""


class ContainerEnd(NamedTuple):
    """A run of a container that has ended."""

    container: str
    run: str
    """Its `containerID`."""
    attempt: int
    previous: bool
    """Whether the container has been started again."""


def container_ends(pod: JSON, known: Container[str]) -> Iterator[ContainerEnd]:
    """The runs of a pod's containers that have ended, but those whose id is known."""
    status = pod.get("status") or {}
    for part in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(part) or ():
            restarts = int(container.get("restartCount") or 0)
            for previous in (True, False):
                state = container.get("lastState" if previous else "state") or {}
                run = str((state.get("terminated") or {}).get("containerID") or "")
                if run and run not in known:
                    yield ContainerEnd(str(container["name"]), run, max(0, restarts - previous), previous)


def running_containers(pod: JSON) -> Iterator[ContainerEnd]:
    """The containers of a pod that run: when it is deleted, they have ended."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if "running" in (container.get("state") or {}):
            restarts = int(container.get("restartCount") or 0)
            yield ContainerEnd(str(container["name"]), str(container.get("containerID", "")), restarts, previous=False)


def notable_conditions(job: JSON) -> frozenset[tuple[str, str]]:
    """The conditions of a job that deserve an explanation, each with the time since when it holds."""
    return frozenset(
        (str(condition["type"]), str(condition.get("lastTransitionTime", "")))
        for condition in true_conditions(job)
        if condition["type"] in NOTABLE_CONDITIONS
    )


def is_waiting(job: JSON) -> bool:
    """Whether a job has neither run nor ended, and is meant to run."""
    types = {str(condition["type"]) for condition in true_conditions(job)}
    return not types & {"Running", "Restarting", "Suspended", *END_CONDITIONS}


def split_lines(text: str) -> list[str]:
    """The lines of a text, with their ends. Only a line feed ends one: progress bars print carriage returns."""
    *lines, rest = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([rest] if rest else [])]


def last_lines(text: str, count: int, size: int) -> str:
    """The last lines of a text: at most so many, of at most so many bytes together. Long ones are cut at their end."""
    lines = [_cut_line(line, size // 2) for line in split_lines(text)[-count:]]
    while lines and sum(map(_byte_count, lines)) > size:
        del lines[0]
    return "".join(lines)


def _cut_line(line: str, limit: int) -> str:
    if _byte_count(line) <= limit:
        return line
    return line.encode()[: limit - 1].decode(errors="ignore") + "\n"


def _byte_count(text: str) -> int:
    return len(text.encode())


def lines_until(text: str, moment: datetime) -> list[str]:
    """The lines of a text with timestamps that were printed until a moment."""
    return [line for line in split_lines(text) if _printed_by(line, moment)]


def _printed_by(line: str, moment: datetime) -> bool:
    time: Any = line.partition(" ")[0]
    try:
        # A datetime has no nanoseconds.
        head, _, fraction = time.rstrip("Z").partition(".")
        return datetime.fromisoformat(f"{head}.{fraction[:6] or 0:0<6}+00:00") <= moment
    except ValueError:
        return True
