"""Rules about pods that run without progress. They match only on what could be read."""

import re
import statistics
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from gangline.api.core import PodPhase
from gangline.api.kubeflow.training import ConditionType
from gangline.api.quantity import Quantity
from gangline.stacks.groups import TEAM_KINDS, odd_groups, stack_groups
from gangline.stacks.sentence import stacks_sentence
from gangline.why.diagnosis.case import JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import logs_command, quoted_line
from gangline.why.diagnosis.wording import duration_phrase, name_list, quantity_text, time_of_day, times_phrase

IDLE_CPU = Quantity.of("10m")
"""A replica that uses less CPU than this is idle."""
_STEP_NUMBER = re.compile(r"\bstep[\"']?[\s:=#]+(\d+)", re.IGNORECASE)
UNCOMPARED_TYPES = ("Evaluator", "PS", "Launcher")
"""Replica types whose steps say nothing about the speed of the others."""
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
    if not is_stuck(case) or finished_peers(case):
        return
    last = max((replica.last_log_at for replica in running if replica.last_log_at is not None), default=None)
    since_then = case.elapsed_since(last or min(filter(None, map(running_since, running)), default=None))
    evidence = [*_stack_lines(case)]
    evidence += [f"the last line was written at {time_of_day(last)}" if last else "no line was ever written"]
    evidence += [
        f"{replica.name} uses {quantity_text(replica.cpu)} CPU" for replica in running[:3] if replica.cpu is not None
    ]
    evidence += [quoted_line(replica.name, line) for replica in running[:3] for line in _log_lines(replica)[-1:]]
    signs = "no line and no CPU" if all(map(_is_idle, running)) else "no line, and CPU only to wait,"
    values = {"age": duration_phrase(since_then), "signs": signs, "odd": _odd_sentence(case)}
    values |= _hang_steps(case, running)
    yield RuleMatch(tuple(replica.name for replica in running), values, tuple(evidence))


def _hang_steps(case: JobSnapshot, running: Sequence[ReplicaFacts]) -> dict[str, str]:
    """Commands that show where a replica stands, and that start all of them again."""
    first = running[0]
    where = f" -n {case.job.namespace}" if case.job.namespace != "default" else ""
    if not case.job.is_training_job:
        dump = f"kubectl exec {first.pod.metadata.name}{where} -- py-spy dump --pid 1"
        return {"dump": f"see where {first.name} stands, if it is Python: {dump}"}
    return {
        "dump": f"see where every rank stands: gangline stacks {case.job.name}{where}",
        "restart": f"start all of them again: gangline restart {case.job.name}{where}",
    }


def _stack_lines(case: JobSnapshot) -> Iterator[str]:
    """Where the ranks stand, in one sentence, if their stacks were read."""
    if any(one.processes for one in case.stacks):
        yield stacks_sentence(stack_groups(case.stacks))


def _odd_sentence(case: JobSnapshot) -> str:
    """Whom the others wait for; empty if nobody can say it."""
    groups = stack_groups(case.stacks)
    odd = [group for group in odd_groups(groups) if group.activity.kind not in TEAM_KINDS]
    if not odd or not any(group.activity.kind in TEAM_KINDS for group in groups):
        return ""
    return f" The others wait for {name_list([name for group in odd for name in group.ranks])}."


def is_stuck(case: JobSnapshot) -> bool:
    """Whether all running replicas are silent, and idle or waiting for each other at full speed."""
    running = running_replicas(case)
    return is_silent(case) and all(_is_idle(replica) or _spins(case, replica) for replica in running)


def _is_idle(replica: ReplicaFacts) -> bool:
    return replica.cpu is not None and replica.cpu < IDLE_CPU


def _spins(case: JobSnapshot, replica: ReplicaFacts) -> bool:
    """Whether a replica only waits for its team, as Open MPI and NCCL do with all the CPU they get."""
    waiting = (group for group in stack_groups(case.stacks) if group.activity.kind in TEAM_KINDS)
    return replica.name in case.unmoved and any(replica.name in group.replicas for group in waiting)


