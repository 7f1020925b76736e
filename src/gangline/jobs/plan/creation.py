"""Seats without a pod are filled: companions and services first, then pods."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import ROUND, Ledger, RestartPolicy, RestartScope
from gangline.api.meta import JSON
from gangline.jobs.framework import Companion, Framework, J
from gangline.jobs.gangs.podgroup import UNMARKED
from gangline.jobs.plan.actions import PODS, SERVICES, Action, Adopt, Change, Create, Delete, Note
from gangline.jobs.plan.observed import Observed, owned
from gangline.jobs.plan.restarts import scope
from gangline.jobs.pods.addressing import Services
from gangline.jobs.pods.render import companion_body, member_labels, pod_body, service_body, team_service_body
from gangline.jobs.pods.replicas import Member, seat_name


class Filling(msgspec.Struct, frozen=True):
    """What to make, when to look again, and whether anything is still wanting."""

    stages: tuple[tuple[Action, ...], ...]
    notes: tuple[Note, ...] = ()
    wake_after: timedelta | None = None
    wanting: bool = False


def fill(framework: Framework[J], seen: Observed[J], ledger: Ledger) -> Filling:
    """Make what is missing and send away what is too much."""
    if not seen.admitted:
        return Filling((*_ahead(seen), (*surplus(seen), *companions(seen))), wanting=True)
    adopted = _adopted(seen)
    spared = {(action.resource, action.name) for action in adopted}
    first = (
        *adopted,
        *surplus(seen),
        *_relabelled(seen),
        *companions(seen),
        *_services(framework, seen, ledger, spared),
    )
    missing = [
        seat
        for seat in seen.gang.missing()
        if (PODS, name := seat_name(seen.job.metadata.name, seat)) not in spared
        and (PODS, name) not in seen.children.awaited
    ]
    ahead = _ahead(seen)
    wanting = bool(missing or any(isinstance(action, Create) for action in first) or ahead)
    wait = _wait(seen, ledger)
    # A member is told where all the others are, so none starts before every address is known, and none is of an
    # earlier round: a service that is being deleted still says the port that was lost.
    outdated = any(_number(found) < ledger.addresses for found in seen.children.services)
    ready = framework.facts.port is None or (seen.addresses.covers(seen.gang.seats) and not outdated)
    if wait is not None or not ready or not missing:
        return Filling((*ahead, first), wake_after=wait if missing else None, wanting=wanting)
    pods = tuple(_pod(framework, seen, seat, ledger) for seat in missing)
    return Filling((*ahead, first, pods), _overruled(framework, seen, missing), wanting=wanting)


def _wait(seen: Observed[J], ledger: Ledger) -> timedelta | None:
    if ledger.not_before is None or ledger.not_before <= seen.now:
        return None
    return ledger.not_before - seen.now


def _pod(framework: Framework[J], seen: Observed[J], seat: Member, ledger: Ledger) -> Create:
    job, spec = seen.job, framework.replicas(seen.job)[seat.type]
    edits = framework.wiring(job, seat, seen.addresses)
    together = scope(job, framework.run_policy(job)) is RestartScope.JOB
    gangs = seen.placed_by.gangs
    body = pod_body(
        job,
        seat,
        spec,
        edits,
        seen.addresses,
        framework.facts,
        seen.site,
        number=ledger.round,
        restarts_together=together and spec.restart_policy != RestartPolicy.NEVER,
        marks=gangs.marks(seen.team, seat, seen.group) if gangs is not None else UNMARKED,
    )
    return Create(PODS, body)


def _overruled(framework: Framework[J], seen: Observed[J], missing: list[Member]) -> tuple[Note, ...]:
    """A template's own restart policy never counts."""
    replicas = framework.replicas(seen.job)
    templates = {seat.type: replicas[seat.type].template for seat in missing}
    return tuple(
        Note(
            "SetPodTemplateRestartPolicy",
            f"Restart policy in the pod template of {kind} is overwritten by the one of the replica spec",
            warning=True,
        )
        for kind, template in templates.items()
        if (template.get("spec") or {}).get("restartPolicy")
    ) + _elsewhere(seen, templates)


def _elsewhere(seen: Observed[J], templates: Mapping[str, JSON]) -> tuple[Note, ...]:
    """A template's own scheduler is respected, and knows nothing of the gang."""
    gangs = seen.placed_by.gangs
    if gangs is None:
        return ()
    return tuple(
        Note(
            "SetPodTemplateSchedulerName",
            f"Another scheduler is specified in the pod template of {kind}: {name} places it, not with its gang",
            warning=True,
        )
        for kind, template in templates.items()
        if (name := (template.get("spec") or {}).get("schedulerName"))
        and name != (gangs.marks(seen.team, Member(kind, 0), seen.group).scheduler or name)
    )


