"""Jobs for a simulation: read from a trace, or generated from a seed. Pure."""

import csv
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gangline.api.quantity import QuantityError
from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.base.errors import InputError
from gangline.scheduler.types.resources import PODS, amounts


class WorkloadJob(msgspec.Struct, frozen=True):
    """One job: when it arrives, what it needs, and how long it runs once placed. Times in seconds."""

    name: str
    arrival: float
    members: int
    # Resources of each member, in the scheduler's units; includes 1 of `pods`.
    request: tuple[tuple[str, int], ...]
    duration: float
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    # How many members must start together; the others join when there is room. 0: all of them.
    min_members: int = 0

    @property
    def required_members(self) -> int:
        return self.min_members or self.members


TRACE_COLUMNS = ("arrival", "members", "request", "duration", "queue", "priority", "name", "least")
REQUIRED_COLUMNS = ("arrival", "members", "request", "duration")
MAX_MEMBERS = 10_000_000
"""The largest gang: as many pods as the largest cluster has."""
MAX_RESOURCE_AMOUNT = 1 << 50
"""The largest amount of a pod or node: bytes, thousandths of a core, devices."""
MAX_SECONDS = 100 * 365 * 86_400.0
"""A hundred years."""

DEFAULT_SIZES: Mapping[int, float] = {1: 40, 4: 25, 8: 20, 32: 10, 128: 4, 512: 1}
DEFAULT_REQUEST: Mapping[str, str] = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}


class WorkloadMix(msgspec.Struct, frozen=True):
    """The distribution of generated jobs."""

    # Members of a gang -> relative frequency.
    sizes: Mapping[int, float] = msgspec.field(default_factory=lambda: dict(DEFAULT_SIZES))
    queues: Mapping[str, float] = msgspec.field(default_factory=lambda: {DEFAULT_QUEUE: 1.0})
    priorities: Mapping[int, float] = msgspec.field(default_factory=lambda: {0: 1.0})
    # Resources of each member, as quantities.
    request: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(DEFAULT_REQUEST))
    # Median and logarithmic standard deviation of how long jobs run.
    duration: float = 1800.0
    spread: float = 1.0
    # Arriving work as a fraction of what the cluster can do; above 1 the backlog only grows.
    load: float = 0.9


def generated_jobs(count: int, seed: int, mix: WorkloadMix, capacity: Mapping[str, int]) -> list[WorkloadJob]:
    """Random jobs, the same for the same seed. They arrive at random, at the rate that the load of the mix gives."""
    rng = random.Random(seed)  # noqa: S311 - chance that can be repeated is what is wanted
    request = parsed_request(mix.request)
    draws = [(_weighted_choice(rng, mix.sizes), _random_duration(rng, mix)) for _ in range(count)]
    interval = _arrival_interval(draws, dict(request), capacity, mix.load)
    arrival, jobs = 0.0, []
    for number, (members, duration) in enumerate(draws):
        arrival += rng.expovariate(1 / interval) if interval else 0.0
        queue, priority = _weighted_choice(rng, mix.queues), _weighted_choice(rng, mix.priorities)
        name = f"job-{number:0{len(str(count - 1))}}"
        jobs.append(WorkloadJob(name, round(arrival, 3), members, request, round(duration, 3), queue, priority))
    return jobs


def _arrival_interval(
    draws: Sequence[tuple[int, float]], request: Mapping[str, int], capacity: Mapping[str, int], load: float
) -> float:
    """The mean time between two arrivals at which the work is this fraction of what the cluster can do."""
    at_once = min((capacity.get(name, 0) / amount for name, amount in request.items() if amount), default=0.0)
    if not at_once or not draws or load <= 0:
        return 0.0
    return sum(members * duration for members, duration in draws) / (at_once * load) / len(draws)


def _random_duration(rng: random.Random, mix: WorkloadMix) -> float:
    return max(1.0, mix.duration * math.exp(rng.gauss(0.0, mix.spread)))


