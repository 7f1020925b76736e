"""The report of a simulation: waiting times by size and queue, usage and fragmentation over time. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from gangline.scheduler.simulation.engine import SimulatedJob, SimulationResult, UsageSample

SIZE_BOUNDS = (1, 4, 8, 32, 128, 512)
"""Upper bounds of the classes of gang sizes."""


class WaitSummary(msgspec.Struct, frozen=True):
    """How long jobs of one class waited for their first start, in seconds."""

    of: str
    jobs: int
    # Jobs that were never placed; they are in no percentile.
    never: int
    p50: float
    p95: float
    longest: float


class TimelinePoint(msgspec.Struct, frozen=True):
    """Means over an interval that begins at `at`."""

    at: float
    waiting: float
    used: float
    fragmented: float


class SimulationReport(msgspec.Struct, frozen=True, rename="camel"):
    jobs: int
    members: int
    # Until the last job ended, or the last decision.
    seconds: float
    # Until the last start of a job. Means and moments are of this time, as the cluster only empties afterwards.
    busy: float
    waiting: list[WaitSummary]
    by_size: list[WaitSummary]
    by_queue: list[WaitSummary]
    # Resource -> mean fraction in use over time.
    used: dict[str, float]
    scarcest: str
    fragmented: float
    preempted: int
    victims: int
    lost_seconds: float
    rounds: int
    decisions: int
    placed: int
    moments: list[TimelinePoint]


def simulation_report(result: SimulationResult, points: int = 240) -> SimulationReport:
    """All numbers of a result. The same result gives the same report: it contains no measured times."""
    samples = result.samples
    last = max((job.ended for job in result.jobs if job.ended is not None), default=0.0)
    last = max(last, samples[-1].at if samples else 0.0)
    end = _busy_until(result) or last
    return SimulationReport(
        jobs=len(result.jobs),
        members=sum(job.job.members for job in result.jobs),
        seconds=last,
        busy=end,
        waiting=[wait_summary("all", result.jobs)],
        by_size=_wait_summaries(
            result.jobs, lambda job: _size_class(job.job.members), [_size_class(b) for b in (*SIZE_BOUNDS, 1 << 60)]
        ),
        by_queue=_wait_summaries(result.jobs, lambda job: job.job.queue),
        used={name: _time_mean(samples, _used_fraction(name), end) for name in (samples[0].used if samples else {})},
        scarcest=result.scarcest,
        fragmented=_time_mean(samples, lambda sample: sample.fragmentation, end),
        preempted=result.preempted,
        victims=result.victims,
        lost_seconds=sum(job.lost_seconds for job in result.jobs),
        rounds=result.cycles,
        decisions=result.decisions,
        placed=result.placed,
        moments=_timeline(samples, result.scarcest, end, points),
    )


def _busy_until(result: SimulationResult) -> float:
    """When the last job started; 0 if all started at once."""
    begin = result.samples[0].at if result.samples else 0.0
    end = max((job.started for job in result.jobs if job.started is not None), default=0.0)
    return end if end > begin else 0.0


def wait_summary(name: str, jobs: Sequence[SimulatedJob]) -> WaitSummary:
    times = sorted(job.wait_seconds for job in jobs if job.wait_seconds is not None)
    return WaitSummary(
        name, len(jobs), len(jobs) - len(times), percentile(times, 50), percentile(times, 95), percentile(times, 100)
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that this percentage of all values does not exceed; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def _wait_summaries(
    jobs: Sequence[SimulatedJob], key: Callable[[SimulatedJob], str], order: Sequence[str] = ()
) -> list[WaitSummary]:
    groups: dict[str, list[SimulatedJob]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    names = [name for name in order if name in groups] or sorted(groups)
    return [wait_summary(name, groups[name]) for name in names]


def _size_class(members: int) -> str:
    """`1`, `2-4`, `5-8` and so on, `>512`."""
    below = 0
    for bound in SIZE_BOUNDS:
        if members <= bound:
            return str(bound) if bound == below + 1 else f"{below + 1}-{bound}"
        below = bound
    return f">{below}"


def _used_fraction(name: str) -> Callable[[UsageSample], float]:
    return lambda sample: sample.used[name]


def _time_mean(samples: Sequence[UsageSample], value: Callable[[UsageSample], float], end: float) -> float:
    """The mean over time until the end: a value holds until the next sample."""
    total = sum(value(sample) * (until - sample.at) for sample, until in _sample_spans(samples, end))
    length = end - samples[0].at if samples else 0.0
    return total / length if length > 0 else 0.0


def _sample_spans(samples: Sequence[UsageSample], end: float) -> Iterable[tuple[UsageSample, float]]:
    for sample, next_sample in pairwise(samples):
        if sample.at < end:
            yield sample, min(next_sample.at, end)
    if samples and samples[-1].at < end:
        yield samples[-1], end


def _timeline(samples: Sequence[UsageSample], scarcest: str, end: float, points: int) -> list[TimelinePoint]:
    """The busy time in `points` intervals of equal length."""
    if not samples or end <= samples[0].at:
        return []
    begin = samples[0].at
    step = (end - begin) / points
    sums = [[0.0, 0.0, 0.0] for _ in range(points)]
    for sample, until in _sample_spans(samples, end):
        values = sample.waiting, sample.used.get(scarcest, 0.0), sample.fragmentation
        first, last = int((sample.at - begin) / step), int((until - begin) / step)
        for number in range(first, min(last, points - 1) + 1):
            inside = min(until, begin + (number + 1) * step) - max(sample.at, begin + number * step)
            for at, value in enumerate(values):
                sums[number][at] += value * max(0.0, inside)
    return [
        TimelinePoint(begin + number * step, *(round(total / step, 6) for total in totals))
        for number, totals in enumerate(sums)
    ]
