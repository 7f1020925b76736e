"""From a snapshot of a job to a diagnosis. Pure: the same snapshot gives the same diagnosis."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from gangline.api.kubeflow.training import Failure, RecoveryStatus
from gangline.frameworks.ranks import replica_with_rank
from gangline.jobs.plan.failures.ends import PEER_FAILURE_PATTERN
from gangline.jobs.plan.recovery.affinity import EXCLUDED_NODES_ANNOTATION
from gangline.why.diagnosis.case import JobFacts, JobSnapshot
from gangline.why.diagnosis.failures import CLOCK_TOLERANCE, JobFailures, job_failures
from gangline.why.diagnosis.report import Cause, Diagnosis, DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import quoted_line
from gangline.why.diagnosis.rules.no_progress import finished_peers, silent_for, unread_usage
from gangline.why.diagnosis.rules.table import RULES
from gangline.why.diagnosis.wording import (
    count_phrase,
    duration_phrase,
    name_list,
    signal_name,
    time_of_day,
    times_phrase,
)

MAX_CAUSES = 5
NOTED_SILENCE = timedelta(minutes=1)
"""A job without log lines for this long gets a note, long before it counts as hung."""


class _Finding(msgspec.Struct, frozen=True):
    rule: DiagnosisRule
    match: RuleMatch
    order: tuple[bool, int]


def diagnose(case: JobSnapshot, rules: Sequence[DiagnosisRule] = RULES) -> Diagnosis:
    """The likeliest cause, then the others in order of likelihood. A healthy job has no cause."""
    who_failed = job_failures(case)
    scene = RuleInput(case, who_failed)
    findings = _group_by_values(_findings(scene, rules))
    causes = tuple(_cause_of(one, scene, alone=index == 0) for index, one in enumerate(findings[:MAX_CAUSES]))
    job = case.job
    first = causes[0] if causes else Cause("", "")
    return Diagnosis(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=job.state,
        summary=job_summary(case),
        healthy=not causes,
        cause=first.cause,
        evidence=first.evidence,
        next=first.next,
        causes=causes,
        notes=() if causes else job_notes(case),
        looked_at=sources_read(case),
        unread=(*case.unreadable, *unread_usage(case)),
    )


def _findings(scene: RuleInput, rules: Sequence[DiagnosisRule]) -> list[_Finding]:
    """The matches of all rules. A failure, or a replica in trouble, belongs to the first rule that explains it."""
    if scene.snapshot.job.state == "Succeeded":
        return []
    explained: set[int] = set()
    blamed: set[str] = set()
    findings: list[_Finding] = []
    for number, rule in enumerate(rules):
        if findings and rule.id in _FALLBACK_RULE_IDS:
            continue
        matches = list(rule.matches(scene))
        for match in matches:
            if match.failure_index is not None:
                if match.failure_index in explained:
                    continue
            elif match.replicas and (scene.snapshot.job.is_finished or blamed.issuperset(match.replicas)):
                # For a finished job only failures matter, not replicas that still wait.
                continue
            # The first failure of the job comes before all others.
            findings.append(_Finding(rule, match, (match.failure_index != 0, number)))
        explained.update(match.failure_index for match in matches if match.failure_index is not None)
        blamed.update(name for match in matches for name in match.replicas)
        if findings and rule.id in _CONCLUSIVE_RULES:
            break
    if any(finding.rule.id in _JOB_LEVEL_RULES for finding in findings):
        findings = [finding for finding in findings if finding.rule.id not in _VAGUE_RULES] or findings
    return sorted(_without_consequences(findings), key=lambda one: one.order)


_CONCLUSIVE_RULES = ("spec-invalid", "managed-elsewhere", "no-operator", "operator-silent", "queued")
"""If one of these rules matches, no further rule is tried."""
_FALLBACK_RULE_IDS = ("backoff-limit", "failed")
"""Tried only if no other rule matches."""
_JOB_LEVEL_RULES = ("deadline",)
_VAGUE_RULES = ("exit-code", "pod-failed")
_PEER_RULE_IDS = ("peer-left", "peer-lost", "rendezvous-timeout", "name-unknown")
_GENERIC_REFUSAL_RULE = "pods-refused"


def _without_consequences(findings: list[_Finding]) -> list[_Finding]:
    """The findings without consequences of others: lost peers, and rejections that another rule explains better."""
    causes = [finding for finding in findings if finding.rule.id not in _PEER_RULE_IDS]
    remaining = causes or findings
    rejections = [
        finding
        for finding in remaining
        if finding.match.evidence[:1] and finding.match.evidence[0].startswith("the server said:")
    ]
    if len(rejections) > 1:
        remaining = [finding for finding in remaining if finding.rule.id != _GENERIC_REFUSAL_RULE]
    return remaining


def _group_by_values(findings: Iterable[_Finding]) -> list[_Finding]:
    """Findings that differ only in their replicas, merged into one."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], _Finding] = {}
    for finding in findings:
        values = tuple(sorted(item for item in finding.match.values.items() if item[0] not in _PER_REPLICA_VALUES))
        key = (finding.rule.id, values)
        before = groups.get(key)
        if before is None:
            groups[key] = finding
        else:
            who = (*before.match.replicas, *finding.match.replicas)
            groups[key] = msgspec.structs.replace(before, match=msgspec.structs.replace(before.match, replicas=who))
    return list(groups.values())


