"""What a simulation comes to: waiting by size and queue, use and fragmentation over time. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from gangline.scheduler.simulation.engine import Life, Outcome, Sample

BOUNDS = (1, 4, 8, 32, 128, 512)
"""Where one class of gang sizes ends and the next begins."""


class Waiting(msgspec.Struct, frozen=True):
    """How long jobs of one class waited for their first start, in seconds."""

    of: str
    jobs: int
    # Those that never got their places; they are in no percentile.
    never: int
    p50: float
    p95: float
    longest: float


class Moment(msgspec.Struct, frozen=True):
    """Means over a stretch of time that begins here."""

    at: float
    waiting: float
    used: float
    fragmented: float


class Report(msgspec.Struct, frozen=True, rename="camel"):
    jobs: int
    members: int
    # Until the last job ended, or the last decision.
    seconds: float
    # Until the last job that ever did had started; means and moments are of this time, as later on it only empties.
    busy: float
    waiting: list[Waiting]
    by_size: list[Waiting]
    by_queue: list[Waiting]
    # Resource -> part of it in use, on average over time.
    used: dict[str, float]
    scarcest: str
    fragmented: float
    preempted: int
    victims: int
    lost_seconds: float
    rounds: int
    decisions: int
    placed: int
    moments: list[Moment]


def report(outcome: Outcome, points: int = 240) -> Report:
    """All numbers of an outcome. The same outcome gives the same report: nothing that was measured is in it."""
    samples = outcome.samples
    last = max((life.ended for life in outcome.lives if life.ended is not None), default=0.0)
    last = max(last, samples[-1].at if samples else 0.0)
    end = _busy(outcome) or last
    return Report(
        jobs=len(outcome.lives),
        members=sum(life.work.members for life in outcome.lives),
        seconds=last,
        busy=end,
        waiting=[waiting("all", outcome.lives)],
        by_size=_grouped(
            outcome.lives, lambda life: _class(life.work.members), [_class(b) for b in (*BOUNDS, 1 << 60)]
        ),
        by_queue=_grouped(outcome.lives, lambda life: life.work.queue),
        used={name: _mean(samples, _use(name), end) for name in (samples[0].used if samples else {})},
        scarcest=outcome.scarcest,
        fragmented=_mean(samples, lambda sample: sample.fragmented, end),
        preempted=outcome.preempted,
        victims=outcome.victims,
        lost_seconds=sum(life.lost for life in outcome.lives),
        rounds=outcome.rounds,
        decisions=outcome.decisions,
        placed=outcome.placed,
        moments=_moments(samples, outcome.scarcest, end, points),
    )


def _busy(outcome: Outcome) -> float:
    """0: all began at once."""
    begin = outcome.samples[0].at if outcome.samples else 0.0
    end = max((life.started for life in outcome.lives if life.started is not None), default=0.0)
    return end if end > begin else 0.0


def waiting(name: str, lives: Sequence[Life]) -> Waiting:
    times = sorted(life.waited for life in lives if life.waited is not None)
    return Waiting(
        name,
        len(lives),
        len(lives) - len(times),
        percentile(times, 50),
        percentile(times, 95),
        percentile(times, 100),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def _grouped(lives: Sequence[Life], key: Callable[[Life], str], order: Sequence[str] = ()) -> list[Waiting]:
    groups: dict[str, list[Life]] = {}
    for life in lives:
        groups.setdefault(key(life), []).append(life)
    names = [name for name in order if name in groups] or sorted(groups)
    return [waiting(name, groups[name]) for name in names]


def _class(members: int) -> str:
    """`1`, `2-4`, `5-8` and so on, `>512`."""
    below = 0
    for bound in BOUNDS:
        if members <= bound:
            return str(bound) if bound == below + 1 else f"{below + 1}-{bound}"
        below = bound
    return f">{below}"


def _use(name: str) -> Callable[[Sample], float]:
    return lambda sample: sample.used[name]


def _mean(samples: Sequence[Sample], value: Callable[[Sample], float], end: float) -> float:
    """Over time, until the end: a value holds until the next sample."""
    total = sum(value(sample) * (until - sample.at) for sample, until in _spans(samples, end))
    length = end - samples[0].at if samples else 0.0
    return total / length if length > 0 else 0.0


def _spans(samples: Sequence[Sample], end: float) -> Iterable[tuple[Sample, float]]:
    for sample, after in pairwise(samples):
        if sample.at < end:
            yield sample, min(after.at, end)
    if samples and samples[-1].at < end:
        yield samples[-1], end


def _moments(samples: Sequence[Sample], scarcest: str, end: float, points: int) -> list[Moment]:
    """The whole time in so many stretches of equal length."""
    if not samples or end <= samples[0].at:
        return []
    begin = samples[0].at
    step = (end - begin) / points
    sums = [[0.0, 0.0, 0.0] for _ in range(points)]
    for sample, until in _spans(samples, end):
        values = sample.waiting, sample.used.get(scarcest, 0.0), sample.fragmented
        first, last = int((sample.at - begin) / step), int((until - begin) / step)
        for number in range(first, min(last, points - 1) + 1):
            inside = min(until, begin + (number + 1) * step) - max(sample.at, begin + number * step)
            for at, value in enumerate(values):
                sums[number][at] += value * max(0.0, inside)
    return [
        Moment(begin + number * step, *(round(total / step, 6) for total in found))
        for number, found in enumerate(sums)
    ]
