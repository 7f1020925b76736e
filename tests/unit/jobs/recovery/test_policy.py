"""`runPolicy.recovery`: what may be written, and what is said about mistakes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.training import RestartScope, RunPolicy
from gangline.api.quantity import Quantity
from gangline.frameworks.mpi_v2.framework import SshMpi
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.defaults import ignored_fields, problems
from gangline.jobs.plan.recovery.classes import CAUSE_CLASSES, STALLED, CauseClass
from gangline.jobs.plan.recovery.policy import AUTO_RULES, RecoveryAction, RecoveryRule, parse_recovery
from gangline.testing.builders import make_job
from gangline.why.diagnosis.rules.table import RULES

RULE: dict[str, Any] = {"when": {"causes": ["evicted"]}, "then": "RestartElsewhere"}


def test_every_rule_of_why_has_a_class_and_nothing_else_has() -> None:
    assert set(CAUSE_CLASSES) == {rule.id for rule in RULES} | {STALLED}


def test_no_cause_is_named_as_a_class() -> None:
    assert not set(CAUSE_CLASSES) & {str(kind) for kind in CauseClass}


def test_auto_names_each_class_at_most_once() -> None:
    named = [cause for rule in AUTO_RULES for cause in rule.causes]
    assert len(named) == len(set(named))
    assert set(named) == {str(kind) for kind in CauseClass} - {"capacity", "unknown"}


def test_the_field_may_be_absent_a_word_or_rules() -> None:
    assert parse_recovery(None) == (None, ())
    policy, invalid = parse_recovery("auto")
    assert policy is not None
    assert policy.rules == AUTO_RULES
    assert not invalid
    policy, invalid = parse_recovery({"rules": [RULE], "otherwise": "auto"})
    assert policy is not None
    assert policy.rules == (
        RecoveryRule(name="rules[0]", action=RecoveryAction.RESTART_ELSEWHERE, causes=("evicted",)),
        *AUTO_RULES,
    )
    assert not invalid


def test_all_options_are_read() -> None:
    rules = [
        {**RULE, "for": "2h30m", "limit": 3, "scope": "Job", "uncounted": True},
        {"when": {"exitCodes": [137], "replicaTypes": ["Worker"]}, "then": "RaiseMemory", "upTo": "64Gi", "factor": 2},
        {"when": {"log": "HTTP 5\\d\\d"}, "then": "Retry", "delay": 90, "maxDelay": "1h"},
        {"when": {"causes": ["stalled", "network"]}, "then": "RestartReplica"},
    ]
    policy, invalid = parse_recovery({"rules": rules, "otherwise": "Fail"})
    assert not invalid
    assert policy is not None
    elsewhere, memory, retry, replica, otherwise = policy.rules
    assert (elsewhere.exclusion, elsewhere.limit) == (timedelta(hours=2, minutes=30), 3)
    assert (elsewhere.scope, elsewhere.uncounted) == (RestartScope.JOB, True)
    assert (memory.exit_codes, memory.replica_types) == ((137,), ("Worker",))
    assert (memory.memory_bound, memory.factor) == (Quantity.parse("64Gi"), 2.0)
    assert (retry.log, retry.delay, retry.max_delay) == (r"HTTP 5\d\d", timedelta(seconds=90), timedelta(hours=1))
    assert (replica.causes, replica.scope) == (("stalled", "network"), RestartScope.REPLICA)
    assert (otherwise.action, otherwise.causes) == (RecoveryAction.FAIL, ())


CAUSES = "write a rule of why, stalled, or one of bug, configuration, infrastructure, memory, storage, network, hang, capacity, unknown"
ACTIONS = "write one of Fail, Stop, RestartReplica, RestartJob, RestartElsewhere, RaiseMemory, Retry"
MISTAKES: dict[str, tuple[Any, str]] = {
    "another word": ("automatic", 'is "automatic"; write auto, or rules: [{when: ..., then: ...}]'),
    "a number": (3, "is a number; write auto, or rules: [{when: ..., then: ...}]"),
    "nothing": ({}, "has no rules; write auto, or rules: [{when: ..., then: ...}]"),
    "another field": (
        {"rules": [RULE], "default": "auto"},
        ".default: has no effect; write one of rules, otherwise, inPlace",
    ),
    "no list": ({"rules": RULE}, ".rules: is a mapping; write a list: [{when: ..., then: ...}]"),
    "no rule": ({"rules": ["auto"]}, '.rules[0]: is "auto"; write {when: ..., then: ...}'),
    "too many": ({"rules": [RULE] * 51}, ".rules: has 51 rules; write at most 50"),
    "no action": ({"rules": [{"when": RULE["when"]}]}, f".rules[0].then: is missing; {ACTIONS}"),
    "another action": ({"rules": [{**RULE, "then": "Reboot"}]}, f'.rules[0].then: is "Reboot"; {ACTIONS}'),
    "another end": (
        {"rules": [RULE], "otherwise": "Retry"},
        '.otherwise: is "Retry"; write auto, Fail, Stop, or leave it out',
    ),
    "no condition": (
        {"rules": [{"then": "Fail"}]},
        ".rules[0].when: is missing; write at least one of causes, exitCodes, log, replicaTypes",
    ),
    "an empty condition": (
        {"rules": [{**RULE, "when": {"causes": []}}]},
        ".rules[0].when: says nothing; write at least one of causes, exitCodes, log, replicaTypes",
    ),
    "another condition": (
        {"rules": [{**RULE, "when": {"causes": ["evicted"], "nodes": ["n1"]}}]},
        ".rules[0].when.nodes: has no effect; write one of causes, exitCodes, log, replicaTypes",
    ),
    "a cause that is nearly one": (
        {"rules": [{**RULE, "when": {"causes": ["OOMKilled"]}}]},
        f'.rules[0].when.causes[0]: is "OOMKilled", which is no cause; do you mean oom-killed? {CAUSES}',
    ),
    "a cause that is none": (
        {"rules": [{**RULE, "when": {"causes": ["zzz"]}}]},
        f'.rules[0].when.causes[0]: is "zzz", which is no cause; {CAUSES}',
    ),
    "one cause without a list": (
        {"rules": [{**RULE, "when": {"causes": "evicted"}}]},
        '.rules[0].when.causes: is "evicted"; write a list of names',
    ),
    "an exit code that is none": (
        {"rules": [{**RULE, "when": {"exitCodes": [0]}}]},
        ".rules[0].when.exitCodes: is [0]; write a list of numbers from 1 to 255",
    ),
    "a pattern that is none": (
        {"rules": [{**RULE, "when": {"log": "(a"}}]},
        '.rules[0].when.log: is "(a", which is no regular expression of RE2: error parsing regexp: missing closing ): `(a`',
    ),
    "a pattern without quotes": (
        {"rules": [{**RULE, "when": {"log": 500}}]},
        ".rules[0].when.log: is 500; write a regular expression in quotes",
    ),
    "an option of another action": (
        {"rules": [{**RULE, "upTo": "64Gi"}]},
        ".rules[0].upTo: has no effect with then: RestartElsewhere; write one of when, then, limit, uncounted, for, scope",
    ),
    "no limit": ({"rules": [{**RULE, "limit": 0}]}, ".rules[0].limit: is 0; write a number from 1 to 1000"),
    "no duration": (
        {"rules": [{**RULE, "for": "soon"}]},
        '.rules[0].for: is "soon"; write a duration, such as 30s, 10m or 1h',
    ),
    "no scope": ({"rules": [{**RULE, "scope": "Team"}]}, '.rules[0].scope: is "Team"; write one of Replica, Job'),
    "no truth": ({"rules": [{**RULE, "uncounted": 1}]}, ".rules[0].uncounted: is 1; write true or false"),
    "no bound": (
        {"rules": [{**RULE, "then": "RaiseMemory"}]},
        ".rules[0].upTo: is missing; write the most memory that a replica may get, such as 64Gi",
    ),
    "a bound that is none": (
        {"rules": [{**RULE, "then": "RaiseMemory", "upTo": "much"}]},
        '.rules[0].upTo: is "much"; write the most memory that a replica may get, such as 64Gi',
    ),
    "a factor that lowers": (
        {"rules": [{**RULE, "then": "RaiseMemory", "upTo": "64Gi", "factor": 1}]},
        ".rules[0].factor: is 1; write a number above 1, up to 10",
    ),
}


@pytest.mark.parametrize(("value", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_explained(value: Any, message: str) -> None:
    policy, invalid = parse_recovery(value)
    assert policy is None
    shown = f"spec.runPolicy.recovery{message}" if message.startswith(".") else f"spec.runPolicy.recovery: {message}"
    assert [str(problem) for problem in invalid] == [shown]


def job_with_recovery(framework: Any, value: Any) -> Any:
    has_launcher = framework.facts.needed == "Launcher"
    job = make_job(framework.facts, launcher=1, worker=1) if has_launcher else make_job(framework.facts, worker=1)
    job = framework.default(job)
    spec = msgspec.structs.replace(job.spec, run_policy=RunPolicy(recovery=value))
    return framework.default(msgspec.structs.replace(job, spec=spec))


def test_a_mistake_is_a_problem_of_the_job() -> None:
    job = job_with_recovery(PyTorch(), "automatic")
    assert [problem.path for problem in problems(PyTorch(), job)] == ["spec.runPolicy.recovery"]
    assert not problems(PyTorch(), job_with_recovery(PyTorch(), "auto"))


def test_a_kind_whose_launcher_is_a_job_of_kubernetes_ignores_it() -> None:
    job = job_with_recovery(SshMpi(""), "auto")
    assert [str(problem) for problem in ignored_fields(SshMpi(""), job)] == [
        "spec.runPolicy.recovery: has no effect: the Job of Kubernetes that is the launcher decides about restarts"
    ]


def test_hostile_patterns_take_linear_time() -> None:
    from gangline.jobs.plan.recovery.decision import _log_matches

    assert not _log_matches("(a+)+$", ["a" * 8000 + "!"])