def stalled(scene: RuleInput) -> Iterator[RuleMatch]:
    """The operator's watch has found the job without progress, where its silence alone says nothing."""
    case = scene.snapshot
    condition = next((one for one in case.job.conditions if one.type == ConditionType.STALLED), None)
    running = running_replicas(case)
    if condition is None or condition.status != "True" or case.job.is_finished or not running or is_stuck(case):
        return
    found, _, where = condition.message.partition(": ")
    evidence = [where or found, *_stack_lines(case)]
    if condition.last_transition_time is not None:
        evidence.append(
            f"the operator says so since {time_of_day(condition.last_transition_time)} ({condition.reason})"
        )
    blamed = [one.name for one in running if one.name in where] if condition.reason == "RankStands" else []
    values = {"found": found, **_hang_steps(case, running)}
    yield RuleMatch(tuple(blamed or (one.name for one in running)), values, tuple(evidence))


def finished_peers(case: JobSnapshot) -> list[tuple[ReplicaFacts, datetime | None]]:
    """Replicas that have ended with exit code 0, of types that train, and when."""
    return [
        (replica, _ended_at(replica))
        for replica in case.replicas
        if replica.pod.status.phase == PodPhase.SUCCEEDED and replica.type not in UNCOMPARED_TYPES
    ]


def peer_finished(scene: RuleInput) -> Iterator[RuleMatch]:
    """A replica has ended with exit code 0, and the others hang: they wait for it."""
    case = scene.snapshot
    finished, running = finished_peers(case), running_replicas(case)
    if not finished or not is_stuck(case):
        return
    first, _ = finished[0]
    values = {"peer": name_list([one.name for one, _ in finished]), **_hang_steps(case, running)}
    values["logs"] = logs_command(case.job, first.name, first.pod.metadata.name)
    evidence = [*_stack_lines(case), f"{name_list([one.name for one in running])}: no line and no CPU use"]
    evidence += [
        f"{one.name} ended with exit code 0 at {time_of_day(at)}" for one, at in finished[:3] if at is not None
    ]
    evidence += [quoted_line(one.name, line) for one in running[:3] for line in _log_lines(one)[-1:]]
    yield RuleMatch(tuple(one.name for one in running), values, tuple(evidence))


def _ended_at(replica: ReplicaFacts) -> datetime | None:
    ends = [one.state.terminated for one in replica.pod.status.container_statuses if one.state.terminated is not None]
    moments = [end.finished_at for end in ends if end.finished_at is not None]
    return max(moments, default=None)


def is_silent(case: JobSnapshot) -> bool:
    """Whether no replica of a running job has logged anything for too long. Only then is its CPU use read."""
    silence = silent_for(case)
    return silence is not None and silence >= case.timeouts.hung_after


def silent_for(case: JobSnapshot) -> timedelta | None:
    """For how long no running replica has logged anything; None if the job does not run."""
    running = running_replicas(case)
    if not running or case.job.is_finished:
        return None
    return min(_quiet_for(case, replica) for replica in running)


def _quiet_for(case: JobSnapshot, replica: ReplicaFacts) -> timedelta:
    moments = [moment for moment in (running_since(replica), replica.last_log_at) if moment is not None]
    return case.elapsed_since(max(moments, default=None))


def unread_usage(case: JobSnapshot) -> tuple[str, ...]:
    """What to report as not read if a silent job might hang, and its CPU use is not known."""
    if not is_silent(case) or all(replica.cpu is not None for replica in running_replicas(case)):
        return ()
    why = case.usage_error or "it was not measured"
    if case.job.run_ended_at is not None:
        why = "the run has ended"
    return (f"CPU use of the pods: {why}. So a job that hangs cannot be told from one that computes",)


def _log_lines(replica: ReplicaFacts) -> tuple[str, ...]:
    return next((lines for lines in replica.logs.values() if lines), ())


