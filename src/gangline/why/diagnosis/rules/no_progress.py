"""Rules about pods that run without progress. They match only on what could be read."""

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
"""A replica that uses less CPU than this is idle."""
_STEP_NUMBER = re.compile(r"\bstep[\"']?[\s:=#]+(\d+)", re.IGNORECASE)
MIN_STEPS, LAG_SHARE = 20, 0.5
"""A replica lags if the others have made this many steps, and it has made less than this share of them."""


def running_replicas(case: JobSnapshot) -> list[ReplicaFacts]:
    """Pods that run and are not being deleted."""
    return [
        one
        for one in case.replicas
        if one.pod.status.phase == PodPhase.RUNNING and one.pod.metadata.deletion_timestamp is None
    ]


def running_since(replica: ReplicaFacts) -> datetime | None:
    """When the newest container of the replica started."""
    begun = [one.state.running.started_at for one in replica.pod.status.container_statuses if one.state.running]
    return max((moment for moment in begun if moment is not None), default=None)


def hang(scene: RuleInput) -> Iterator[RuleMatch]:
    """The whole job is silent and idle. A single silent replica may just wait for the others."""
    case = scene.snapshot
    running = running_replicas(case)
    if not is_silent(case) or not all(replica.cpu is not None and replica.cpu < IDLE_CPU for replica in running):
        return
    last = max((replica.last_log_at for replica in running if replica.last_log_at is not None), default=None)
    since_then = case.elapsed_since(last or min(filter(None, map(running_since, running)), default=None))
    evidence = [f"the last line was written at {time_of_day(last)}" if last else "no line was ever written"]
    evidence += [
        f"{replica.name} uses {quantity_text(replica.cpu)} CPU" for replica in running[:3] if replica.cpu is not None
    ]
    evidence += [quoted_line(replica.name, line) for replica in running[:3] for line in _log_lines(replica)[-1:]]
    values = {"age": duration_phrase(since_then), "job": case.job.name, "pod": running[0].pod.metadata.name}
    yield RuleMatch(tuple(replica.name for replica in running), values, tuple(evidence))


def is_silent(case: JobSnapshot) -> bool:
    """Whether no replica of a running job has logged anything for too long. Only then is its CPU use read."""
    running = running_replicas(case)
    return bool(running) and not case.job.is_finished and all(_is_quiet(case, one) for one in running)


def _is_quiet(case: JobSnapshot, replica: ReplicaFacts) -> bool:
    started = running_since(replica)
    long_enough = started is not None and case.elapsed_since(started) >= case.timeouts.hung_after
    return long_enough and case.elapsed_since(replica.last_log_at or started) >= case.timeouts.hung_after


def _log_lines(replica: ReplicaFacts) -> tuple[str, ...]:
    return next((lines for lines in replica.logs.values() if lines), ())


def straggler(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    by_type: dict[str, list[tuple[ReplicaFacts, int]]] = {}
    for replica in running_replicas(case):
        steps = [int(found[1]) for line in _log_lines(replica) if (found := _STEP_NUMBER.search(line))]
        if steps:
            by_type.setdefault(replica.type, []).append((replica, steps[-1]))
    for peers in by_type.values():
        if len(peers) < 3 or case.job.is_finished:
            continue
        usual = statistics.median(step for _, step in peers)
        start_times = sorted(filter(None, (running_since(replica) for replica, _ in peers)))
        for replica, step in peers:
            started = running_since(replica)
            # A replica that started later is expected to be behind.
            late = started is not None and start_times and started - start_times[0] > (case.now - start_times[0]) * 0.2
            if usual >= MIN_STEPS and step < LAG_SHARE * usual and not late:
                values = {
                    "step": str(step),
                    "usual": f"{usual:g}",
                    "node": replica.pod.spec.node_name or "its node",
                    "job": case.job.name,
                }
                cpu = (f"it uses {quantity_text(replica.cpu)} CPU",) if replica.cpu is not None else ()
                yield RuleMatch(
                    (replica.name,), values, (f"steps: {', '.join(f'{r.name} {n}' for r, n in peers[:8])}", *cpu)
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