_PER_REPLICA_VALUES = (
    "pod",
    "logs",
    "again",
    "often",
    "frame",
    "look",
    "path",
    "template",
    "keep",
    "dump",
    "mapped",
    "real",
    "first",
    "install",
)
"""Values that differ between replicas with the same problem."""


class _TemplateValues(dict[str, str]):
    """Values for the sentences of a rule. It records which missing values were asked for."""

    def __missing__(self, name: str) -> str:
        raise _MissingValue(name)


class _MissingValue(KeyError):
    pass


def filled_template(template: str, values: Mapping[str, str]) -> str:
    """The sentence with its values filled in; empty if a value is missing."""
    try:
        text = template.format_map(_TemplateValues(values))
    except _MissingValue:
        return ""
    return text


_PLURAL_VERBS = {"was": "were", "is": "are", "has": "have", "does": "do"}


def _failure_phrase(failure: Failure) -> str:
    """`exit code 137 (SIGKILL)`."""
    reason = failure.reason if failure.reason not in ("", "Error") else signal_name(failure.exit_code)
    code = f"exit code {failure.exit_code}" if failure.exit_code is not None else ""
    return f"{code} ({reason})" if code and reason else code or reason or "no exit code is known"


def with_plural_verb(text: str, names: str) -> str:
    """The sentence with a plural verb if there are several names: `a and b wants` becomes `a and b want`."""
    verb = re.match(r"[a-z]+(?![\w-])", text.removeprefix(f"{names} "))
    if not text.startswith(f"{names} ") or verb is None:
        return text
    rest = text[len(names) + 1 + verb.end() :]
    return f"{names} {_PLURAL_VERBS.get(verb[0], verb[0].removesuffix('s'))}{rest}"


_REPLICA_NAME = re.compile(r"(?<![\w./-])[a-z]+-\d+(?![\w./-]| \(rank)")


def with_ranks(text: str, job: JobFacts) -> str:
    """The text with the framework's rank after every replica name: `worker-1 (rank 2)`."""
    processes = job.ranks_per_replica
    if processes is None or job.desired_total < 2:
        return text

    def labelled(match: re.Match[str]) -> str:
        label = replica_with_rank(job.kind, job.desired_replicas, match[0], processes=processes)
        in_parentheses = text[: match.start()].endswith("(")
        return label.replace(" (", ", ").rstrip(")") if in_parentheses else label

    return _REPLICA_NAME.sub(labelled, text)


