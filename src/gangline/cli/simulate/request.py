"""The simulation that the options of `gangline simulate` ask for."""

import math
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.base.errors import InputError
from gangline.cli.manifests.files import STDIN
from gangline.cli.simulate.defaults import MAX_NODES, NODE_CAPACITY
from gangline.scheduler.simulation.engine import NodePool, SimulationRules, total_capacity
from gangline.scheduler.simulation.workload import (
    MAX_MEMBERS,
    MAX_SECONDS,
    WorkloadJob,
    WorkloadMix,
    generated_jobs,
    parsed_amounts,
    parsed_request,
    trace_jobs,
)
from gangline.scheduler.types.cycle import QueueQuota, SchedulerPolicy
from gangline.scheduler.types.resources import amounts

FEW_JOBS, ENOUGH_JOBS = 2, 4
"""Jobs that fill the cluster fewer than `FEW_JOBS` times leave it empty: they are made larger, to `ENOUGH_JOBS` times."""
MAX_FACTOR = 1024


class SimulateRequest(msgspec.Struct, frozen=True):
    """A simulation to run."""

    node_pools: tuple[NodePool, ...]
    jobs: list[WorkloadJob]
    rules: SimulationRules
    # Where the jobs come from, for the report.
    source: str
    # By how much the default sizes of gangs were multiplied.
    size_factor: int = 1


def simulate_request(options: Mapping[str, object]) -> SimulateRequest:
    """The simulation that the options ask for, by click parameter name. Raises `InputError`."""
    pools = _node_pools(options["parks"], parse_count(options["nodes"]))
    queues = [_parse_queue(text) for text in _text_values(options["queues"])]
    quotas = {quota.name: quota for quota in queues}
    if len(quotas) < len(queues):
        raise InputError("--queue: a name is given twice; write each once, with its weight and its cap")
    factor = 1
    if options["trace"]:
        jobs, source = _read_trace(str(options["trace"])), str(options["trace"])
    else:
        jobs, factor = _generated_jobs(options, pools, queues)
        source = f"seed {options['seed']}"
    # A queue that only the trace names has the default quota.
    quotas = {job.queue: QueueQuota(job.queue) for job in jobs} | quotas
    patience = _option_seconds(options, "patience")
    policy = SchedulerPolicy(
        starvation_timeout=timedelta(seconds=patience) if patience else None,
        preemption=not options["no_preemption"],
        reclaim=not options["no_reclaim"],
    )
    times = {name: _option_seconds(options, name) for name in ("cycle", "grace", "checkpoint")}
    return SimulateRequest(pools, jobs, SimulationRules(queues=quotas, policy=policy, **times), source, factor)


def parse_count(text: object) -> int:
    """A count, such as the one in front of `*`. Raises `InputError`."""
    try:
        return int(str(text))
    except ValueError as error:
        raise InputError(f"--node: {text!r} is not a number of nodes") from error


def _text_values(values: object) -> tuple[str, ...]:
    assert isinstance(values, tuple)
    return values


def _option_seconds(options: Mapping[str, object], name: str) -> float:
    """The value of a duration option in seconds. Raises `InputError` if it is negative or above `MAX_SECONDS`."""
    duration = options[name]
    assert isinstance(duration, timedelta)
    value = duration.total_seconds()
    if not 0 <= value <= MAX_SECONDS:
        raise InputError(f"--{name}: {value:g} s is {'less than nothing' if value < 0 else 'too long a time'}")
    return value


def _node_pools(values: object, nodes: int) -> tuple[NodePool, ...]:
    """The pools of the `--node` options; `nodes` is the count of a pool without one. Raises `InputError`."""
    texts = _text_values(values) or (NODE_CAPACITY,)
    pools = []
    for text in texts:
        count, star, rest = text.partition("*")
        if not star and len(texts) > 1:
            raise InputError(f"--node {text}: with several kinds of node write how many of each: 10*{text}")
        pools.append(NodePool(parse_count(count) if star else nodes, _parse_amounts(rest if star else text, "--node")))
    total = sum(pool.count for pool in pools)
    if any(pool.count < 1 for pool in pools) or total > MAX_NODES:
        raise InputError(f"--node: {total:,} nodes; 1 to {MAX_NODES:,} can be simulated")
    return tuple(pools)


