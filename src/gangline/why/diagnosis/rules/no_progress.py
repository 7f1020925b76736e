"""Pods that run and get nowhere. Said only where it can be read; else nothing is said."""

import re
import statistics
from collections.abc import Iterator
from datetime import datetime

from gangline.api.core import PodPhase
from gangline.api.quantity import Quantity
from gangline.why.diagnosis.case import JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import quoted_line
from gangline.why.diagnosis.wording import duration_phrase, quantity_text, time_of_day

IDLE_CPU = Quantity.of("10m")
"""Who uses less of a CPU than this does nothing."""
_STEP_NUMBER = re.compile(r"\bstep[\"']?[\s:=#]+(\d+)", re.IGNORECASE)
MIN_STEPS, LAG_SHARE = 20, 0.5
"""From so many steps on, and with less than this share of the others' steps, a replica lags."""


def running_replicas(case: JobSnapshot) -> list[ReplicaFacts]:
    """Pods that run, and are not on their way out."""
    return [
        one
        for one in case.replicas
        if one.pod.status.phase == PodPhase.RUNNING and one.pod.metadata.deletion_timestamp is None
    ]


def running_since(replica: ReplicaFacts) -> datetime | None:
    """When its newest container began to run."""
    begun = [one.state.running.started_at for one in replica.pod.status.container_statuses if one.state.running]
    return max((moment for moment in begun if moment is not None), default=None)


def hang(scene: RuleInput) -> Iterator[RuleMatch]:
    """All of the team is silent and idle: one alone may wait for the others, or have nothing to say."""
    case = scene.snapshot
    going = running_replicas(case)
    if not is_silent(case) or not all(one.cpu is not None and one.cpu < IDLE_CPU for one in going):
        return
    last = max((one.last_log_at for one in going if one.last_log_at is not None), default=None)
    since_then = case.elapsed_since(last or min(filter(None, map(running_since, going)), default=None))
    evidence = [f"the last line was written at {time_of_day(last)}" if last else "no line was ever written"]
    evidence += [f"{one.name} uses {quantity_text(one.cpu)} CPU" for one in going[:3] if one.cpu is not None]
    evidence += [quoted_line(one.name, line) for one in going[:3] for line in _log_lines(one)[-1:]]
    values = {"age": duration_phrase(since_then), "job": case.job.name, "pod": going[0].pod.metadata.name}
    yield RuleMatch(tuple(one.name for one in going), values, tuple(evidence))


def is_silent(case: JobSnapshot) -> bool:
    """Whether a job should get on and nobody of it has said anything for too long. Then its CPU is worth a look."""
    going = running_replicas(case)
    return bool(going) and not case.job.is_finished and all(_is_quiet(case, one) for one in going)


def _is_quiet(case: JobSnapshot, one: ReplicaFacts) -> bool:
    begun = running_since(one)
    long_enough = begun is not None and case.elapsed_since(begun) >= case.timeouts.hung_after
    return long_enough and case.elapsed_since(one.last_log_at or begun) >= case.timeouts.hung_after


def _log_lines(one: ReplicaFacts) -> tuple[str, ...]:
    return next((lines for lines in one.logs.values() if lines), ())


def straggler(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    by_type: dict[str, list[tuple[ReplicaFacts, int]]] = {}
    for one in running_replicas(case):
        steps = [int(found[1]) for line in _log_lines(one) if (found := _STEP_NUMBER.search(line))]
        if steps:
            by_type.setdefault(one.type, []).append((one, steps[-1]))
    for known in by_type.values():
        if len(known) < 3 or case.job.is_finished:
            continue
        usual = statistics.median(step for _, step in known)
        begun = sorted(filter(None, (running_since(one) for one, _ in known)))
        for one, step in known:
            started = running_since(one)
            # Who came later is behind, and that is all.
            late = started is not None and begun and started - begun[0] > (case.now - begun[0]) * 0.2
            if usual >= MIN_STEPS and step < LAG_SHARE * usual and not late:
                values = {
                    "step": str(step),
                    "usual": f"{usual:g}",
                    "node": one.pod.spec.node_name or "its node",
                    "job": case.job.name,
                }
                cpu = (f"it uses {quantity_text(one.cpu)} CPU",) if one.cpu is not None else ()
                yield RuleMatch(
                    (one.name,), values, (f"steps: {', '.join(f'{r.name} {n}' for r, n in known[:8])}", *cpu)
                )


RUNNING_RULES = (
    DiagnosisRule(
        "hung",
        "no line in the log and no CPU used for 10 min, by anybody of the team",
        hang,
        "{who} hangs: no line and no CPU for {age}.",
        (
            "see where it stands: py-spy dump --pid PID; in a cluster: kubectl exec {pod} -- py-spy dump --pid 1",
            "gangline restart {job}     starts the team anew",
        ),
    ),
    DiagnosisRule(
        "straggler",
        "one replica has done less than half of the others' steps in the same time",
        straggler,
        "{who} is slower than the others: step {step}, where they are at {usual}.",
        ("look at node {node}: what else runs there, and is its hardware the same?",),
    ),
)