def _services(
    framework: Framework[J], seen: Observed[J], ledger: Ledger, spared: set[tuple[str, str]]
) -> tuple[Action, ...]:
    facts, job = framework.facts, seen.job
    if facts.port is None or not seen.gang.seats:
        return ()
    replicas = framework.replicas(job)
    there = seen.there(SERVICES) | {name for resource, name in spared if resource == SERVICES}
    if seen.site.services is Services.PER_JOB:
        body = team_service_body(job, replicas[seen.gang.seats[0].type].template, facts)
        return (Create(SERVICES, body),) if job.metadata.name not in there else ()
    # New addresses come with new services.
    outdated = tuple(
        Delete(SERVICES, found.metadata.name, found.metadata.uid)
        for found in seen.children.services
        if _number(found) < ledger.addresses and found.metadata.uid not in seen.children.ending
    )
    made = tuple(
        Create(SERVICES, service_body(job, seat, replicas[seat.type].template, facts, ledger.addresses))
        for seat in seen.gang.seats
        if seat_name(job.metadata.name, seat) not in there
    )
    return (*outdated, *made)


def _number(service: Service) -> int:
    written = service.metadata.annotations.get(ROUND, "0")
    return int(written) if written.isdigit() else 0


def surplus(seen: Observed[J]) -> tuple[Delete, ...]:
    """Pods beyond the replicas asked for or of an earlier round, and services without a seat."""
    job = seen.job.metadata.name
    wanted = {seat_name(job, seat) for seat in seen.gang.seats} | {job}
    pods = ((PODS, pod) for pod in (*seen.gang.stale, *seen.gang.extra))
    services = ((SERVICES, found) for found in seen.children.services if found.metadata.name not in wanted)
    return tuple(
        Delete(resource, found.metadata.name, found.metadata.uid)
        for resource, found in (*pods, *services)
        if found.metadata.deletion_timestamp is None and found.metadata.uid not in seen.children.ending
    )


def _adopted(seen: Observed[J]) -> tuple[Adopt, ...]:
    """Objects with our labels and at our names that nobody owns."""
    job = seen.job.metadata.name
    names = {(kind, seat_name(job, seat)) for seat in seen.gang.seats for kind in (PODS, SERVICES)}
    if seen.site.services is Services.PER_JOB:
        names.add((SERVICES, job))
    return tuple(
        Adopt(resource, found.metadata.name, found.metadata.uid)
        for resource, found in seen.children.orphans
        if (resource, found.metadata.name) in names and found.metadata.deletion_timestamp is None
    )


def _relabelled(seen: Observed[J]) -> tuple[Action, ...]:
    """Pods that are ours by owner and name, but lost the labels by which others find them."""
    return tuple(
        Change(PODS, pod.metadata.name, {"metadata": {"labels": wanted}}, pod.metadata.uid)
        for seat, pod in seen.gang.pods.items()
        if not _has(pod, wanted := member_labels(seen.job, seat)) and pod.metadata.deletion_timestamp is None
    )


def _has(pod: Pod, labels: dict[str, str]) -> bool:
    return labels.items() <= pod.metadata.labels.items()


def _ahead(seen: Observed[J]) -> tuple[tuple[Action, ...], ...]:
    """A stage of its own for companions that others refer to, if they need anything."""
    stage = companions(seen, first=True)
    return (stage,) if stage else ()


def companions(seen: Observed[J], *, first: bool = False) -> tuple[Action, ...]:
    """Make the companions that are missing, and put right those that are not."""
    stage: list[Action] = []
    for companion, found in seen.companions:
        if companion.first != first:
            continue
        if found is None:
            if (companion.resource, companion.name) not in seen.children.awaited:
                stage.append(Create(companion.resource, companion_body(seen.job, companion.body)))
            continue
        if not owned(found, seen.job.metadata.uid):
            if not companion.anyones:
                # Met by name: the refusal tells whose it is.
                stage.append(Create(companion.resource, companion_body(seen.job, companion.body)))
            continue
        stage.extend(_put_right(companion, found))
    return tuple(stage)


def left_behind(seen: Observed[J]) -> tuple[Change, ...]:
    """Put right the companions that stay when the job ends. None is made any more."""
    return tuple(
        change
        for companion, found in seen.companions
        if not companion.only_active and found is not None and owned(found, seen.job.metadata.uid)
        for change in _put_right(companion, found)
    )


def _put_right(companion: Companion, found: JSON) -> tuple[Change, ...]:
    changes = {
        part: companion.body[part]
        for part in companion.parts
        if not covers(found.get(part), companion.body[part])
    }
    if not changes:
        return ()
    return (Change(companion.resource, companion.name, changes, found["metadata"].get("uid", "")),)


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything wanted is there; a server may have added to it."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            covers(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(covers(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
