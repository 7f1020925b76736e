"""`runPolicy.recovery` as values: which cause is followed by which action, and what of it is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from gangline.api.kubeflow.training import RestartScope
from gangline.api.quantity import Quantity, QuantityError
from gangline.jobs.framework import Problem
from gangline.jobs.plan.recovery.classes import CAUSE_CLASSES, STALLED, CauseClass

RECOVERY_PATH = "spec.runPolicy.recovery"
AUTO = "auto"
DEFAULT_LIMIT, DEFAULT_RETRY_LIMIT = 10, 20
"""How often a rule restarts a job if it does not say so: no rule does so without end."""
MAX_LIMIT = 1000
DEFAULT_EXCLUSION = timedelta(hours=1)
DEFAULT_DELAY, DEFAULT_MAX_DELAY = timedelta(seconds=30), timedelta(minutes=10)
DEFAULT_FACTOR = 1.5
MAX_RULES = 50


class RecoveryAction(StrEnum):
    """What happens after a failure."""

    FAIL = "Fail"
    STOP = "Stop"
    RESTART_REPLICA = "RestartReplica"
    RESTART_JOB = "RestartJob"
    RESTART_ELSEWHERE = "RestartElsewhere"
    RAISE_MEMORY = "RaiseMemory"
    RETRY = "Retry"


FINAL_ACTIONS = (RecoveryAction.FAIL, RecoveryAction.STOP)


class RecoveryRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: what must hold of a failure, and what happens then. All conditions that are given must hold."""

    # By this name the rule is counted in the status.
    name: str
    action: RecoveryAction
    # Causes and classes of causes, exit codes, a pattern of RE2 for a log line, replica types; empty: any.
    causes: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    log: str = ""
    replica_types: tuple[str, ...] = ()
    # How often the rule may restart the job; after that the job fails.
    limit: int = DEFAULT_LIMIT
    # Whether one replica or the whole job restarts; None: as the job or its framework has it.
    scope: RestartScope | None = None
    # For how long the node is left out.
    exclusion: timedelta = DEFAULT_EXCLUSION
    # The wait before a retry, which doubles each time up to the longest one.
    delay: timedelta = timedelta()
    max_delay: timedelta = DEFAULT_MAX_DELAY
    # Restarts by this rule do not count against backoffLimit.
    uncounted: bool = False
    # By how much memory grows each time, and to which limit at most.
    factor: float = DEFAULT_FACTOR
    memory_bound: Quantity | None = None


class RecoveryPolicy(msgspec.Struct, frozen=True):
    """The rules in order; the first that applies decides. If none does, restartPolicy decides as without the field."""

    rules: tuple[RecoveryRule, ...] = ()
    # Restarts keep the pods, where that is possible.
    in_place: bool = False


AUTO_RULES = (
    RecoveryRule(
        name="auto/bug", action=RecoveryAction.FAIL, causes=(CauseClass.BUG.value, CauseClass.CONFIGURATION.value)
    ),
    RecoveryRule(
        name="auto/infrastructure", action=RecoveryAction.RESTART_ELSEWHERE, causes=(CauseClass.INFRASTRUCTURE.value,)
    ),
    RecoveryRule(name="auto/memory", action=RecoveryAction.FAIL, causes=(CauseClass.MEMORY.value,)),
    RecoveryRule(
        name="auto/retry",
        action=RecoveryAction.RETRY,
        causes=(CauseClass.STORAGE.value, CauseClass.NETWORK.value),
        limit=DEFAULT_RETRY_LIMIT,
        delay=DEFAULT_DELAY,
        uncounted=True,
    ),
    RecoveryRule(name="auto/hang", action=RecoveryAction.RESTART_JOB, causes=(CauseClass.HANG.value,), limit=1),
)
"""What the word `auto` stands for. Other causes say too little: there restartPolicy decides."""


def parse_recovery(value: Any) -> tuple[RecoveryPolicy | None, tuple[Problem, ...]]:
    """The policy that the field describes; None if it is absent or wrong. And what is wrong with it."""
    if value is None:
        return None, ()
    if value == AUTO:
        return RecoveryPolicy(AUTO_RULES), ()
    if not isinstance(value, Mapping):
        shown = f'"{value}"' if isinstance(value, str) else f"a {_type_name(value)}"
        return None, (Problem(RECOVERY_PATH, f"is {shown}; write {AUTO}, or rules: [{{when: ..., then: ...}}]"),)
    reader = _PolicyReader()
    policy = reader.read(value)
    return (None, tuple(reader.problems)) if reader.problems else (policy, ())


