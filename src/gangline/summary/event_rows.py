"""The events of a job: which of them belong to it, their order, and their table cells. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gangline.api.durations import human_duration
from gangline.api.meta import JSON
from gangline.summary.job_rows import parse_timestamp
from gangline.summary.objects import ServerJob

HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
EARLIEST = datetime.min.replace(tzinfo=UTC)


def is_about(event: JSON, job: ServerJob | None, types: Iterable[str] = ()) -> bool:
    """Whether an event is of one of the types, and about the job or an object whose name begins with the job's."""
    if types and str(event.get("type")) not in types:
        return False
    if job is None:
        return True
    involved = event.get("involvedObject") or {}
    name = involved.get("name", "")
    if involved.get("kind") == job.resource.kind:
        same = not involved.get("uid") or involved["uid"] == job.body["metadata"].get("uid")
        return bool(name == job.key.name and same)
    if not (name == job.key.name or name.startswith(f"{job.key.name}-")):
        return False
    # An earlier job of the same name had pods of the same names: skip events from before this job was created.
    created, happened = parse_timestamp(job.body["metadata"].get("creationTimestamp")), last_seen(event)
    return created is None or happened is None or happened >= created


def last_seen(event: JSON) -> datetime | None:
    """When an event happened last, from the first of its time fields that is set."""
    series = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((moment for moment in map(parse_timestamp, stamps) if moment is not None), None)


def sorted_events(items: Iterable[JSON]) -> list[JSON]:
    """Events by the time they last happened, oldest first; events without a time come before all others."""
    return sorted(items, key=lambda event: last_seen(event) or EARLIEST)


def occurrences(event: JSON) -> int:
    """How often an event happened."""
    return (event.get("series") or {}).get("count") or event.get("count") or 1


def event_row(event: JSON, now: datetime, *, namespaces: bool = False) -> list[str]:
    """The cells of an event."""
    last, involved = last_seen(event), event.get("involvedObject") or {}
    age = human_duration(now - last) if last is not None else "<unknown>"
    first = parse_timestamp(event.get("firstTimestamp")) or parse_timestamp(event.get("eventTime"))
    if occurrences(event) > 1 and first is not None:
        age += f" (x{occurrences(event)} over {human_duration(now - first)})"
    return [
        *([str((event.get("metadata") or {}).get("namespace", ""))] if namespaces else []),
        age,
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{involved.get('kind', '')}/{involved.get('name', '')}",
        " ".join(str(event.get("message", "")).split()),
    ]
