"""What a recovery policy does about one failure. Pure: the same failure and history give the same step."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import (
    ExcludedNode,
    Failure,
    JobStatus,
    RecoveryStatus,
    RestartLedger,
    RestartScope,
)
from gangline.api.quantity import Quantity, QuantityFormat
from gangline.jobs.plan.recovery.classes import CauseClass, cause_class, cause_without_diagnosis
from gangline.jobs.plan.recovery.policy import (
    FINAL_ACTIONS,
    RecoveryAction,
    RecoveryPolicy,
    RecoveryRule,
)

MAX_EXCLUDED_NODES = 20
"""Nodes that one job leaves out at the same time; the oldest are forgiven first."""
MAX_REASON_LENGTH = 400
COUNT_RESET_AFTER = timedelta(days=1)
"""Restarts count against the limit of a rule as long as there is less than this between them."""


class FailureCause(msgspec.Struct, frozen=True):
    """The cause of a failure: the rule of `why`, or `stalled`, and its sentence."""

    rule: str
    text: str = ""


class FailureFacts(msgspec.Struct, frozen=True):
    """What a decision about a failure depends on, beside the policy and the history."""

    failure: Failure
    replica_type: str
    # None: nobody has diagnosed it.
    cause: FailureCause | None = None
    # Where it happened; empty if that is not known, or if there is no other node.
    node: str = ""
    has_other_nodes: bool = True
    # The memory limit of the container that trains, as the pod had it; None: none.
    memory_limit: Quantity | None = None
    # Whether all replicas restart where the rule does not say so.
    together: bool = False
    # The failed pod was replaced before: what failed now is a consequence of that.
    is_handled: bool = False
    # Why the team, or the replicas that failed, cannot restart in place; empty: they can, None: nobody asks for it.
    team_obstacle: str | None = None
    replica_obstacle: str | None = None


class RecoveryStep(msgspec.Struct, frozen=True, kw_only=True):
    """One action, with everything that it needs, and the reason in a sentence without its subject."""

    action: RecoveryAction
    rule: str
    cause: str
    message: str
    replica: str = ""
    node: str = ""
    scope: RestartScope = RestartScope.REPLICA
    # Until when new pods keep away from the node; None: they do not.
    excluded_until: datetime | None = None
    # The replica type whose memory is raised, and the new limit.
    memory: tuple[str, str] | None = None
    delay: timedelta = timedelta()
    uncounted: bool = False
    # The pods stay, and get new processes.
    in_place: bool = False

    @property
    def is_final(self) -> bool:
        return self.action in FINAL_ACTIONS


def recovery_step(
    policy: RecoveryPolicy, facts: FailureFacts, history: RecoveryStatus, now: datetime
) -> RecoveryStep | None:
    """What the first rule that applies does; None if none applies: then restartPolicy decides."""
    failure = facts.failure
    cause = facts.cause.rule if facts.cause is not None and facts.cause.rule else ""
    cause = cause or cause_without_diagnosis(failure.exit_code, failure.reason)
    kind = cause_class(cause, failure.exit_code)
    rule = next((rule for rule in policy.rules if _applies(rule, cause, kind, facts)), None)
    if rule is None:
        return None
    return _StepWriter(rule, cause, kind, facts, history, now).step()


def _applies(rule: RecoveryRule, cause: str, kind: CauseClass, facts: FailureFacts) -> bool:
    failure = facts.failure
    if rule.causes and cause not in rule.causes and kind.value not in rule.causes:
        return False
    if rule.exit_codes and failure.exit_code not in rule.exit_codes:
        return False
    if rule.replica_types and facts.replica_type.lower() not in [name.lower() for name in rule.replica_types]:
        return False
    return not rule.log or _log_matches(rule.log, (*failure.log, failure.message))


def _log_matches(pattern: str, lines: Iterable[str]) -> bool:
    # Imported here: few policies have patterns.
    from gangline.schema.regex import compile_pattern

    compiled = compile_pattern(pattern)
    return any(compiled.matches(line) for line in lines if line)


class _StepWriter:
    """Makes the step of the rule that applies."""

    def __init__(
        self,
        rule: RecoveryRule,
        cause: str,
        kind: CauseClass,
        facts: FailureFacts,
        history: RecoveryStatus,
        now: datetime,
    ) -> None:
        self._rule, self._cause, self._kind = rule, cause, kind
        self._facts, self._history, self._now = facts, history, now
        self._count = current_counts(history, now).get(rule.name, 0)
        self._reason = _reason(facts)

    def step(self) -> RecoveryStep:
        rule = self._rule
        if rule.action in FINAL_ACTIONS:
            return self._final(rule.action, self._final_hint())
        if self._count >= rule.limit:
            times = "once" if rule.limit == 1 else f"{rule.limit} times"
            # A job that hangs would keep its pods, and their GPUs.
            action = RecoveryAction.STOP if self._kind is CauseClass.HANG else RecoveryAction.FAIL
            return self._final(action, f"it has restarted {times} for such causes, which is the limit")
        match rule.action:
            case RecoveryAction.RESTART_ELSEWHERE:
                return self._elsewhere()
            case RecoveryAction.RAISE_MEMORY:
                return self._more_memory()
            case RecoveryAction.RETRY:
                return self._retry()
            case _:
                return self._restart(f"restarted{self._what()} because {self._reason}")

    def _final(self, action: RecoveryAction, hint: str) -> RecoveryStep:
        verb = "stopped" if action is RecoveryAction.STOP else "failed"
        message = f"{verb} because {self._reason}" + (f"; {hint}" if hint else "")
        return self._made(action, message)

    def _final_hint(self) -> str:
        match self._kind:
            case CauseClass.BUG:
                return "a restart would end the same way"
            case CauseClass.CONFIGURATION:
                return "a restart does not mend that"
            case CauseClass.MEMORY:
                return "to have its memory raised, add a rule with then: RaiseMemory and upTo"
        return ""

    def _elsewhere(self) -> RecoveryStep:
        node = self._facts.node
        if self._facts.is_handled:
            return self._restart(f"restarted with its peer because {self._reason}")
        if not node:
            where = "no node can be blamed" if self._facts.has_other_nodes else "there is no other node to go to"
            return self._restart(f"restarted{' in place' if self._stays() else ''} because {self._reason}; {where}")
        until = _whole_seconds(self._now + self._rule.exclusion)
        length = _duration_text(self._rule.exclusion)
        message = f"restarted elsewhere because {self._reason}; node {node} is left out for {length}"
        return self._restart(message, excluded_until=until)

    def _more_memory(self) -> RecoveryStep:
        bound, limit = self._rule.memory_bound, self._facts.memory_limit
        assert bound is not None
        if self._facts.is_handled:
            return self._restart(f"restarted with its peer because {self._reason}")
        if limit is None:
            return self._final(RecoveryAction.FAIL, "it has no memory limit that could be raised")
        if limit >= bound:
            return self._final(RecoveryAction.FAIL, f"it has {limit} memory already, and may get {bound} at most")
        raised = min(_grown(limit, self._rule.factor), bound)
        message = f"restarted with {raised} memory instead of {limit} because {self._reason}"
        return self._restart(message, memory=(self._facts.replica_type, str(raised)))

    def _retry(self) -> RecoveryStep:
        rule = self._rule
        delay = min(rule.delay * 2 ** min(self._count, 20), rule.max_delay)
        attempt = f"attempt {self._count + 1} of {rule.limit}"
        place = " in place" if self._stays() else ""
        return self._restart(
            f"waits {_duration_text(delay)} before it starts again{place} ({attempt}) because {self._reason}",
            delay=delay,
        )

    def _restart(
        self,
        message: str,
        *,
        excluded_until: datetime | None = None,
        memory: tuple[str, str] | None = None,
        delay: timedelta = timedelta(),
    ) -> RecoveryStep:
        obstacle = self._obstacle()
        if obstacle:
            message = f"{message}; with new pods, because {obstacle}"
        made = self._made(self._rule.action, message)
        return msgspec.structs.replace(
            made,
            scope=self._scope(),
            excluded_until=excluded_until,
            memory=memory,
            delay=delay,
            uncounted=self._rule.uncounted,
            in_place=self._stays(),
        )

    def _scope(self) -> RestartScope:
        return self._rule.scope or (RestartScope.JOB if self._facts.together else RestartScope.REPLICA)

    def _what(self) -> str:
        whole = self._scope() is RestartScope.JOB
        if self._stays():
            return " in place" if whole else f" {self._facts.failure.replica} in place"
        return " as a whole" if whole else f" {self._facts.failure.replica}"

    def _stays(self) -> bool:
        return self._obstacle() == ""

    def _obstacle(self) -> str | None:
        """Why the pods cannot stay; empty: they stay, None: nobody asks for it."""
        facts, action = self._facts, self._rule.action
        obstacle = facts.team_obstacle if self._scope() is RestartScope.JOB else facts.replica_obstacle
        elsewhere = action is RecoveryAction.RESTART_ELSEWHERE and facts.has_other_nodes
        if obstacle is None or elsewhere or action is RecoveryAction.RAISE_MEMORY:
            # Another node, or more memory, is another pod.
            return None
        return "a peer has a new pod" if facts.is_handled else obstacle

    def _made(self, action: RecoveryAction, message: str) -> RecoveryStep:
        return RecoveryStep(
            action=action,
            rule=self._rule.name,
            cause=self._cause,
            message=message,
            replica=self._facts.failure.replica,
            node=self._facts.node,
        )


def _reason(facts: FailureFacts) -> str:
    """Why it failed, as a clause: the sentence of the cause, else what is known of the container."""
    if facts.cause is not None and facts.cause.text:
        text = " ".join(facts.cause.text.split()).rstrip(".")
        return text if len(text) <= MAX_REASON_LENGTH else f"{text[: MAX_REASON_LENGTH - 1]}…"
    failure = facts.failure
    if failure.exit_code is None:
        reason = f" ({failure.reason})" if failure.reason else ""
        return f"{failure.replica} was ended by its node{reason}"
    reason = f" ({failure.reason})" if failure.reason not in ("", "Error") else ""
    return f"{failure.replica} ended with exit code {failure.exit_code}{reason}"


def _grown(quantity: Quantity, factor: float) -> Quantity:
    """The quantity times a factor, in whole MiB: `1536Mi` is a round number, 1.5Gi in bytes is not."""
    unit = 2**20 * 10**9
    nanos = -(-round(quantity.nanos * factor) // unit) * unit
    return Quantity(nanos, QuantityFormat.BINARY)


def _duration_text(duration: timedelta) -> str:
    """As a policy has it: `1h30m`."""
    seconds = round(duration.total_seconds())
    parts = ((seconds // 3600, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"


def _whole_seconds(moment: datetime) -> datetime:
    """The next whole second: times in a status are written so."""
    return (moment - timedelta.resolution + timedelta(seconds=1)).replace(microsecond=0)


def status_after_step(before: RecoveryStatus, step: RecoveryStep, restarts: int, now: datetime) -> RecoveryStatus:
    """The record of what was done. `restarts`: how many restarts the step is."""
    counts = current_counts(before, now)
    if not step.is_final:
        counts[step.rule] = counts.get(step.rule, 0) + 1
    nodes = before.excluded_nodes
    if step.excluded_until is not None:
        others = tuple(node for node in excluded_nodes(before, now) if node.name != step.node)
        excluded = ExcludedNode(
            name=step.node, since=now.replace(microsecond=0), until=step.excluded_until, cause=step.cause
        )
        nodes = (*others, excluded)[-MAX_EXCLUDED_NODES:]
    memory = {**before.memory, step.memory[0]: step.memory[1]} if step.memory is not None else before.memory
    return RecoveryStatus(
        action=step.action.value,
        cause=step.cause,
        message=step.message,
        replica=step.replica,
        node=step.node,
        time=now.replace(microsecond=0),
        counts=counts,
        uncounted=before.uncounted + (restarts if step.uncounted else 0),
        excluded_nodes=nodes,
        memory=memory,
    )


def with_recovery(
    status: JobStatus, ledger: RestartLedger, step: RecoveryStep, restarts: int, now: datetime
) -> tuple[JobStatus, RestartLedger]:
    """The status with the record of a step, and the ledger with the time before which no pod is created."""
    recovery = status_after_step(status.recovery or RecoveryStatus(), step, restarts, now)
    if step.delay:
        due = _whole_seconds(now + step.delay)
        ledger = msgspec.structs.replace(ledger, not_before=max(due, ledger.not_before or due))
    return msgspec.structs.replace(status, recovery=recovery), ledger


def current_counts(status: RecoveryStatus, now: datetime) -> dict[str, int]:
    """How often each rule has acted, none of it long ago."""
    is_old = status.time is not None and now - status.time >= COUNT_RESET_AFTER
    return {} if is_old else dict(status.counts)


def excluded_nodes(status: RecoveryStatus | None, now: datetime) -> tuple[ExcludedNode, ...]:
    """The nodes that a job leaves out now; the others are forgiven."""
    return tuple(node for node in status.excluded_nodes if node.until > now) if status is not None else ()