_ANY_RULE_FIELDS = ("when", "then")
_RESTART_FIELDS = ("limit", "uncounted")
_FIELDS_BY_ACTION: Mapping[RecoveryAction, tuple[str, ...]] = {
    RecoveryAction.FAIL: (),
    RecoveryAction.STOP: (),
    RecoveryAction.RESTART_REPLICA: _RESTART_FIELDS,
    RecoveryAction.RESTART_JOB: _RESTART_FIELDS,
    RecoveryAction.RESTART_ELSEWHERE: (*_RESTART_FIELDS, "for", "scope"),
    RecoveryAction.RAISE_MEMORY: (*_RESTART_FIELDS, "upTo", "factor", "scope"),
    RecoveryAction.RETRY: (*_RESTART_FIELDS, "delay", "maxDelay", "scope"),
}
_CONDITIONS = ("causes", "exitCodes", "log", "replicaTypes")


class _PolicyReader:
    """Reads the object form of the field, and collects what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def read(self, value: Mapping[str, Any]) -> RecoveryPolicy:
        self._check_names(value, ("rules", "otherwise", "inPlace"), RECOVERY_PATH)
        listed = value.get("rules")
        if listed is None:
            listed = []
        if not isinstance(listed, list):
            self._add("rules", f"is a {_type_name(listed)}; write a list: [{{when: ..., then: ...}}]")
            listed = []
        if len(listed) > MAX_RULES:
            self._add("rules", f"has {len(listed)} rules; write at most {MAX_RULES}")
            listed = listed[:MAX_RULES]
        rules = [rule for number, one in enumerate(listed) if (rule := self._rule(number, one)) is not None]
        otherwise = value.get("otherwise")
        if otherwise == AUTO:
            rules.extend(AUTO_RULES)
        elif otherwise in [str(action) for action in FINAL_ACTIONS]:
            rules.append(RecoveryRule(name="otherwise", action=RecoveryAction(str(otherwise))))
        elif otherwise is not None:
            self._add("otherwise", f"is {_shown(otherwise)}; write {AUTO}, {', '.join(FINAL_ACTIONS)}, or leave it out")
        if not self.problems and not listed and otherwise is None:
            self._add("", f"has no rules; write {AUTO}, or rules: [{{when: ..., then: ...}}]")
        in_place = value.get("inPlace")
        if in_place is not None and not isinstance(in_place, bool):
            self._add("inPlace", f"is {_shown(in_place)}; write true or false")
        return RecoveryPolicy(tuple(rules), in_place is True)

    def _rule(self, number: int, value: Any) -> RecoveryRule | None:
        path = f"rules[{number}]"
        if not isinstance(value, Mapping):
            self._add(path, f"is {_shown(value)}; write {{when: ..., then: ...}}")
            return None
        actions = [str(action) for action in RecoveryAction]
        if value.get("then") not in actions:
            what = "is missing" if value.get("then") is None else f"is {_shown(value['then'])}"
            self._add(f"{path}.then", f"{what}; write one of {', '.join(actions)}")
            return None
        action = RecoveryAction(value["then"])
        self._check_names(value, (*_ANY_RULE_FIELDS, *_FIELDS_BY_ACTION[action]), path, f"with then: {action}")
        fields: dict[str, Any] = {"name": path, "action": action, **self._conditions(path, value.get("when"))}
        if action is RecoveryAction.RETRY:
            fields |= {"delay": DEFAULT_DELAY, "limit": DEFAULT_RETRY_LIMIT}
        self._read_numbers(path, value, fields)
        self._read_durations(path, value, fields)
        self._read_memory(path, value, action, fields)
        if "scope" in value and "scope" in _FIELDS_BY_ACTION[action]:
            if value["scope"] in list(RestartScope):
                fields["scope"] = RestartScope(value["scope"])
            else:
                self._add(f"{path}.scope", f"is {_shown(value['scope'])}; write one of {', '.join(RestartScope)}")
        elif action is RecoveryAction.RESTART_REPLICA:
            fields["scope"] = RestartScope.REPLICA
        elif action is RecoveryAction.RESTART_JOB:
            fields["scope"] = RestartScope.JOB
        return RecoveryRule(**fields)

    def _conditions(self, path: str, when: Any) -> dict[str, Any]:
        where = f"{path}.when"
        if not isinstance(when, Mapping) or not any(when.get(name) for name in _CONDITIONS):
            if isinstance(when, Mapping):
                self._check_names(when, _CONDITIONS, where)
            shown = "is missing" if when is None else "says nothing"
            self._add(where, f"{shown}; write at least one of {', '.join(_CONDITIONS)}")
            return {}
        self._check_names(when, _CONDITIONS, where)
        causes = self._texts(f"{where}.causes", when.get("causes"))
        for index, cause in enumerate(causes):
            self._check_cause(f"{where}.causes[{index}]", cause)
        return {
            "causes": causes,
            "exit_codes": self._exit_codes(f"{where}.exitCodes", when.get("exitCodes")),
            "log": self._pattern(f"{where}.log", when.get("log")),
            "replica_types": self._texts(f"{where}.replicaTypes", when.get("replicaTypes")),
        }

    def _check_cause(self, path: str, cause: str) -> None:
        classes = [str(kind) for kind in CauseClass]
        if cause in classes or cause in CAUSE_CLASSES:
            return
        from difflib import get_close_matches

        close = get_close_matches(cause.lower(), [*classes, *CAUSE_CLASSES], 1)
        hint = f"do you mean {close[0]}? " if close else ""
        self._add(
            path,
            f'is "{cause}", which is no cause; {hint}write a rule of why, {STALLED}, or one of {", ".join(classes)}',
        )

    def _read_numbers(self, path: str, value: Mapping[str, Any], fields: dict[str, Any]) -> None:
        limit = value.get("limit")
        if limit is not None:
            if not _is_int(limit) or not 1 <= limit <= MAX_LIMIT:
                self._add(f"{path}.limit", f"is {_shown(limit)}; write a number from 1 to {MAX_LIMIT}")
            else:
                fields["limit"] = limit
        uncounted = value.get("uncounted")
        if uncounted is not None:
            if not isinstance(uncounted, bool):
                self._add(f"{path}.uncounted", f"is {_shown(uncounted)}; write true or false")
            else:
                fields["uncounted"] = uncounted
        factor = value.get("factor")
        if factor is not None:
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor <= 10:
                self._add(f"{path}.factor", f"is {_shown(factor)}; write a number above 1, up to 10")
            else:
                fields["factor"] = float(factor)

    def _read_durations(self, path: str, value: Mapping[str, Any], fields: dict[str, Any]) -> None:
        for name, field in (("for", "exclusion"), ("delay", "delay"), ("maxDelay", "max_delay")):
            if name not in value or value[name] is None:
                continue
            duration = _duration(value[name])
            if duration is None:
                self._add(f"{path}.{name}", f"is {_shown(value[name])}; write a duration, such as 30s, 10m or 1h")
            else:
                fields[field] = duration

    def _read_memory(self, path: str, value: Mapping[str, Any], action: RecoveryAction, fields: dict[str, Any]) -> None:
        if action is not RecoveryAction.RAISE_MEMORY:
            return
        bound = value.get("upTo")
        try:
            quantity = Quantity.of(bound) if bound is not None else None
        except QuantityError:
            quantity = None
        if quantity is None or quantity <= Quantity.parse("0"):
            what = "is missing" if bound is None else f"is {_shown(bound)}"
            self._add(f"{path}.upTo", f"{what}; write the most memory that a replica may get, such as 64Gi")
        else:
            fields["memory_bound"] = quantity

    def _exit_codes(self, path: str, value: Any) -> tuple[int, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not all(_is_int(code) and 1 <= code <= 255 for code in value):
            self._add(path, f"is {_shown(value)}; write a list of numbers from 1 to 255")
            return ()
        return tuple(value)

    def _pattern(self, path: str, value: Any) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            self._add(path, f"is {_shown(value)}; write a regular expression in quotes")
            return ""
        # Imported here: few policies have patterns.
        from gangline.schema.regex import PatternError, compile_pattern

        try:
            compile_pattern(value)
        except PatternError as error:
            self._add(path, f'is "{value}", which is no regular expression of RE2: {error}')
        return value

    def _texts(self, path: str, value: Any) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            self._add(path, f"is {_shown(value)}; write a list of names")
            return ()
        return tuple(value)

    def _check_names(self, value: Mapping[str, Any], names: Sequence[str], path: str, where: str = "") -> None:
        inner = path.removeprefix(RECOVERY_PATH).lstrip(".")
        for name in value:
            if name not in names:
                context = f" {where}" if where else ""
                self._add(f"{inner}.{name}".lstrip("."), f"has no effect{context}; write {_listed(names)}")

    def _add(self, path: str, message: str) -> None:
        self.problems.append(Problem(f"{RECOVERY_PATH}.{path}" if path else RECOVERY_PATH, message))


def _duration(value: Any) -> timedelta | None:
    """The duration of `1h30m`, or of a number of seconds; None for anything else."""
    if _is_int(value):
        return timedelta(seconds=value) if 0 < value <= 10**8 else None
    if not isinstance(value, str):
        return None
    # Imported here: few policies have durations.
    from gangline.schema.formats import go_duration_nanos

    nanos = go_duration_nanos(value)
    return timedelta(microseconds=nanos // 1000) if nanos is not None and 10**9 <= nanos <= 10**17 else None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _type_name(value: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", list: "list", str: "text"}
    return names.get(type(value), "mapping")


def _shown(value: Any) -> str:
    """A value in a message: in quotes if it is text."""
    return f'"{value}"' if isinstance(value, str) else msgspec.json.encode(value).decode()


def _listed(names: Iterable[str]) -> str:
    return "one of " + ", ".join(names)
