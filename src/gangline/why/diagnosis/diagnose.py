"""Case in, report out. Pure: the same case gives the same report."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gangline.jobs.plan.restarts import PEER_FAILURE_PATTERN
from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.failures import JobFailures, job_failures
from gangline.why.diagnosis.report import Cause, Diagnosis, DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import quoted_line
from gangline.why.diagnosis.rules.table import RULES
from gangline.why.diagnosis.wording import count_phrase, duration_phrase, name_list, times_phrase

MAX_CAUSES = 5


class _Finding(msgspec.Struct, frozen=True):
    rule: DiagnosisRule
    match: RuleMatch
    order: tuple[bool, int]


def diagnose(case: JobSnapshot, rules: Sequence[DiagnosisRule] = RULES) -> Diagnosis:
    """One cause first, others in order of likelihood; none for a job that does what it should."""
    who_failed = job_failures(case)
    scene = RuleInput(case, who_failed)
    found = _group_by_values(_findings(scene, rules))
    causes = tuple(_cause_of(one, scene, alone=index == 0) for index, one in enumerate(found[:MAX_CAUSES]))
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
        unread=case.unreadable,
    )


def _findings(scene: RuleInput, rules: Sequence[DiagnosisRule]) -> list[_Finding]:
    """What the rules find. A failure belongs to the first rule that explains it, and so does a replica's trouble."""
    if scene.snapshot.job.state == "Succeeded":
        return []
    explained: set[int] = set()
    blamed: set[str] = set()
    found: list[_Finding] = []
    for number, rule in enumerate(rules):
        if found and rule.id in _FALLBACK_RULE_IDS:
            continue
        matches = list(rule.matches(scene))
        for match in matches:
            if match.failure_index is not None:
                if match.failure_index in explained:
                    continue
            elif match.replicas and (scene.snapshot.job.is_finished or blamed.issuperset(match.replicas)):
                # Of a job that has ended only the failures matter, not who still waits.
                continue
            # The first failure of the team goes before all others.
            found.append(_Finding(rule, match, (match.failure_index != 0, number)))
        explained.update(match.failure_index for match in matches if match.failure_index is not None)
        blamed.update(name for match in matches for name in match.replicas)
        if found and rule.id in _CONCLUSIVE_RULES:
            break
    if any(one.rule.id in _JOB_LEVEL_RULES for one in found):
        found = [one for one in found if one.rule.id not in _VAGUE_RULES] or found
    return sorted(_without_consequences(found), key=lambda one: one.order)


_CONCLUSIVE_RULES = ("spec-invalid", "managed-elsewhere", "no-operator", "operator-silent", "queued")
"""What makes all further questions idle."""
_FALLBACK_RULE_IDS = ("backoff-limit", "failed")
"""Asked only when nothing else was found."""
_JOB_LEVEL_RULES = ("deadline",)
_VAGUE_RULES = ("exit-code", "pod-failed")
_PEER_RULE_IDS = ("peer-lost", "rendezvous-timeout", "name-unknown")
_GENERIC_REFUSAL_RULE = "pods-refused"


def _without_consequences(found: list[_Finding]) -> list[_Finding]:
    """Who lost a peer is no cause where there is another; and a refusal is told once, by whoever knows it best."""
    others = [one for one in found if one.rule.id not in _PEER_RULE_IDS]
    kept = others or found
    refused = [one for one in kept if one.match.evidence[:1] and one.match.evidence[0].startswith("the server said:")]
    if len(refused) > 1:
        kept = [one for one in kept if one.rule.id != _GENERIC_REFUSAL_RULE]
    return kept


