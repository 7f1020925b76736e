"""What is remembered of notifications, so that each is delivered at least once, in any process, and not for ever.

For every job whose status changed lately the journal has an entry: the marks of the status that was read last, and of
these the ones that a route has not delivered yet. At any time each mark of an entry is delivered, filtered, dropped, or
due; so a process that starts with an old journal delivers some marks twice, but loses none.

A mark that is older than the time at which notifications were switched on, or than their greatest age, is not sent. So
a job that has ended before that needs no entry, and the journal stays small.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import TrainingJob
from gangline.notify.plan.routes import NotificationSettings
from gangline.notify.plan.transitions import (
    NotifiedState,
    StateMark,
    Transition,
    marks,
    time_text,
    transition_of,
    transition_of_deleted,
)

SINCE = "since"
"""The record that says from which time on marks are sent. All others are named by the uid of a job."""
MAX_BYTES = 1_000_000
"""The records of a journal take no more, which is enough for about 9,000 jobs: a ConfigMap holds 1 MiB."""
_MARGIN = 0.8
_END_PREFIXES = tuple(f"{state}-" for state in (NotifiedState.SUCCEEDED, NotifiedState.FAILED))


class JobEntry(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """What is remembered of one job."""

    # The keys of the marks of its last status.
    marks: tuple[str, ...] = ()
    # The time of the newest one, in seconds.
    newest: int = 0
    # The keys of marks that are not delivered yet, by route, oldest first.
    due: dict[str, tuple[str, ...]] = {}
    # API version, kind, namespace and name, as long as something is due.
    job: tuple[str, str, str, str] | None = None


class Due(msgspec.Struct, frozen=True):
    """A transition that a route must deliver."""

    route: str
    transition: Transition


class NotificationJournal:
    """The entries of all jobs. Has no effect but on itself; `changes` is what must be written down."""

    def __init__(self, settings: NotificationSettings, records: Mapping[str, str], now: datetime) -> None:
        """`records` are those of an earlier process; empty: notifications are switched on now."""
        self._settings = settings
        stored = _time(records.get(SINCE, ""))
        self.since = stored or now.replace(microsecond=0)
        self._entries = dict(_entries(records))
        self._sizes = {uid: len(uid) + len(records[uid]) for uid in self._entries}
        self._unwritten: set[str] = set() if stored is not None else {SINCE}
        # Routes that were removed from the settings hear of nothing any more.
        for uid, entry in list(self._entries.items()):
            names = {route.name for route in settings.routes}
            if not entry.due.keys() <= names:
                due = {name: keys for name, keys in entry.due.items() if name in names}
                self._put(uid, msgspec.structs.replace(entry, due=due))

    def observe(self, job: TrainingJob, now: datetime) -> list[Due]:
        """What must be delivered because of the job's status, oldest first, and was not due before."""
        uid, floor = job.metadata.uid, max(self.since, now - self._settings.max_age)
        before = self._entries.get(uid)
        present = marks(job, now, self._settings.waiting_after)
        due = dict(before.due) if before is not None else {}
        result: list[Due] = []
        for mark in _added(present, before, floor):
            # A status has no time of the last restart: it is when the count was first read.
            is_restart = before is not None and mark.state is NotifiedState.RESTARTED
            transition = transition_of(job, mark.key, now.replace(microsecond=0) if is_restart else mark.at)
            for route in self._settings.receivers(transition):
                due[route] = (*due.get(route, ()), mark.key)
                result.append(Due(route, transition))
        newest = max((int(mark.at.timestamp()) for mark in present), default=0)
        entry = JobEntry(tuple(mark.key for mark in present), newest, due, _identity(job))
        if _matters(entry, floor):
            self._put(uid, entry)
        else:
            self._remove(uid)
        return result

    def resume(self, jobs: Mapping[str, TrainingJob]) -> list[Due]:
        """What an earlier process left to be delivered. `jobs` are those that exist, by uid."""
        result: list[Due] = []
        for uid, entry in list(self._entries.items()):
            job = jobs.get(uid)
            for route, keys in entry.due.items():
                for key in keys:
                    if job is not None:
                        result.append(Due(route, transition_of(job, key)))
                    elif entry.job is not None:
                        result.append(Due(route, transition_of_deleted(entry.job, uid, key)))
            if job is None:
                self.forget(uid)
        return result

    def settle(self, due: Due) -> None:
        """It is delivered, or will never be: it is due no more."""
        uid, key = due.transition.uid, due.transition.mark_key
        entry = self._entries.get(uid)
        if entry is None or key not in entry.due.get(due.route, ()):
            return
        remaining = tuple(other for other in entry.due[due.route] if other != key)
        others = {route: keys for route, keys in entry.due.items() if route != due.route}
        entry = msgspec.structs.replace(entry, due={**others, due.route: remaining} if remaining else others)
        if not entry.due and not entry.marks:
            self._remove(uid)
        else:
            self._put(uid, entry)

    def forget(self, uid: str) -> None:
        """The job is deleted: its entry stays only as long as something is due."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.due:
            self._put(uid, msgspec.structs.replace(entry, marks=()))
        else:
            self._remove(uid)

    def forget_others(self, uids: Container[str]) -> None:
        """Only the jobs with these uids exist."""
        for uid in [uid for uid in self._entries if uid not in uids]:
            self.forget(uid)

    def take_changes(self) -> dict[str, str | None]:
        """The records that must be written, and None for those to delete. They count as written from now on."""
        self._make_room()
        changes = {name: self._record(name) for name in self._unwritten}
        self._unwritten = set()
        return changes

    def records(self) -> dict[str, str]:
        """All records."""
        texts = {name: self._record(name) for name in (SINCE, *self._entries)}
        return {name: text for name, text in texts.items() if text is not None}

    def put_back(self, changes: Iterable[str]) -> None:
        """These records could not be written."""
        self._unwritten.update(changes)

    @property
    def has_changes(self) -> bool:
        return bool(self._unwritten)

    def prune(self, now: datetime) -> None:
        """Remove entries that are too old to matter."""
        for uid, entry in list(self._entries.items()):
            if not _matters(entry, now - self._settings.max_age):
                self._remove(uid)

    def _record(self, name: str) -> str | None:
        if name == SINCE:
            return time_text(self.since)
        entry = self._entries.get(name)
        return msgspec.json.encode(entry).decode() if entry is not None else None

    def _put(self, uid: str, entry: JobEntry) -> None:
        if not entry.due and entry.job is not None:
            entry = msgspec.structs.replace(entry, job=None)
        if self._entries.get(uid) != entry:
            self._entries[uid] = entry
            self._sizes[uid] = len(uid) + len(msgspec.json.encode(entry))
            self._unwritten.add(uid)

    def _remove(self, uid: str) -> None:
        if self._entries.pop(uid, None) is not None:
            del self._sizes[uid]
            self._unwritten.add(uid)

    def _make_room(self) -> None:
        """If the records are too large, forget the oldest entries, and with them all marks up to their time.

        First those of which nothing is due. If that is not enough, notifications that wait are no longer written down:
        they are lost if the process is killed, but a receiver that is dead does not hold up the others.
        """
        total = sum(self._sizes.values())
        if total <= MAX_BYTES:
            return
        for uid, entry in sorted(self._entries.items(), key=lambda item: (bool(item[1].due), item[1].newest)):
            if total <= MAX_BYTES * _MARGIN:
                break
            total -= self._sizes[uid]
            self._remove(uid)
            after = datetime.fromtimestamp(entry.newest, tz=self.since.tzinfo) + timedelta(seconds=1)
            if after > self.since:
                self.since = after
                self._unwritten.add(SINCE)


def _added(present: Iterable[StateMark], before: JobEntry | None, floor: datetime) -> Iterator[StateMark]:
    """The marks that are to be sent: those that were not there before, and are not too old."""
    for mark in present:
        if before is None:
            is_added = mark.at >= floor
        else:
            # A restart has no time of its own, but a count, which is compared.
            is_added = mark.key not in before.marks and (mark.state is NotifiedState.RESTARTED or mark.at >= floor)
        if is_added:
            yield mark


def _matters(entry: JobEntry, floor: datetime) -> bool:
    """Whether an entry must be kept: something is due, the job goes on, or it has ended not long ago."""
    ended = any(key.startswith(_END_PREFIXES) for key in entry.marks)
    return bool(entry.due) or (bool(entry.marks) and not (ended and entry.newest < int(floor.timestamp())))


def _identity(job: TrainingJob) -> tuple[str, str, str, str]:
    return job.API_VERSION, job.KIND, job.metadata.namespace, job.metadata.name


def _time(text: str) -> datetime | None:
    """The time in a record; None if there is none, or somebody has edited it."""
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is not None else None
    return None


def _entries(records: Mapping[str, str]) -> Iterator[tuple[str, JobEntry]]:
    """The entries of records. One that cannot be read (somebody edited it) is left out."""
    for uid, text in records.items():
        if uid != SINCE:
            try:
                yield uid, msgspec.json.decode(text.encode(), type=JobEntry)
            except (msgspec.DecodeError, UnicodeEncodeError):
                continue
