"""Seats without a pod are filled: companions and services first, then pods."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import ROUND_ANNOTATION, RestartLedger, RestartPolicy, RestartScope
from gangline.api.meta import JSON
from gangline.jobs.framework import Companion, Framework, J
from gangline.jobs.gangs.podgroup import NO_GANG_EDITS
from gangline.jobs.plan.actions import PODS, SERVICES, Adopt, Create, Delete, JobAction, JobEvent, Patch
from gangline.jobs.plan.observed import ObservedJob, is_owned_by
from gangline.jobs.plan.restarts import restart_scope
from gangline.jobs.pods.addressing import ServiceMode
from gangline.jobs.pods.render import companion_body, job_service_body, member_labels, pod_body, service_body
from gangline.jobs.pods.replicas import Member, member_name


class ChildActions(msgspec.Struct, frozen=True):
    """What to make, when to look again, and whether anything is still wanting."""

    stages: tuple[tuple[JobAction, ...], ...]
    events: tuple[JobEvent, ...] = ()
    requeue_after: timedelta | None = None
    incomplete: bool = False


def child_actions(framework: Framework[J], seen: ObservedJob[J], ledger: RestartLedger) -> ChildActions:
    """Make what is missing and send away what is too much."""
    if not seen.is_admitted:
        return ChildActions(
            (*_prerequisite_stage(seen), (*surplus_deletions(seen), *companion_actions(seen))),
            incomplete=True,
        )
    adopted = _adoptions(seen)
    spared = {(action.resource, action.name) for action in adopted}
    first = (
        *adopted,
        *surplus_deletions(seen),
        *_label_patches(seen),
        *companion_actions(seen),
        *_service_actions(framework, seen, ledger, spared),
    )
    missing = [
        seat
        for seat in seen.gang.missing()
        if (PODS, name := member_name(seen.job.metadata.name, seat)) not in spared
        and (PODS, name) not in seen.children.pending_creates
    ]
    ahead = _prerequisite_stage(seen)
    wanting = bool(missing or any(isinstance(action, Create) for action in first) or ahead)
    wait = _remaining_backoff(seen, ledger)
    # A member is told where all the others are, so none starts before every address is known, and none is of an
    # earlier round: a service that is being deleted still says the port that was lost.
    outdated = any(_service_round(found) < ledger.addresses for found in seen.children.services)
    ready = framework.facts.port is None or (seen.addresses.covers(seen.gang.seats) and not outdated)
    if wait is not None or not ready or not missing:
        return ChildActions((*ahead, first), requeue_after=wait if missing else None, incomplete=wanting)
    pods = tuple(_pod_create(framework, seen, seat, ledger) for seat in missing)
    return ChildActions((*ahead, first, pods), _template_warnings(framework, seen, missing), incomplete=wanting)


def _remaining_backoff(seen: ObservedJob[J], ledger: RestartLedger) -> timedelta | None:
    if ledger.not_before is None or ledger.not_before <= seen.now:
        return None
    return ledger.not_before - seen.now


def _pod_create(framework: Framework[J], seen: ObservedJob[J], seat: Member, ledger: RestartLedger) -> Create:
    job, spec = seen.job, framework.replicas(seen.job)[seat.type]
    edits = framework.wiring(job, seat, seen.addresses)
    together = restart_scope(job, framework.run_policy(job)) is RestartScope.JOB
    gangs = seen.scheduler_choice.gang_scheduler
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
        marks=gangs.pod_edits(seen.gang_spec, seat, seen.pod_group) if gangs is not None else NO_GANG_EDITS,
    )
    return Create(PODS, body)


def _template_warnings(framework: Framework[J], seen: ObservedJob[J], missing: list[Member]) -> tuple[JobEvent, ...]:
    """A template's own restart policy never counts."""
    replicas = framework.replicas(seen.job)
    templates = {seat.type: replicas[seat.type].template for seat in missing}
    return tuple(
        JobEvent(
            "SetPodTemplateRestartPolicy",
            f"Restart policy in the pod template of {kind} is overwritten by the one of the replica spec",
            warning=True,
        )
        for kind, template in templates.items()
        if (template.get("spec") or {}).get("restartPolicy")
    ) + _scheduler_warnings(seen, templates)


def _scheduler_warnings(seen: ObservedJob[J], templates: Mapping[str, JSON]) -> tuple[JobEvent, ...]:
    """A template's own scheduler is respected, and knows nothing of the gang."""
    gangs = seen.scheduler_choice.gang_scheduler
    if gangs is None:
        return ()
    return tuple(
        JobEvent(
            "SetPodTemplateSchedulerName",
            f"Another scheduler is specified in the pod template of {kind}: {name} places it, not with its gang",
            warning=True,
        )
        for kind, template in templates.items()
        if (name := (template.get("spec") or {}).get("schedulerName"))
        and name != (gangs.pod_edits(seen.gang_spec, Member(kind, 0), seen.pod_group).scheduler_name or name)
    )


