"""Pods that run and get nowhere. Said only where it can be read; else nothing is said."""

import re
import statistics
from collections.abc import Iterator
from datetime import datetime

from gangline.api.core import PodPhase
from gangline.api.quantity import Quantity
from gangline.why.model.case import Case, Replica
from gangline.why.model.report import Match, Rule, Scene
from gangline.why.model.wording import amount, clock, lasting
from gangline.why.rules.evidence import quoted

IDLE = Quantity.of("10m")
"""Who uses less of a CPU than this does nothing."""
_STEP = re.compile(r"\bstep[\"']?[\s:=#]+(\d+)", re.IGNORECASE)
AT_LEAST, BEHIND = 20, 0.5
"""From so many steps on, and with less than this share of the others' steps, a replica lags."""


def running(case: Case) -> list[Replica]:
    """Pods that run, and are not on their way out."""
    return [
        one
        for one in case.replicas
        if one.pod.status.phase == PodPhase.RUNNING and one.pod.metadata.deletion_timestamp is None
    ]


def since(replica: Replica) -> datetime | None:
    """When its newest container began to run."""
    begun = [
        one.state.running.started_at for one in replica.pod.status.container_statuses if one.state.running
    ]
    return max((moment for moment in begun if moment is not None), default=None)


def hung(scene: Scene) -> Iterator[Match]:
    """All of the team is silent and idle: one alone may wait for the others, or have nothing to say."""
    case = scene.case
    going = running(case)
    if not silent(case) or not all(one.cpu is not None and one.cpu < IDLE for one in going):
        return
    last = max((one.last_line for one in going if one.last_line is not None), default=None)
    since_then = case.since(last or min(filter(None, map(since, going)), default=None))
    evidence = [f"the last line was written at {clock(last)}" if last else "no line was ever written"]
    evidence += [f"{one.name} uses {amount(one.cpu)} CPU" for one in going[:3] if one.cpu is not None]
    evidence += [quoted(one.name, line) for one in going[:3] for line in _texts(one)[-1:]]
    values = {"age": lasting(since_then), "job": case.job.name, "pod": going[0].pod.metadata.name}
    yield Match(tuple(one.name for one in going), values, tuple(evidence))


def silent(case: Case) -> bool:
    """Whether a job should get on and nobody of it has said anything for too long. Then its CPU is worth a look."""
    going = running(case)
    return bool(going) and not case.job.finished and all(_quiet(case, one) for one in going)


def _quiet(case: Case, one: Replica) -> bool:
    begun = since(one)
    long_enough = begun is not None and case.since(begun) >= case.patience.hung
    return long_enough and case.since(one.last_line or begun) >= case.patience.hung


def _texts(one: Replica) -> tuple[str, ...]:
    return next((lines for lines in one.logs.values() if lines), ())


def straggler(scene: Scene) -> Iterator[Match]:
    case = scene.case
    by_type: dict[str, list[tuple[Replica, int]]] = {}
    for one in running(case):
        steps = [int(found[1]) for line in _texts(one) if (found := _STEP.search(line))]
        if steps:
            by_type.setdefault(one.type, []).append((one, steps[-1]))
    for known in by_type.values():
        if len(known) < 3 or case.job.finished:
            continue
        usual = statistics.median(step for _, step in known)
        begun = sorted(filter(None, (since(one) for one, _ in known)))
        for one, step in known:
            started = since(one)
            # Who came later is behind, and that is all.
            late = started is not None and begun and started - begun[0] > (case.now - begun[0]) * 0.2
            if usual >= AT_LEAST and step < BEHIND * usual and not late:
                values = {
                    "step": str(step),
                    "usual": f"{usual:g}",
                    "node": one.pod.spec.node_name or "its node",
                    "job": case.job.name,
                }
                cpu = (f"it uses {amount(one.cpu)} CPU",) if one.cpu is not None else ()
                yield Match(
                    (one.name,), values, (f"steps: {', '.join(f'{r.name} {n}' for r, n in known[:8])}", *cpu)
                )


RULES = (
    Rule(
        "hung",
        "no line in the log and no CPU used for 10 min, by anybody of the team",
        hung,
        "{who} hangs: no line and no CPU for {age}.",
        (
            "see where it stands: py-spy dump --pid PID; in a cluster: kubectl exec {pod} -- py-spy dump --pid 1",
            "gangline restart {job}     starts the team anew",
        ),
    ),
    Rule(
        "straggler",
        "one replica has done less than half of the others' steps in the same time",
        straggler,
        "{who} is slower than the others: step {step}, where they are at {usual}.",
        ("look at node {node}: what else runs there, and is its hardware the same?",),
    ),
)