def _weighted_choice(rng: random.Random, weights: Mapping[Any, float]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def parsed_request(texts: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """A request given as quantities. Raises `InputError`."""
    try:
        amounts_by_name = parsed_amounts(texts)
    except InputError as error:
        raise InputError(f"request: {error}") from error
    return tuple(sorted({**amounts_by_name, PODS: 1}.items()))


def parsed_amounts(texts: Mapping[str, str]) -> dict[str, int]:
    """Amounts given as quantities. Raises `InputError` if one is invalid, negative or too large."""
    try:
        parsed = amounts(texts)
    except QuantityError as error:
        raise InputError(str(error)) from error
    for name, amount in parsed.items():
        if not 0 <= amount <= MAX_RESOURCE_AMOUNT:
            raise InputError(f'{name}: "{texts[name]}" is {"less than nothing" if amount < 0 else "too much"}')
    return parsed


def trace_jobs(lines: Iterable[str], source: str) -> list[WorkloadJob]:
    """The jobs of a trace: CSV with a header, or one JSON object per line. Raises `InputError` with the line number."""
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not rows:
        raise InputError(f"{source}: no jobs; the first line of a CSV names its columns: {','.join(TRACE_COLUMNS)}")
    records = _json_records(rows, source) if rows[0][1].lstrip().startswith("{") else _csv_records(rows, source)
    jobs = [_job_from_record(record, number, source) for number, record in records]
    if not jobs:
        raise InputError(f"{source}: no jobs; write one in each line after the names")
    duplicate = next((name for name, times in Counter(job.name for job in jobs).items() if times > 1), None)
    if duplicate is not None:
        raise InputError(
            f"{source}: two jobs are named {duplicate!r}; names must differ (leave them out to be given some)"
        )
    return jobs


def _json_records(rows: Iterable[tuple[int, str]], source: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in rows:
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise InputError(f"{source}:{number}: {error}") from error


def _csv_records(rows: Iterable[tuple[int, str]], source: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    iterator = iter(rows)
    number, head = next(iterator)
    titles = [title.strip() for title in next(csv.reader([head]))]
    missing = [name for name in REQUIRED_COLUMNS if name not in titles]
    if missing:
        raise InputError(f"{source}:{number}: no column {missing[0]!r}; columns are {','.join(TRACE_COLUMNS)}")
    for number, line in iterator:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) != len(titles):
            raise InputError(f"{source}:{number}: {len(cells)} values for {len(titles)} columns")
        yield number, {title: cell for title, cell in zip(titles, cells, strict=True) if cell}


def _job_from_record(record: Mapping[str, Any], number: int, source: str) -> WorkloadJob:
    try:
        return _validated_job(record, number)
    except (InputError, ValueError, KeyError) as error:
        message = f"no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{source}:{number}: {message}") from error


def _validated_job(record: Mapping[str, Any], number: int) -> WorkloadJob:
    unknown = sorted(set(record) - set(TRACE_COLUMNS))
    if unknown:
        raise InputError(f"{unknown[0]!r} is unknown; known are {', '.join(TRACE_COLUMNS)}")
    members = _integer(record, "members", minimum=1)
    if members > MAX_MEMBERS:
        raise InputError(f"members: {members:,} are more than {MAX_MEMBERS:,}")
    minimum = _integer(record, "least", minimum=1) if "least" in record else members
    if minimum > members:
        raise InputError(f"least: {minimum} of {members} members")
    return WorkloadJob(
        name=str(record.get("name") or f"line-{number}"),
        arrival=_seconds(record, "arrival"),
        members=members,
        request=parsed_request(_request_texts(record["request"])),
        duration=_seconds(record, "duration"),
        queue=str(record.get("queue") or DEFAULT_QUEUE),
        priority=_integer(record, "priority") if "priority" in record else 0,
        min_members=minimum,
    )


def _request_texts(request: object) -> dict[str, str]:
    """`cpu=4 memory=16Gi`, separated by spaces or semicolons; or an object."""
    if isinstance(request, dict):
        return {str(name): str(amount) for name, amount in request.items()}
    pairs = [part.partition("=") for part in str(request).replace(";", " ").split()]
    if not pairs or not all(name and amount for name, _, amount in pairs):
        raise InputError(f"request: {request!r} is not like 'cpu=4 memory=16Gi'")
    return {name: amount for name, _, amount in pairs}


def _integer(record: Mapping[str, Any], name: str, minimum: int | None = None) -> int:
    try:
        value = int(record[name])
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {record[name]!r} is not a whole number") from error
    if minimum is not None and value < minimum:
        raise InputError(f"{name}: {value} is less than {minimum}")
    return value


def _seconds(record: Mapping[str, Any], name: str) -> float:
    try:
        value = float(record[name])
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {record[name]!r} is not a number of seconds") from error
    if not 0 <= value <= MAX_SECONDS:
        raise InputError(f"{name}: {record[name]!r} is not a number of seconds")
    return value
