"""Plans the creation of what a job lacks, companions and services first, then pods, and the deletion of surplus."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.kubeflow.training import RestartLedger, RestartPolicy, RestartScope
from gangline.api.meta import JSON
from gangline.jobs.framework import Companion, Framework, J
from gangline.jobs.gangs.podgroup import NO_GANG_EDITS
from gangline.jobs.plan.actions import PODS, SERVICES, Adopt, Create, Delete, JobAction, JobEvent, Patch
from gangline.jobs.plan.observed import ObservedJob, ResourceName, is_owned_by
from gangline.jobs.plan.recovery.forgiveness import outdated_pods
from gangline.jobs.plan.recovery.in_place import releases
from gangline.jobs.plan.render import companion_body, job_service_body, pod_body, service_body
from gangline.jobs.plan.restarts import restart_scope
from gangline.jobs.plan.rounds import confirmations, early_confirmations, unended_pods
from gangline.jobs.pods.labels import member_labels
from gangline.jobs.pods.replicas import Member, round_number
from gangline.jobs.site import ServiceMode


class ChildActions(msgspec.Struct, frozen=True):
    """The actions on a job's children, when to look again, and whether any child is still missing."""

    stages: tuple[tuple[JobAction, ...], ...]
    events: tuple[JobEvent, ...] = ()
    requeue_after: timedelta | None = None
    incomplete: bool = False
    # Pods of the last round that must be gone before any is created.
    unended: tuple[Pod, ...] = ()


def child_actions(framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger) -> ChildActions:
    """Create the missing children of a job, and delete the surplus ones."""
    prerequisites = _prerequisite_stage(observed)
    if not observed.is_admitted:
        stage = (*surplus_deletions(observed), *companion_actions(observed))
        return ChildActions((*prerequisites, stage), incomplete=True)
    adoptions = _adoptions(observed)
    adopted = {(action.resource, action.name) for action in adoptions}
    preparation = (
        *adoptions,
        *surplus_deletions(observed),
        *deletions(observed, PODS, outdated_pods(observed)),
        *_label_patches(observed),
        *releases(_held_successes(observed)),
        *companion_actions(observed),
        *_service_actions(framework, observed, ledger, adopted),
    )
    missing = [
        member
        for member in observed.gang.missing()
        if (PODS, name := observed.gang.names[member]) not in adopted
        and (PODS, name) not in observed.children.pending_creates
    ]
    creates = any(isinstance(action, Create) for action in preparation)
    incomplete = bool(missing or creates or prerequisites)
    backoff = _remaining_backoff(observed, ledger)
    # A replica is given the addresses of all others. So none starts before every address is known, and none while a
    # service of an earlier round exists: while that is being deleted it still has the port that was lost.
    outdated = any(round_number(service.metadata) < ledger.addresses for service in observed.children.services)
    ready = framework.facts.port is None or (observed.addresses.covers(observed.gang.seats) and not outdated)
    full = len(observed.gang.pods) == len(observed.gang.seats) and not ledger.draining
    unended = () if full else unended_pods(framework, observed, ledger)
    if unended or backoff is not None or not ready or not missing:
        early = early_confirmations(observed, ledger) if missing or unended else ()
        return ChildActions(
            (*prerequisites, preparation, *((early,) if early else ())),
            requeue_after=backoff if missing and not unended else None,
            incomplete=incomplete or bool(unended),
            unended=unended,
        )
    pods = tuple(_pod_create(framework, observed, member, ledger) for member in missing)
    events = _template_warnings(framework, observed, missing)
    confirmed = confirmations(framework, observed, ledger)
    stages = (*prerequisites, preparation, *((confirmed,) if confirmed else ()), pods)
    return ChildActions(stages, events, incomplete=incomplete)


def _remaining_backoff(observed: ObservedJob[J], ledger: RestartLedger) -> timedelta | None:
    if ledger.not_before is None or ledger.not_before <= observed.now:
        return None
    return ledger.not_before - observed.now