def _parse_amounts(text: str, option: str) -> dict[str, str]:
    """The amounts of `cpu=8,memory=64Gi`, by resource. Raises `InputError`."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise InputError(f"{option} {text}: is not like cpu=8,memory=64Gi")
    quantities = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        parsed_amounts(quantities)
    except InputError as error:
        raise InputError(f"{option} {text}: {error}") from error
    return quantities


def _parse_queue(text: str) -> QueueQuota:
    """The quota of `NAME=WEIGHT,cpu=100`. Raises `InputError`."""
    head, comma, cap = text.partition(",")
    name, _, weight = head.partition("=")
    if not name or (weight and not (weight.isdigit() and int(weight))):
        raise InputError(f"--queue {text}: is not like NAME=WEIGHT or NAME=WEIGHT,cpu=100")
    limits = amounts(_parse_amounts(cap, "--queue")) if comma else {}
    return QueueQuota(name, int(weight or 1), limits)


def _parse_shares(text: str, option: str) -> dict[int, float]:
    """The shares of `1:40,8:10`, by value. Raises `InputError`."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        shares = {int(value): float(share) for value, share in pairs}
    except ValueError as error:
        raise InputError(f"{option} {text}: is not like 1:40,8:10") from error
    total = sum(shares.values())
    if min(shares.values()) < 0 or not total or not math.isfinite(total):
        raise InputError(f"{option} {text}: shares are numbers above 0")
    return shares


def _generated_jobs(
    options: Mapping[str, object], pools: Sequence[NodePool], queues: Sequence[QueueQuota]
) -> tuple[list[WorkloadJob], int]:
    """The jobs, and by how much their default sizes were multiplied. Raises `InputError`."""
    changes: dict[str, object] = {"duration": _option_seconds(options, "duration"), "load": options["load"]}
    if not math.isfinite(float(str(options["load"]))):
        raise InputError(f"--load {options['load']}: write a number above 0, such as 0.9")
    if options["mix"]:
        sizes = changes["sizes"] = _parse_shares(str(options["mix"]), "--mix")
        if not 1 <= min(sizes) <= max(sizes) <= MAX_MEMBERS:
            raise InputError(f"--mix {options['mix']}: a gang has 1 to {MAX_MEMBERS:,} members")
    if options["priorities"]:
        changes["priorities"] = _parse_shares(str(options["priorities"]), "--priorities")
    if options["request"]:
        changes["request"] = _parse_amounts(str(options["request"]), "--request")
    if queues:
        changes["queues"] = {quota.name: 1.0 for quota in queues}
    mix = msgspec.structs.replace(WorkloadMix(), **changes)
    count, capacity = parse_count(options["jobs"]), total_capacity(pools)
    factor = 1
    if not options["mix"]:
        larger, factor = larger_sizes(mix, count, capacity)
        mix = msgspec.structs.replace(mix, sizes=larger)
    return generated_jobs(count, parse_count(options["seed"]), mix, capacity), factor


def larger_sizes(mix: WorkloadMix, jobs: int, capacity: Mapping[str, int]) -> tuple[Mapping[int, float], int]:
    """Sizes of gangs with which a few jobs fill a large cluster, and the factor; unchanged if they do already.

    The factor is a power of two. No gang that is made larger takes more than half of the cluster.
    """
    request = dict(parsed_request(mix.request))
    at_once = min((capacity.get(name, 0) / amount for name, amount in request.items() if amount), default=0.0)
    mean = sum(size * share for size, share in mix.sizes.items()) / sum(mix.sizes.values())
    factor = 1
    while jobs * mean < FEW_JOBS * at_once and jobs * mean * factor < ENOUGH_JOBS * at_once and factor < MAX_FACTOR:
        factor *= 2
    sizes: dict[int, float] = {}
    for size, share in mix.sizes.items():
        larger = max(size, min(size * factor, int(at_once / 2)))
        sizes[larger] = sizes.get(larger, 0.0) + share
    return sizes, factor


def _read_trace(name: str) -> list[WorkloadJob]:
    if name == STDIN:
        return trace_jobs(sys.stdin, "stdin")
    try:
        # Spreadsheets write a byte order mark.
        with Path(name).open(encoding="utf-8-sig") as file:
            return trace_jobs(file, name)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: is not text") from error
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error
