"""Case in, report out. Pure: the same case gives the same report."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gangline.jobs.plan.restarts import BLAMES_PEER
from gangline.why.model.case import Case
from gangline.why.model.failures import Team, team
from gangline.why.model.report import Cause, Match, Report, Rule, Scene
from gangline.why.model.wording import count, lasting, names, times
from gangline.why.rules.evidence import quoted
from gangline.why.rules.table import RULES

MOST_CAUSES = 5


class _Found(msgspec.Struct, frozen=True):
    rule: Rule
    match: Match
    order: tuple[bool, int]


def diagnose(case: Case, rules: Sequence[Rule] = RULES) -> Report:
    """One cause first, others in order of likelihood; none for a job that does what it should."""
    who_failed = team(case)
    scene = Scene(case, who_failed)
    found = _grouped(_asked(scene, rules))
    causes = tuple(_cause(one, scene, alone=index == 0) for index, one in enumerate(found[:MOST_CAUSES]))
    job = case.job
    first = causes[0] if causes else Cause("", "")
    return Report(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=job.state,
        summary=summary(case),
        healthy=not causes,
        cause=first.cause,
        evidence=first.evidence,
        next=first.next,
        causes=causes,
        notes=() if causes else notes(case),
        looked_at=looked_at(case),
        unread=case.unread,
    )


def _asked(scene: Scene, rules: Sequence[Rule]) -> list[_Found]:
    """What the rules find. A failure belongs to the first rule that explains it, and so does a replica's trouble."""
    if scene.case.job.state == "Succeeded":
        return []
    explained: set[int] = set()
    blamed: set[str] = set()
    found: list[_Found] = []
    for number, rule in enumerate(rules):
        if found and rule.id in _LAST:
            continue
        matches = list(rule.matches(scene))
        for match in matches:
            if match.end is not None:
                if match.end in explained:
                    continue
            elif match.who and (scene.case.job.finished or blamed.issuperset(match.who)):
                # Of a job that has ended only the failures matter, not who still waits.
                continue
            # The first failure of the team goes before all others.
            found.append(_Found(rule, match, (match.end != 0, number)))
        explained.update(match.end for match in matches if match.end is not None)
        blamed.update(name for match in matches for name in match.who)
        if found and rule.id in _STOPS:
            break
    if any(one.rule.id in _SAID_OF_THE_JOB for one in found):
        found = [one for one in found if one.rule.id not in _VAGUE] or found
    return sorted(_without_consequences(found), key=lambda one: one.order)


_STOPS = ("spec-invalid", "managed-elsewhere", "no-operator", "operator-silent", "queued")
"""What makes all further questions idle."""
_LAST = ("backoff-limit", "failed")
"""Asked only when nothing else was found."""
_SAID_OF_THE_JOB = ("deadline",)
_VAGUE = ("exit-code", "pod-failed")
_OF_PEERS = ("peer-lost", "rendezvous-timeout", "name-unknown")
_REFUSALS_LAST = "pods-refused"


def _without_consequences(found: list[_Found]) -> list[_Found]:
    """Who lost a peer is no cause where there is another; and a refusal is told once, by whoever knows it best."""
    others = [one for one in found if one.rule.id not in _OF_PEERS]
    kept = others or found
    refused = [
        one for one in kept if one.match.evidence[:1] and one.match.evidence[0].startswith("the server said:")
    ]
    if len(refused) > 1:
        kept = [one for one in kept if one.rule.id != _REFUSALS_LAST]
    return kept