def _pod_create(framework: Framework[J], observed: ObservedJob[J], member: Member, ledger: RestartLedger) -> Create:
    job, spec = observed.job, observed.gang_spec.replicas[member.type]
    edits = framework.wiring(job, member, observed.addresses)
    # Where a policy decides about failures, kubelets restart nothing.
    decided = restart_scope(job, framework.run_policy(job)) is RestartScope.JOB or observed.recovery is not None
    scheduler = observed.scheduler_choice.gang_scheduler
    gang_edits = NO_GANG_EDITS
    if scheduler is not None:
        gang_edits = scheduler.pod_edits(observed.gang_spec, member, observed.pod_group)
    body = pod_body(
        job,
        member,
        spec,
        edits,
        observed.addresses,
        framework.facts,
        observed.site,
        number=ledger.round,
        restarts_together=decided and spec.restart_policy != RestartPolicy.NEVER,
        gang_edits=gang_edits,
        avoidance=observed.avoidance,
        in_place=observed.recovery is not None and observed.recovery.in_place and observed.site.restarts_in_place,
    )
    return Create(PODS, body)


def _template_warnings(
    framework: Framework[J], observed: ObservedJob[J], missing: list[Member]
) -> tuple[JobEvent, ...]:
    """Warnings about new pods: they avoid nodes, their restart policy is ignored, their scheduler knows no gangs."""
    replicas = framework.replicas(observed.job)
    templates = {member.type: replicas[member.type].template for member in missing}
    overwritten = [
        f"Restart policy in the pod template of {kind} is overwritten by the one of the replica spec"
        for kind, template in templates.items()
        if (template.get("spec") or {}).get("restartPolicy")
    ]
    avoided = [
        f"New pods {'do' if name in observed.avoidance.excluded else 'should'} not start on node {name}: {reason}"
        for name, reason in observed.avoidance.reasons.items()
    ]
    return (
        *(JobEvent("NodeAvoided", message, warning=True) for message in avoided),
        *(JobEvent("SetPodTemplateRestartPolicy", message, warning=True) for message in overwritten),
        *_scheduler_warnings(observed, templates),
    )


def _scheduler_warnings(observed: ObservedJob[J], templates: Mapping[str, JSON]) -> tuple[JobEvent, ...]:
    """The scheduler that a template names is used, and places the pod without regard to its gang."""
    scheduler = observed.scheduler_choice.gang_scheduler
    if scheduler is None:
        return ()
    events = []
    for kind, template in templates.items():
        name = (template.get("spec") or {}).get("schedulerName")
        if not name:
            continue
        edits = scheduler.pod_edits(observed.gang_spec, Member(kind, 0), observed.pod_group)
        if name != (edits.scheduler_name or name):
            message = (
                f"Another scheduler is specified in the pod template of {kind}: {name} places it, not with its gang"
            )
            events.append(JobEvent("SetPodTemplateSchedulerName", message, warning=True))
    return tuple(events)


def _service_actions(
    framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger, adopted: set[ResourceName]
) -> tuple[JobAction, ...]:
    job_kind, job, members = framework.facts, observed.job, observed.gang.seats
    if job_kind.port is None or not members:
        return ()
    replicas = framework.replicas(job)
    existing = observed.existing_names(SERVICES) | {name for resource, name in adopted if resource == SERVICES}
    if observed.site.services is ServiceMode.PER_JOB:
        body = job_service_body(job, replicas[members[0].type].template, job_kind)
        return (Create(SERVICES, body),) if job.metadata.name not in existing else ()
    # New addresses need new services.
    deletes = tuple(
        Delete(SERVICES, service.metadata.name, service.metadata.uid)
        for service in observed.children.services
        if round_number(service.metadata) < ledger.addresses
        and service.metadata.uid not in observed.children.pending_deletes
    )
    creates = tuple(
        Create(SERVICES, service_body(job, member, replicas[member.type].template, job_kind, ledger.addresses))
        for member in members
        if observed.gang.names[member] not in existing
    )
    return (*deletes, *creates)


def deletions(observed: ObservedJob[J], resource: str, children: Iterable[Pod | Service]) -> tuple[Delete, ...]:
    """Delete those of the children that are not being deleted already."""
    return tuple(
        Delete(resource, child.metadata.name, child.metadata.uid)
        for child in children
        if not observed.is_being_deleted(child)
    )


