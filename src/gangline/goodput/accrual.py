"""Books the time of replicas: each second of each replica once, in whole seconds, so that sums are exact."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from math import floor

import msgspec

from gangline.api.kubeflow.training import GoodputLedger
from gangline.goodput.model import Activity, Course


def whole_seconds(time: datetime) -> int:
    """The time in whole Unix seconds, as times in objects are."""
    return floor(time.timestamp())


def opened_ledger(since: datetime) -> GoodputLedger:
    """A ledger with nothing in it yet."""
    start = _time(whole_seconds(since))
    return GoodputLedger(since=start, until=start)


def accrue(ledger: GoodputLedger, courses: Iterable[Course], running: Course, now: datetime) -> GoodputLedger:
    """The ledger brought up to date: the time since its last entry is booked for each of these replicas.

    A course says what one replica does. Where it says that it works, `running` says what that is for the whole team.
    A clock that went back books nothing.
    """
    start, end = whole_seconds(ledger.until), whole_seconds(now)
    if end <= start:
        return ledger
    seconds = Counter(ledger.seconds)
    # Most replicas of a team do the same: they are counted together.
    for course, count in Counter(_clipped(course, start, end) for course in courses).items():
        for activity, duration in _durations(course, running, start, end):
            seconds[activity.value] += duration * count
    return msgspec.structs.replace(ledger, until=_time(end), seconds=ordered_seconds(seconds))


def skipped(ledger: GoodputLedger, now: datetime) -> GoodputLedger:
    """The ledger brought up to date without booking anything: while a job is suspended it has no replicas."""
    end = whole_seconds(now)
    if end <= whole_seconds(ledger.until):
        return ledger
    return msgspec.structs.replace(ledger, until=_time(end))


def closed_ledger(ledger: GoodputLedger | None) -> GoodputLedger | None:
    """The ledger of a job that has finished: nothing is added to it any more."""
    if ledger is None:
        return None
    return msgspec.structs.replace(ledger, replicas={}, formed_round=None, reached=None)


def moved(ledger: GoodputLedger, source: Activity, target: Activity, seconds: int) -> GoodputLedger:
    """The ledger with that much of one activity booked as another one: what it was is known only now."""
    available = ledger.seconds.get(source.value, 0)
    amount = min(available, seconds)
    if amount <= 0:
        return ledger
    changed = Counter(ledger.seconds)
    changed[source.value] -= amount
    changed[target.value] += amount
    return msgspec.structs.replace(ledger, seconds=ordered_seconds(changed))


def seconds_until(ledger: GoodputLedger, now: datetime) -> dict[str, int]:
    """The seconds by activity as of now: since the last entry the replicas are taken to do what they did then."""
    elapsed = max(0, whole_seconds(now) - whole_seconds(ledger.until))
    seconds = Counter(ledger.seconds)
    for activity, count in ledger.replicas.items():
        seconds[activity] += count * elapsed
    return ordered_seconds(seconds)


def ordered_seconds(seconds: Mapping[str, int]) -> dict[str, int]:
    """The activities that took any time, in their usual order; those that are not known here last."""
    known = [activity.value for activity in Activity]
    names = [*known, *(name for name in seconds if name not in known)]
    return {name: seconds[name] for name in names if seconds.get(name)}


def activity_at(course: Course, running: Course, at: int) -> Activity:
    """What a replica does at a time."""
    activity = _at(course, at)
    return _at(running, at) if activity is Activity.WORKING else activity


def _at(course: Course, at: int) -> Activity:
    activity = course[0].activity
    for change in course:
        if change.at > at:
            break
        activity = change.activity
    return activity


def _clipped(course: Course, start: int, end: int) -> Course:
    """The part of a course that lies between two times; its first activity holds from the start."""
    first = 0
    for number, change in enumerate(course):
        if change.at > start:
            break
        first = number
    kept = course[first:]
    while len(kept) > 1 and kept[-1].at >= end:
        kept = kept[:-1]
    if kept[0].at == start:
        return kept
    return (kept[0]._replace(at=start), *kept[1:])


def _durations(course: Course, running: Course, start: int, end: int) -> Iterator[tuple[Activity, int]]:
    """How long each activity lasts between two times. The durations add up to the time between them."""
    inner = {change.at for part in (course, running) for change in part if start < change.at < end}
    times = [start, *sorted(inner), end]
    for since, until in pairwise(times):
        yield activity_at(course, running, since), until - since


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
