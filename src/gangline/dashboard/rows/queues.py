"""Queues as lanes of the board, and the place of each waiting gang in its queue. Pure."""

from collections.abc import Iterable, Mapping

from gangline.api.meta import JSON, Key
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.summary.objects import object_key

DEFAULT_QUEUE = "default"
"""Also in `gangline.api.scheduling`; the queue of gangs that name none."""
WAITING_PHASES = ("", "Pending")


class QueueRow(ViewStruct, frozen=True):
    """A queue: its share, what it uses, and how many gangs wait and run."""

    name: str
    weight: int
    deserved: Mapping[str, str]
    held: Mapping[str, str]
    pending: int
    running: int


def queue_of(group: JSON) -> str:
    """The queue of a PodGroup."""
    return (group.get("spec") or {}).get("queue") or DEFAULT_QUEUE


def gang_phase(group: JSON | None) -> str:
    """The phase of a gang; empty before the scheduler has seen it, and without a gang."""
    return str((((group or {}).get("status") or {}).get("state") or {}).get("phase") or "")


def queue_rows(queues: Iterable[JSON], groups: Iterable[JSON]) -> list[QueueRow]:
    """A row for every queue that exists or that a gang names, sorted by name."""
    by_name = {queue["metadata"]["name"]: queue for queue in queues}
    phases: dict[str, list[str]] = {name: [] for name in by_name}
    for group in groups:
        phases.setdefault(queue_of(group), []).append(gang_phase(group))
    return [_queue_row(name, by_name.get(name, {}), phases[name]) for name in sorted(phases)]


def _queue_row(name: str, queue: JSON, phases: list[str]) -> QueueRow:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    waiting = sum(phase in WAITING_PHASES for phase in phases)
    return QueueRow(
        name=name,
        weight=spec.get("weight") or 1,
        deserved=status.get("deserved") or {},
        held=status.get("allocated") or {},
        pending=waiting,
        running=len(phases) - waiting,
    )


def places_in_line(groups: Iterable[JSON]) -> dict[Key, int]:
    """The place of each waiting gang in its queue, by the time it was created; 1 is the next.

    A gang of a higher priority class may go first: the scheduler decides, and it does not publish its order.
    """
    lines: dict[str, list[tuple[str, Key]]] = {}
    for group in groups:
        if gang_phase(group) in WAITING_PHASES:
            created = str(group["metadata"].get("creationTimestamp") or "")
            lines.setdefault(queue_of(group), []).append((created, object_key(group)))
    return {key: place for line in lines.values() for place, (_, key) in enumerate(sorted(line), 1)}
