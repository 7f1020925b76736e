"""What the time of jobs' replicas went into, from the ledgers in their status (docs/goodput.md)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gangline.api.durations import human_duration
from gangline.api.meta import JSON
from gangline.goodput.model import Activity
from gangline.summary.job_rows import NONE, parse_timestamp, queue_name
from gangline.summary.job_state import is_finished

HEADER = ("QUEUE", "JOBS", "TIME", *(activity.value.upper() for activity in Activity))


class GoodputSum(NamedTuple):
    """The ledgers of several jobs, added up."""

    namespace: str
    queue: str
    jobs: int
    seconds: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.seconds.values())


def goodput_seconds(job: JSON, now: datetime) -> dict[str, int]:
    """The seconds of a job's replicas by activity, as of now; empty if its status has no ledger.

    Since its last entry the replicas are taken to do what they did then: if they do something else, the operator writes
    it within a minute.
    """
    ledger = (job.get("status") or {}).get("goodput")
    if not isinstance(ledger, dict):
        return {}
    until = parse_timestamp(ledger.get("until"))
    elapsed = 0 if until is None or is_finished(job) else max(0, int((now - until).total_seconds()))
    seconds = Counter(_counts(ledger.get("seconds")))
    for activity, replicas in _counts(ledger.get("replicas")).items():
        seconds[activity] += replicas * elapsed
    return {activity.value: seconds[activity] for activity in Activity if seconds[activity]}


def goodput_text(job: JSON, now: datetime) -> str:
    """`working 91 %, queueing 6 %, starting 3 % of 1h20m`, largest share first; empty if nothing is known."""
    seconds = goodput_seconds(job, now)
    total = sum(seconds.values())
    if not total:
        return ""
    shares = sorted(seconds.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {share_text(part, total)}" for name, part in shares)
    return f"{parts} of {human_duration(timedelta(seconds=total))}"


def goodput_sums(jobs: Iterable[JSON], now: datetime) -> list[GoodputSum]:
    """The ledgers of jobs by namespace and queue, in the order of their names. Jobs without one are left out."""
    sums: dict[tuple[str, str], tuple[int, Counter[str]]] = {}
    for job in jobs:
        seconds = goodput_seconds(job, now)
        if seconds:
            key = (str((job.get("metadata") or {}).get("namespace", "")), queue_name(job))
            count, counter = sums.get(key, (0, Counter[str]()))
            counter.update(seconds)
            sums[key] = (count + 1, counter)
    return [GoodputSum(*key, count, dict(counter)) for key, (count, counter) in sorted(sums.items())]


def goodput_row(group: GoodputSum) -> list[str]:
    """The cells of one sum, without its namespace."""
    shares = (share_text(group.seconds.get(activity.value, 0), group.total) for activity in Activity)
    return [group.queue, str(group.jobs), human_duration(timedelta(seconds=group.total)), *shares]


def share_text(part: int, total: int) -> str:
    """`91 %`, `<1 %`, or `-` for nothing."""
    if not part:
        return NONE
    percent = round(100 * part / total)
    if percent == 100 and part < total:
        return ">99 %"
    return f"{percent} %" if percent else "<1 %"


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {
        name: count
        for name, count in value.items()
        if isinstance(count, int) and not isinstance(count, bool) and count > 0
    }