def _grouped(found: Iterable[_Found]) -> list[_Found]:
    """Matches that differ only in whom they are about become one."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], _Found] = {}
    for one in found:
        values = tuple(sorted(item for item in one.match.values.items() if item[0] not in _OF_ONE))
        key = (one.rule.id, values)
        before = groups.get(key)
        if before is None:
            groups[key] = one
        else:
            who = (*before.match.who, *one.match.who)
            groups[key] = msgspec.structs.replace(
                before, match=msgspec.structs.replace(before.match, who=who)
            )
    return list(groups.values())


_OF_ONE = ("pod", "logs", "again", "often", "frame", "look", "path", "template")
"""Values that differ between replicas with the same trouble."""


class _Known(dict[str, str]):
    """Values for sentences; asks for one that is not known are noted."""

    def __missing__(self, name: str) -> str:
        raise _NotKnown(name)


class _NotKnown(KeyError):
    pass


def sentence(template: str, values: Mapping[str, str]) -> str:
    """A sentence with its values; empty when one is not known."""
    try:
        text = template.format_map(_Known(values))
    except _NotKnown:
        return ""
    return text


_PLURAL = {"was": "were", "is": "are", "has": "have", "does": "do"}


def agreed(text: str, who: str) -> str:
    """A sentence about several, whose verb was written for one: `a and b wants` becomes `a and b want`."""
    verb, space, rest = text.removeprefix(f"{who} ").partition(" ")
    if not text.startswith(f"{who} ") or not verb.isalpha():
        return text
    return f"{who} {_PLURAL.get(verb, verb.removesuffix('s'))}{space}{rest}"


def _cause(found: _Found, scene: Scene, *, alone: bool) -> Cause:
    match, rule = found.match, found.rule
    values = {
        "who": names(match.who) if match.who else f"{scene.case.job.kind} {scene.case.job.name}",
        **match.values,
    }
    evidence = [line for line in match.evidence if line.strip()]
    if alone:
        evidence += _consequences(scene.team)
        evidence += _verdict(scene.case)
    steps = (sentence(step, values) for step in rule.next)
    said = sentence(rule.cause, values) or rule.cause
    if len(set(match.who)) > 1:
        said = agreed(said, values["who"])
    return Cause(
        rule=rule.id,
        # A sentence that begins with a name keeps it as it is written.
        cause=said if rule.cause.startswith("{") else said[:1].upper() + said[1:],
        evidence=tuple(dict.fromkeys(evidence)),
        next=tuple(step for step in steps if step),
        replicas=tuple(dict.fromkeys(match.who)),
    )


def _consequences(failed: Team) -> list[str]:
    if not failed.echoes:
        return []
    first = failed.echoes[0]
    said = [line for line in reversed(first.said) if line.strip()]
    line = next((line for line in said if BLAMES_PEER.search(line)), said[0] if said else "")
    codes = sorted({str(one.code) for one in failed.echoes if one.code is not None})
    how = f" (exit {', '.join(codes)})" if codes else ""
    lost = "its peer or was stopped" if len(failed.echoes) == 1 else "their peer or were stopped"
    what = "a consequence, not a cause" if len(failed.echoes) == 1 else "consequences, not causes"
    told = f"{names([one.replica for one in failed.echoes])} then lost {lost}{how}: {what}"
    return [told, *([quoted(first.replica, line)] if line else [])]


def _verdict(case: Case) -> list[str]:
    """How often it was tried, where that is what ended the job."""
    failed = case.job.condition("Failed")
    if failed is None or "backoff" not in f"{failed.reason} {failed.message}".lower():
        return []
    limit = f" of {case.job.backoff_limit}" if case.job.backoff_limit is not None else ""
    return [f"it was tried again until the backoff limit{limit} was reached"]


# How the job is


def summary(case: Case) -> str:
    """How the job is: `PyTorchJob team-a/bert is Running, 1 replica short of 8`."""
    job = case.job
    text = f"{job.kind} {job.namespace}/{job.name} {'was' if job.stopped else 'is'} {job.state}"
    if job.finished or job.suspended or (case.blind and job.noticed):
        return f"{text}."
    up = sum(one.up for one in case.replicas)
    short = job.asked - up
    if not job.noticed:
        return f"{text}: it has no status yet."
    if short > 0 and up:
        return f"{text}, {count(short, 'replica')} short of {job.asked}."
    if short > 0:
        return (
            f"{text}, but none of its {job.asked} replicas is up."
            if job.asked > 1
            else f"{text}, but not up."
        )
    return f"{text}, all {up} replicas up." if up > 1 else f"{text}."


def notes(case: Case) -> tuple[str, ...]:
    """What a person may want to know of a job that does what it should."""
    job = case.job
    said = []
    if job.stopped:
        said.append(f"{job.stopped}; this is how it was then")
    if job.suspended and not job.finished:
        said.append(f"it is suspended: {job.suspend_field} is true. Let it run: gangline resume {job.name}")
    if not job.noticed and case.since(job.created) < case.patience.notice:
        how = (
            "it is being started, and its status comes next"
            if case.touched
            else "nobody has looked at it yet"
        )
        said.append(f"it was created {lasting(case.since(job.created))} ago; {how}")
    if job.restarts and job.state in ("Running", "Succeeded"):
        first = job.first_failure
        how = (
            f"; the last failure: {first.replica}, {first.reason or 'exit'} {first.exit_code}"
            if first
            else ""
        )
        said.append(
            f"it restarted {times(job.restarts)}, and goes on{how}"
            if job.state == "Running"
            else f"it restarted {times(job.restarts)} on its way{how}"
        )
    return tuple(said)


def looked_at(case: Case) -> tuple[str, ...]:
    """What the verdict rests on."""
    logs = sum(bool(one.logs or one.earlier) for one in case.replicas)
    events = len(case.events) + sum(len(one.events) for one in case.replicas)
    seen = [
        "its spec and status",
        count(len(case.replicas), "pod"),
        count(events, "event"),
        f"the last lines of {count(logs, 'log')}",
    ]
    if case.nodes is not None:
        seen.append(count(len(case.nodes), "node"))
    if case.claims:
        seen.append(count(len(case.claims), "claim"))
    if case.gang is not None:
        seen.append("its PodGroup")
    return tuple(seen)
