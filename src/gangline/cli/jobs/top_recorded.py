"""What `gangline top` shows of a job that is gone: its timeline and what its pods used, from the history."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from gangline.cli.connect.server import ServerTarget
from gangline.cli.jobs.top_timeline import TopTimeline
from gangline.cli.resources.lookup import parse_job_arg
from gangline.history.reader import HistoryReader
from gangline.history.records import JobSummary, UsageSample
from gangline.local.home import PlaneHome

HEADER = ("JOB", "POD", "CPU(mean)", "CPU(peak)", "MEMORY(peak)")


class RecordedTop(NamedTuple):
    """A job that is gone: what its pods used, row by row, and its timeline until the end."""

    note: str
    rows: list[list[str]]
    timeline: TopTimeline
    end: float


def recorded_top(target: ServerTarget, word: str) -> RecordedTop | None:
    """What was recorded of the newest job of that name; None if nothing was, or there is no history here."""
    folder = target.archive or target.plane_folder
    if folder is None:
        return None
    reader = HistoryReader(PlaneHome(folder).history)
    job = _newest(reader, target.object_namespace, word)
    if job is None:
        return None
    versions = reader.job_changes(job.namespace, job.plural, job.name, job.uid)
    timeline = TopTimeline()
    timeline.add_recorded(versions, job.name)
    end = job.deleted or job.last
    when = datetime.fromtimestamp(end, UTC).astimezone()
    note = f"{job.kind.lower()}/{job.name} is gone; recorded until {when:%Y-%m-%d %H:%M:%S}:"
    samples = reader.usage(job.namespace, job.plural, job.name, job.uid)
    return RecordedTop(note, usage_rows(job.name, samples), timeline, end)


def _newest(reader: HistoryReader, namespace: str, word: str) -> JobSummary | None:
    kinds, name = parse_job_arg(word)
    plurals = {kind.plural for kind in kinds}
    named = [job for job in reader.jobs() if (job.namespace, job.name) == (namespace, name) and job.plural in plurals]
    return named[-1] if named else None


def usage_rows(job: str, samples: Iterable[UsageSample]) -> list[list[str]]:
    """A row for each pod, by name: the mean and the peak of its CPU use, and the peak of its memory."""
    by_pod: dict[str, list[UsageSample]] = {}
    for sample in samples:
        by_pod.setdefault(sample.pod, []).append(sample)
    return [
        [
            job,
            pod,
            f"{round(1000 * sum(sample.cores for sample in used) / len(used))}m",
            f"{round(1000 * max(sample.cores for sample in used))}m",
            f"{max(sample.memory for sample in used) // 2**20}Mi",
        ]
        for pod, used in sorted(by_pod.items())
    ]