def _cause_of(finding: _Finding, scene: RuleInput, *, alone: bool) -> Cause:
    match, rule = finding.match, finding.rule
    values = {
        "who": name_list(match.replicas) if match.replicas else f"{scene.snapshot.job.kind} {scene.snapshot.job.name}",
        **match.values,
    }
    evidence = [line for line in match.evidence if line.strip()]
    if alone:
        evidence += _order_lines(scene.failures)
        evidence += _consequence_lines(scene.failures)
        evidence += _finished_peer_lines(scene)
        evidence += _backoff_lines(scene.snapshot)
        evidence += recovery_lines(scene.snapshot)
    steps = (filled_template(step, values) for step in rule.next)
    sentence = filled_template(rule.cause, values) or rule.cause
    if len(set(match.replicas)) > 1:
        sentence = with_plural_verb(sentence, values["who"])
    # A sentence that begins with a name keeps the name's spelling.
    sentence = sentence if rule.cause.startswith("{") else sentence[:1].upper() + sentence[1:]
    return Cause(
        rule=rule.id,
        cause=with_ranks(sentence, scene.snapshot.job),
        evidence=tuple(
            line if "│" in line else with_ranks(line, scene.snapshot.job) for line in dict.fromkeys(evidence)
        ),
        next=tuple(step for step in steps if step),
        replicas=tuple(dict.fromkeys(match.replicas)),
    )


def _order_lines(failed: JobFailures) -> list[str]:
    """That several replicas ended in the same second, and nothing says which one was first."""
    if not failed.in_same_second:
        return []
    who = name_list(failed.in_same_second)
    return [f"{who} failed in the same second: the order within it is not known, for lack of log times"]


def _consequence_lines(failed: JobFailures) -> list[str]:
    if not failed.consequences:
        return []
    first = failed.consequences[0]
    output = [line for line in reversed(first.output) if line.strip()]
    line = next((line for line in output if PEER_FAILURE_PATTERN.search(line)), output[0] if output else "")
    codes = sorted({str(failure.exit_code) for failure in failed.consequences if failure.exit_code is not None})
    how = f" (exit {', '.join(codes)})" if codes else ""
    lost = "its peer or was stopped" if len(failed.consequences) == 1 else "their peer or were stopped"
    what = "a consequence, not a cause" if len(failed.consequences) == 1 else "consequences, not causes"
    sentence = f"{name_list([failure.replica for failure in failed.consequences])} then lost {lost}{how}: {what}"
    return [sentence, *([quoted_line(first.replica, line)] if line else [])]


def _finished_peer_lines(scene: RuleInput) -> list[str]:
    """Peers that had ended with exit code 0 shortly before the first failure: it may have needed them."""
    first = scene.failures.primary[0] if scene.failures.primary else None
    if first is None or first.finished_at is None:
        return []
    lines = []
    for peer, ended_at in finished_peers(scene.snapshot):
        if ended_at is not None and -CLOCK_TOLERANCE <= first.finished_at - ended_at <= _LEFT_BEFORE:
            lines.append(f"{peer.name} had ended with exit code 0 before that, at {time_of_day(ended_at)}")
    return lines[:3]


_LEFT_BEFORE = timedelta(minutes=5)


def _backoff_lines(case: JobSnapshot) -> list[str]:
    """How often the job was retried, if that limit ended it."""
    failed = case.job.true_condition("Failed")
    if failed is None or "backoff" not in f"{failed.reason} {failed.message}".lower():
        return []
    limit = f" of {case.job.backoff_limit}" if case.job.backoff_limit is not None else ""
    return [f"it was tried again until the backoff limit{limit} was reached"]


def recovery_lines(case: JobSnapshot) -> list[str]:
    """What the recovery policy of the job did last, and the nodes that its new pods keep away from."""
    record = case.job.recovery or RecoveryStatus()
    when = f" at {time_of_day(record.time)}" if record.time is not None else ""
    own = [node for node in record.excluded_nodes if node.until > case.now]
    annotations = (one.pod.metadata.annotations.get(EXCLUDED_NODES_ANNOTATION, "") for one in case.replicas)
    others = {name for text in annotations if text for name in text.split(",")} - {node.name for node in own}
    return [
        *([f"its recovery policy {_recovery_phrase(case.job, record, when)}"] if record.message else []),
        *(f"node {node.name} is left out until {time_of_day(node.until)} ({node.cause})" for node in own),
        *(f"its pods keep away from node {name}, where it or jobs of other owners failed" for name in sorted(others)),
    ]