def _group_by_values(found: Iterable[_Finding]) -> list[_Finding]:
    """Matches that differ only in whom they are about become one."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], _Finding] = {}
    for one in found:
        values = tuple(sorted(item for item in one.match.values.items() if item[0] not in _PER_REPLICA_VALUES))
        key = (one.rule.id, values)
        before = groups.get(key)
        if before is None:
            groups[key] = one
        else:
            who = (*before.match.replicas, *one.match.replicas)
            groups[key] = msgspec.structs.replace(before, match=msgspec.structs.replace(before.match, replicas=who))
    return list(groups.values())


_PER_REPLICA_VALUES = ("pod", "logs", "again", "often", "frame", "look", "path", "template")
"""Values that differ between replicas with the same trouble."""


class _TemplateValues(dict[str, str]):
    """Values for sentences; asks for one that is not known are noted."""

    def __missing__(self, name: str) -> str:
        raise _MissingValue(name)


class _MissingValue(KeyError):
    pass


def filled_template(template: str, values: Mapping[str, str]) -> str:
    """A sentence with its values; empty when one is not known."""
    try:
        text = template.format_map(_TemplateValues(values))
    except _MissingValue:
        return ""
    return text


_PLURAL_VERBS = {"was": "were", "is": "are", "has": "have", "does": "do"}


def with_plural_verb(text: str, who: str) -> str:
    """A sentence about several, whose verb was written for one: `a and b wants` becomes `a and b want`."""
    verb, space, rest = text.removeprefix(f"{who} ").partition(" ")
    if not text.startswith(f"{who} ") or not verb.isalpha():
        return text
    return f"{who} {_PLURAL_VERBS.get(verb, verb.removesuffix('s'))}{space}{rest}"


def _cause_of(found: _Finding, scene: RuleInput, *, alone: bool) -> Cause:
    match, rule = found.match, found.rule
    values = {
        "who": name_list(match.replicas) if match.replicas else f"{scene.snapshot.job.kind} {scene.snapshot.job.name}",
        **match.values,
    }
    evidence = [line for line in match.evidence if line.strip()]
    if alone:
        evidence += _consequence_lines(scene.failures)
        evidence += _backoff_lines(scene.snapshot)
    steps = (filled_template(step, values) for step in rule.next)
    said = filled_template(rule.cause, values) or rule.cause
    if len(set(match.replicas)) > 1:
        said = with_plural_verb(said, values["who"])
    return Cause(
        rule=rule.id,
        # A sentence that begins with a name keeps it as it is written.
        cause=said if rule.cause.startswith("{") else said[:1].upper() + said[1:],
        evidence=tuple(dict.fromkeys(evidence)),
        next=tuple(step for step in steps if step),
        replicas=tuple(dict.fromkeys(match.replicas)),
    )


def _consequence_lines(failed: JobFailures) -> list[str]:
    if not failed.consequences:
        return []
    first = failed.consequences[0]
    said = [line for line in reversed(first.output) if line.strip()]
    line = next((line for line in said if PEER_FAILURE_PATTERN.search(line)), said[0] if said else "")
    codes = sorted({str(one.exit_code) for one in failed.consequences if one.exit_code is not None})
    how = f" (exit {', '.join(codes)})" if codes else ""
    lost = "its peer or was stopped" if len(failed.consequences) == 1 else "their peer or were stopped"
    what = "a consequence, not a cause" if len(failed.consequences) == 1 else "consequences, not causes"
    told = f"{name_list([one.replica for one in failed.consequences])} then lost {lost}{how}: {what}"
    return [told, *([quoted_line(first.replica, line)] if line else [])]


def _backoff_lines(case: JobSnapshot) -> list[str]:
    """How often it was tried, where that is what ended the job."""
    failed = case.job.true_condition("Failed")
    if failed is None or "backoff" not in f"{failed.reason} {failed.message}".lower():
        return []
    limit = f" of {case.job.backoff_limit}" if case.job.backoff_limit is not None else ""
    return [f"it was tried again until the backoff limit{limit} was reached"]


# How the job is


def job_summary(case: JobSnapshot) -> str:
    """How the job is: `PyTorchJob team-a/bert is Running, 1 replica short of 8`."""
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
    """What a person may want to know of a job that does what it should."""
    job = case.job
    said = []
    if job.run_end_reason:
        said.append(f"{job.run_end_reason}; this is how it was then")
    if job.suspended and not job.is_finished:
        said.append(f"it is suspended: {job.suspend_field} is true. Let it run: gangline resume {job.name}")
    if not job.has_status and case.elapsed_since(job.created_at) < case.timeouts.unnoticed_after:
        how = (
            "it is being started, and its status comes next" if case.is_acknowledged else "nobody has looked at it yet"
        )
        said.append(f"it was created {duration_phrase(case.elapsed_since(job.created_at))} ago; {how}")
    if job.restarts and job.state in ("Running", "Succeeded"):
        first = job.first_failure
        how = f"; the last failure: {first.replica}, {first.reason or 'exit'} {first.exit_code}" if first else ""
        said.append(
            f"it restarted {times_phrase(job.restarts)}, and goes on{how}"
            if job.state == "Running"
            else f"it restarted {times_phrase(job.restarts)} on its way{how}"
        )
    return tuple(said)


def sources_read(case: JobSnapshot) -> tuple[str, ...]:
    """What the verdict rests on."""
    logs = sum(bool(one.logs or one.previous_logs) for one in case.replicas)
    events = len(case.events) + sum(len(one.events) for one in case.replicas)
    seen = [
        "its spec and status",
        count_phrase(len(case.replicas), "pod"),
        count_phrase(events, "event"),
        f"the last lines of {count_phrase(logs, 'log')}",
    ]
    if case.nodes is not None:
        seen.append(count_phrase(len(case.nodes), "node"))
    if case.claims:
        seen.append(count_phrase(len(case.claims), "claim"))
    if case.pod_group is not None:
        seen.append("its PodGroup")
    return tuple(seen)