def surplus_deletions(observed: ObservedJob[J]) -> tuple[Delete, ...]:
    """Delete pods beyond the number of replicas or of an earlier round, and services without a replica."""
    job, gang = observed.job.metadata.name, observed.gang
    names = {*gang.names.values(), job}
    services = (service for service in observed.children.services if service.metadata.name not in names)
    return (*deletions(observed, PODS, (*gang.stale, *gang.extra)), *deletions(observed, SERVICES, services))


def _adoptions(observed: ObservedJob[J]) -> tuple[Adopt, ...]:
    """Adopt objects without an owner that have the job's labels and the name of one of its children."""
    if not observed.children.orphans:
        return ()
    job = observed.job.metadata.name
    names = {(kind, name) for name in observed.gang.names.values() for kind in (PODS, SERVICES)}
    if observed.site.services is ServiceMode.PER_JOB:
        names.add((SERVICES, job))
    return tuple(
        Adopt(resource, orphan.metadata.name, orphan.metadata.uid)
        for resource, orphan in observed.children.orphans
        if (resource, orphan.metadata.name) in names and orphan.metadata.deletion_timestamp is None
    )


def _held_successes(observed: ObservedJob[J]) -> Iterator[Pod]:
    """Pods that wait although their program has succeeded: they do not restart in place, and need not wait."""
    for pod in observed.gang.pods.values():
        if pod.metadata.uid in observed.held and pod.status.phase == PodPhase.SUCCEEDED:
            yield pod


def _label_patches(observed: ObservedJob[J]) -> tuple[JobAction, ...]:
    """Restore the labels of pods that the job owns, by which clients select them."""
    return tuple(
        Patch(PODS, pod.metadata.name, {"metadata": {"labels": labels}}, pod.metadata.uid)
        for member, pod in observed.gang.pods.items()
        if not (labels := member_labels(observed.job, member)).items() <= pod.metadata.labels.items()
        and pod.metadata.deletion_timestamp is None
    )


def _prerequisite_stage(observed: ObservedJob[J]) -> tuple[tuple[JobAction, ...], ...]:
    """A stage of its own for companions to which others refer, if they need any action."""
    stage = companion_actions(observed, first=True)
    return (stage,) if stage else ()


def companion_actions(observed: ObservedJob[J], *, first: bool = False) -> tuple[JobAction, ...]:
    """Create the companions that are missing, and correct the others. `first`: only those marked `first`."""
    actions: list[JobAction] = []
    for companion, body in observed.companions:
        if companion.first != first:
            continue
        create = Create(companion.resource, companion_body(observed.job, companion.body))
        if body is None:
            if (companion.resource, companion.name) not in observed.children.pending_creates:
                actions.append(create)
        elif is_owned_by(body, observed.job.metadata.uid):
            actions.extend(_companion_patches(companion, body))
        elif not companion.anyones:
            # The create fails, and its rejection names the object that is in the way.
            actions.append(create)
    return tuple(actions)


def retained_companion_patches(observed: ObservedJob[J]) -> tuple[Patch, ...]:
    """Correct the companions that stay when the job ends. Missing ones are not created."""
    return tuple(
        patch
        for companion, body in observed.companions
        if not companion.only_active and body is not None and is_owned_by(body, observed.job.metadata.uid)
        for patch in _companion_patches(companion, body)
    )


def _companion_patches(companion: Companion, body: JSON) -> tuple[Patch, ...]:
    changes = {
        part: companion.body[part] for part in companion.parts if not covers(body.get(part), companion.body[part])
    }
    if not changes:
        return ()
    return (Patch(companion.resource, companion.name, changes, body["metadata"].get("uid", "")),)


def covers(actual: Any, desired: Any) -> bool:
    """Whether everything desired is in the actual value; a server may have added fields to it."""
    if isinstance(desired, dict):
        return isinstance(actual, dict) and all(covers(actual.get(name), value) for name, value in desired.items())
    if isinstance(desired, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(desired)
            and all(covers(have, want) for have, want in zip(actual, desired, strict=True))
        )
    return bool(actual == desired)