def straggler(scene: RuleInput) -> Iterator[RuleMatch]:
    """A replica that has made far fewer steps than the others. Masters and workers do the same work."""
    case = scene.snapshot
    peers = [(replica, step) for replica in running_replicas(case) if (step := _last_step(replica)) is not None]
    if case.job.is_finished:
        return
    start_times = sorted(filter(None, (running_since(replica) for replica, _ in peers)))
    for replica, step in peers:
        others = [other for peer, other in peers if peer is not replica]
        usual = statistics.median(others) if others else 0
        started = running_since(replica)
        # A replica that started later is expected to be behind.
        late = started is not None and start_times and started - start_times[0] > (case.now - start_times[0]) * 0.2
        if usual >= MIN_STEPS and step < LAG_SHARE * usual and not late:
            values = {
                "step": str(step),
                "usual": f"{usual:g}",
                "others": "the others" if len(others) > 1 else "its peer",
                "logs": logs_command(case.job, replica.name, replica.pod.metadata.name),
            }
            if len({peer.pod.spec.node_name for peer, _ in peers}) > 1:
                values["node"] = replica.pod.spec.node_name
            cpu = (f"it uses {quantity_text(replica.cpu)} CPU",) if replica.cpu is not None else ()
            yield RuleMatch(
                (replica.name,), values, (f"steps: {', '.join(f'{r.name} {n}' for r, n in peers[:8])}", *cpu)
            )


def _last_step(replica: ReplicaFacts) -> int | None:
    """The last step that a replica has reported; None for one that trains nothing, such as an evaluator."""
    if replica.type in UNCOMPARED_TYPES:
        return None
    steps = [int(found[1]) for line in _log_lines(replica) if (found := _STEP_NUMBER.search(line))]
    return steps[-1] if steps else None


def not_ready(scene: RuleInput) -> Iterator[RuleMatch]:
    """A container runs, but its readiness probe fails."""
    case = scene.snapshot
    for replica in running_replicas(case):
        if case.job.is_finished:
            return
        waiting = [one.name for one in replica.pod.status.container_statuses if one.state.running and not one.ready]
        event = next((one for one in reversed(replica.events) if "eadiness probe failed" in one.message), None)
        if not waiting or (event is None and not _is_unready_for_long(case, replica)):
            continue
        evidence = [f"container {waiting[0]} runs, and is not ready"]
        if event is not None:
            often = f", {times_phrase(event.count)}" if event.count > 1 else ""
            evidence.append(
                f"{event.message.strip()} (at {time_of_day(event.time)}{often})" if event.time else event.message
            )
        yield RuleMatch(
            (replica.name,),
            {"path": replica.container_path(waiting[0]), "logs": logs_command(case.job, replica.name)},
            (*evidence, *(quoted_line(replica.name, line) for line in _log_lines(replica)[-3:])),
        )


def _is_unready_for_long(case: JobSnapshot, replica: ReplicaFacts) -> bool:
    return any(
        one.type == "Ready"
        and one.status == "False"
        and one.reason == "ContainersNotReady"
        and case.elapsed_since(one.last_transition_time or running_since(replica)) >= case.timeouts.slow_start_after
        for one in replica.pod.status.conditions
    )


RUNNING_RULES = (
    DiagnosisRule(
        "not-ready",
        "a container runs, and its readiness probe fails",
        not_ready,
        "{who} is not ready: the readinessProbe fails.",
        (
            "correct {path}.readinessProbe, or remove it: training needs none",
            "look at all that it said: {logs}",
        ),
    ),
    DiagnosisRule(
        "peer-finished",
        "one replica has ended with exit code 0, and the others hang",
        peer_finished,
        "{who} waits for {peer}, which has ended with exit code 0.",
        (
            "do all replicas run the same number of steps? look at what that one said: {logs}",
            "{dump}",
            "{restart}",
        ),
    ),
    DiagnosisRule(
        "hung",
        "no line in the log and no CPU used for a minute (`--hung-after`), by anybody of the team; or all that use CPU wait for the others",
        hang,
        "{who} hangs: {signs} for {age}.{odd}",
        (
            "{dump}",
            "{restart}",
        ),
    ),
    DiagnosisRule(
        "stalled",
        "the operator's watch over running jobs found that this one makes no progress (condition `Stalled`)",
        stalled,
        "{who} stands still: {found}.",
        (
            "{dump}",
            "{restart}",
        ),
    ),
    DiagnosisRule(
        "straggler",
        "one replica has done less than half of the others' steps in the same time",
        straggler,
        "{who} is slower than {others}: step {step} instead of {usual}.",
        (
            "look at node {node}: what else runs there, and is its hardware the same?",
            "look at what it does: {logs}",
        ),
    ),
)