def _service_actions(
    framework: Framework[J], seen: ObservedJob[J], ledger: RestartLedger, spared: set[tuple[str, str]]
) -> tuple[JobAction, ...]:
    facts, job = framework.facts, seen.job
    if facts.port is None or not seen.gang.seats:
        return ()
    replicas = framework.replicas(job)
    there = seen.existing_names(SERVICES) | {name for resource, name in spared if resource == SERVICES}
    if seen.site.services is ServiceMode.PER_JOB:
        body = job_service_body(job, replicas[seen.gang.seats[0].type].template, facts)
        return (Create(SERVICES, body),) if job.metadata.name not in there else ()
    # New addresses come with new services.
    outdated = tuple(
        Delete(SERVICES, found.metadata.name, found.metadata.uid)
        for found in seen.children.services
        if _service_round(found) < ledger.addresses and found.metadata.uid not in seen.children.pending_deletes
    )
    made = tuple(
        Create(SERVICES, service_body(job, seat, replicas[seat.type].template, facts, ledger.addresses))
        for seat in seen.gang.seats
        if member_name(job.metadata.name, seat) not in there
    )
    return (*outdated, *made)


def _service_round(service: Service) -> int:
    written = service.metadata.annotations.get(ROUND_ANNOTATION, "0")
    return int(written) if written.isdigit() else 0


def surplus_deletions(seen: ObservedJob[J]) -> tuple[Delete, ...]:
    """Pods beyond the replicas asked for or of an earlier round, and services without a seat."""
    job = seen.job.metadata.name
    wanted = {member_name(job, seat) for seat in seen.gang.seats} | {job}
    pods = ((PODS, pod) for pod in (*seen.gang.stale, *seen.gang.extra))
    services = ((SERVICES, found) for found in seen.children.services if found.metadata.name not in wanted)
    return tuple(
        Delete(resource, found.metadata.name, found.metadata.uid)
        for resource, found in (*pods, *services)
        if found.metadata.deletion_timestamp is None and found.metadata.uid not in seen.children.pending_deletes
    )


def _adoptions(seen: ObservedJob[J]) -> tuple[Adopt, ...]:
    """Objects with our labels and at our names that nobody owns."""
    job = seen.job.metadata.name
    names = {(kind, member_name(job, seat)) for seat in seen.gang.seats for kind in (PODS, SERVICES)}
    if seen.site.services is ServiceMode.PER_JOB:
        names.add((SERVICES, job))
    return tuple(
        Adopt(resource, found.metadata.name, found.metadata.uid)
        for resource, found in seen.children.orphans
        if (resource, found.metadata.name) in names and found.metadata.deletion_timestamp is None
    )


def _label_patches(seen: ObservedJob[J]) -> tuple[JobAction, ...]:
    """Pods that are ours by owner and name, but lost the labels by which others find them."""
    return tuple(
        Patch(PODS, pod.metadata.name, {"metadata": {"labels": wanted}}, pod.metadata.uid)
        for seat, pod in seen.gang.pods.items()
        if not _has_labels(pod, wanted := member_labels(seen.job, seat)) and pod.metadata.deletion_timestamp is None
    )


def _has_labels(pod: Pod, labels: dict[str, str]) -> bool:
    return labels.items() <= pod.metadata.labels.items()


def _prerequisite_stage(seen: ObservedJob[J]) -> tuple[tuple[JobAction, ...], ...]:
    """A stage of its own for companions that others refer to, if they need anything."""
    stage = companion_actions(seen, first=True)
    return (stage,) if stage else ()


def companion_actions(seen: ObservedJob[J], *, first: bool = False) -> tuple[JobAction, ...]:
    """Make the companions that are missing, and put right those that are not."""
    stage: list[JobAction] = []
    for companion, found in seen.companions:
        if companion.first != first:
            continue
        if found is None:
            if (companion.resource, companion.name) not in seen.children.pending_creates:
                stage.append(Create(companion.resource, companion_body(seen.job, companion.body)))
            continue
        if not is_owned_by(found, seen.job.metadata.uid):
            if not companion.anyones:
                # Met by name: the refusal tells whose it is.
                stage.append(Create(companion.resource, companion_body(seen.job, companion.body)))
            continue
        stage.extend(_companion_patches(companion, found))
    return tuple(stage)


def retained_companion_patches(seen: ObservedJob[J]) -> tuple[Patch, ...]:
    """Put right the companions that stay when the job ends. None is made any more."""
    return tuple(
        change
        for companion, found in seen.companions
        if not companion.only_active and found is not None and is_owned_by(found, seen.job.metadata.uid)
        for change in _companion_patches(companion, found)
    )


def _companion_patches(companion: Companion, found: JSON) -> tuple[Patch, ...]:
    changes = {
        part: companion.body[part] for part in companion.parts if not covers(found.get(part), companion.body[part])
    }
    if not changes:
        return ()
    return (Patch(companion.resource, companion.name, changes, found["metadata"].get("uid", "")),)


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything wanted is there; a server may have added to it."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(covers(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(covers(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