def _recovery_phrase(job: JobFacts, record: RecoveryStatus, when: str) -> str:
    """What a policy did. Of one that ended the job the cause is said elsewhere."""
    if job.state != "Failed" or record.action not in ("Fail", "Stop"):
        return f"acted{when}: {record.message}"
    _, hint, reason = record.message.rpartition("; ")
    return f"ended it{when}" + (f": {reason}" if hint else "")


# How the job is


def job_summary(case: JobSnapshot) -> str:
    """The state of the job in a sentence: `PyTorchJob team-a/bert is Running, 1 replica short of 8`."""
    job = case.job
    text = f"{job.kind} {job.namespace}/{job.name} {'was' if job.run_end_reason else 'is'} {job.state}"
    if job.is_finished or job.suspended or (case.pods_unreadable and job.has_status):
        return f"{text}."
    up = sum(one.is_up for one in case.replicas)
    short = job.desired_total - up
    if not job.has_status:
        return f"{text}: it has no status yet."
    if short > 0 and up:
        return f"{text}, {count_phrase(short, 'replica')} short of {job.desired_total}."
    if short > 0:
        return (
            f"{text}, but none of its {job.desired_total} replicas is up."
            if job.desired_total > 1
            else f"{text}, but not up."
        )
    return f"{text}, all {up} replicas up." if up > 1 else f"{text}."


def job_notes(case: JobSnapshot) -> tuple[str, ...]:
    """Notes on a healthy job that a person may want to know."""
    job = case.job
    notes = []
    if job.run_end_reason:
        notes.append(f"{job.run_end_reason}; this is how it was then")
    if job.suspended and not job.is_finished:
        notes.append(f"it is suspended: {job.suspend_field} is true. Let it run: gangline resume {job.name}")
    if not job.has_status and case.elapsed_since(job.created_at) < case.timeouts.unnoticed_after:
        how = (
            "it is being started, and its status comes next" if case.is_acknowledged else "nobody has looked at it yet"
        )
        notes.append(f"it was created {duration_phrase(case.elapsed_since(job.created_at))} ago; {how}")
    if job.restarts and job.state in ("Running", "Stalled", "Succeeded"):
        first = job.first_failure
        who = with_ranks(first.replica, job) if first else ""
        how = f"; the last failure: {who}, {_failure_phrase(first)}" if first else ""
        notes.append(
            f"it restarted {times_phrase(job.restarts)}, and goes on{how}"
            if job.state in ("Running", "Stalled")
            else f"it restarted {times_phrase(job.restarts)} on its way{how}"
        )
    notes.extend(recovery_lines(case))
    silence = silent_for(case)
    if silence is not None and silence >= NOTED_SILENCE and not unread_usage(case):
        notes.append(_silence_note(case, silence))
    return tuple(notes)


def _silence_note(case: JobSnapshot, silence: timedelta) -> str:
    job, length = case.job, duration_phrase(silence)
    if job.run_ended_at is not None:
        return f"no replica had written a line for {length} then"
    if silence >= case.timeouts.hung_after:
        return f"no replica has written a line for {length}, though they use the CPU"
    where = f" -n {job.namespace}" if job.namespace != "default" else ""
    seconds = int(NOTED_SILENCE.total_seconds())
    return (
        f"no replica has written a line for {length}; does it hang? "
        f"gangline why {job.name} --hung-after {seconds}s{where}"
    )


def sources_read(case: JobSnapshot) -> tuple[str, ...]:
    """What the diagnosis is based on."""
    logs = sum(bool(one.logs or one.previous_logs) for one in case.replicas)
    events = len(case.events) + sum(len(one.events) for one in case.replicas)
    sources = [
        "its spec and status",
        count_phrase(len(case.replicas), "pod"),
        count_phrase(events, "event"),
        f"the last lines of {count_phrase(logs, 'log')}",
    ]
    if case.nodes is not None:
        sources.append(count_phrase(len(case.nodes), "node"))
    if case.claims:
        sources.append(count_phrase(len(case.claims), "claim"))
    if case.pod_group is not None:
        sources.append("its PodGroup")
    return tuple(sources)
