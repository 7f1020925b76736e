"""Plans an MPIJob whose launcher is a Job of Kubernetes: what mpi-operator does, as a pure function.

Kubernetes restarts the launcher, and ends and removes its Job; the job here ends with it. Workers are created, and
created again if they are deleted, but not restarted: what becomes of a failed worker is up to the launcher.
"""

from collections.abc import Iterable

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.kinds import LauncherCreationPolicy, MPIJobV2
from gangline.api.kubeflow.training import (
    CleanPodPolicy,
    ConditionType,
    JobStatus,
    ReplicaStatus,
)
from gangline.api.meta import JSON
from gangline.frameworks.mpi_v2 import objects
from gangline.frameworks.mpi_v2.status import StatusChange, has_ended, observed_change
from gangline.frameworks.replica_counts import WORKER
from gangline.jobs.defaults import is_managed_here
from gangline.jobs.framework import BATCH_JOBS
from gangline.jobs.gangs.podgroup import NO_GANG_EDITS, GangPodEdits
from gangline.jobs.plan.actions import (
    PODS,
    SERVICES,
    Create,
    CreateKeyPair,
    Delete,
    JobAction,
    JobEvent,
    JobPlan,
    Patch,
)
from gangline.jobs.plan.conditions import status_with_condition, status_without_blocked
from gangline.jobs.plan.creation import companion_actions, deletions
from gangline.jobs.plan.finish import companion_deletions
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.render import companion_body
from gangline.jobs.plan.status import finished_status
from gangline.jobs.pods.replicas import Member, all_pods, member_name
from gangline.jobs.site import missing_scheduler_message


def launcher_job_plan(observed: ObservedJob[MPIJobV2], domain: str = "") -> JobPlan:
    """The plan for a job. `domain` is the cluster's, if host names shall be full ones."""
    job = observed.job
    if not is_managed_here(job.spec.run_policy):
        return JobPlan(job.status)
    if observed.problems:
        # As in mpi-operator the job waits to be corrected. Our own definition rejects it when it is written.
        text = "Found validation errors: " + "; ".join(map(str, observed.problems))
        return JobPlan(job.status, events=(JobEvent("ValidationError", text, warning=True),))
    if job.status.finished and job.status.completion_time is not None:
        return _cleanup_plan(observed, finished_status(job))
    change = observed_change(observed)
    if change.status.completion_time is not None:
        return msgspec.structs.replace(_cleanup_plan(observed, change.status), events=change.events)
    if job.spec.run_policy.suspend:
        return _suspended_plan(observed, change)
    return _active_plan(observed, change, domain)


def _active_plan(observed: ObservedJob[MPIJobV2], change: StatusChange, domain: str) -> JobPlan:
    status, events = change.status, (*change.events, *_template_warnings(observed))
    prerequisites = companion_actions(observed, first=True)
    if observed.scheduler_choice.missing_name:
        message = missing_scheduler_message(observed.site, observed.scheduler_choice.missing_name)
        reason = "GangSchedulerMissing"
        status = status_with_condition(status, ConditionType.BLOCKED, reason, message, observed.now)
        events = (*events, JobEvent(reason, message, warning=True))
    preparation = (*deletions(observed, PODS, observed.gang.extra), *_companions(observed))
    if not observed.is_admitted:
        return JobPlan(status, _stages(prerequisites, preparation), events)
    workers = tuple(
        Create(PODS, objects.worker_pod(observed.job, member.index, domain, _gang_edits(observed, member)))
        for member in observed.gang.missing()
        if member.type == WORKER
        and (PODS, member_name(observed.job.metadata.name, member)) not in observed.children.pending_creates
    )
    launcher = _launcher_create(observed) if _may_launch(observed) else ()
    keys = _key_pair(observed) if workers or launcher else ()
    if not (workers or launcher):
        status = status_without_blocked(status)
    return JobPlan(
        status, _stages(prerequisites, (*preparation, *keys), (*workers, *launcher), *_resumption(observed)), events
    )


def _suspended_plan(observed: ObservedJob[MPIJobV2], change: StatusChange) -> JobPlan:
    """Stop the launcher, and delete the workers. The launcher's Job exists from the start, but suspended."""
    launcher = observed.children.launcher
    create = _launcher_create(observed) if launcher is None else ()
    keys = _key_pair(observed) if create else ()
    suspension: tuple[Patch, ...] = ()
    if launcher is not None and not launcher["spec"].get("suspend"):
        suspension = (_launcher_patch(launcher, {"spec": {"suspend": True}}),)
    # Without gang: a suspended job holds no place in a queue.
    companions = (action for action in _companions(observed) if not _is_about_gang(observed, action))
    stages = _stages(
        (*suspension, *_worker_deletions(observed), *companion_deletions(observed)), (*companions, *keys), create
    )
    return JobPlan(change.status, stages, change.events)


def _cleanup_plan(observed: ObservedJob[MPIJobV2], status: JobStatus) -> JobPlan:
    """Delete the workers as the policy says. What is left of the launcher is Kubernetes' to remove."""
    stage: tuple[JobAction, ...] = companion_deletions(observed)
    launcher = observed.children.launcher
    if status.ledger.clear and launcher is not None and not launcher["metadata"].get("deletionTimestamp"):
        # The server rejects one of the job's objects: there is nobody for whom the others could run.
        stage = (*stage, Delete(BATCH_JOBS, launcher["metadata"]["name"], launcher["metadata"]["uid"]))
    policy = observed.job.spec.run_policy.clean_pod_policy
    if status.ledger.clear or policy in (CleanPodPolicy.ALL, CleanPodPolicy.RUNNING):
        stage = (*stage, *_worker_deletions(observed))
        counters = {**status.replica_statuses, WORKER: ReplicaStatus()}
        status = msgspec.structs.replace(status, replica_statuses=counters)
    return JobPlan(status, _stages(stage))


def _worker_deletions(observed: ObservedJob[MPIJobV2]) -> tuple[Delete, ...]:
    """Delete all workers; under policy Running only those that have not ended, whatever the occasion."""
    pods: Iterable[Pod] = all_pods(observed.gang)
    if observed.job.spec.run_policy.clean_pod_policy == CleanPodPolicy.RUNNING:
        pods = [pod for pod in pods if pod.status.phase in (PodPhase.RUNNING, PodPhase.PENDING, "")]
    return deletions(observed, PODS, pods)


def _companions(observed: ObservedJob[MPIJobV2]) -> tuple[JobAction, ...]:
    """Create the service and what else is missing beside the pods, and correct the host lists."""
    job = observed.job
    actions = companion_actions(observed)
    if job.metadata.name in observed.existing_names(SERVICES):
        return actions
    return (*actions, Create(SERVICES, companion_body(job, objects.service(job))))


def _is_about_gang(observed: ObservedJob[MPIJobV2], action: JobAction) -> bool:
    resources = {kind.name for scheduler in observed.site.gang_schedulers for kind in scheduler.kinds}
    return isinstance(action, Create | Patch) and action.resource in resources


def _key_pair(observed: ObservedJob[MPIJobV2]) -> tuple[CreateKeyPair, ...]:
    """The keys are needed when a pod is created. Whether they exist cannot be known: the operator reads no Secrets."""
    body = {"metadata": {"name": objects.secret_name(observed.job), "labels": objects.app_labels(observed.job)}}
    return (CreateKeyPair(companion_body(observed.job, body)),)


def _may_launch(observed: ObservedJob[MPIJobV2]) -> bool:
    if observed.job.spec.launcher_creation_policy != LauncherCreationPolicy.WAIT_FOR_WORKERS_READY:
        return True
    ready = sum(_is_ready(pod) for _, pod in observed.gang.of_type(WORKER))
    return ready == objects.worker_count(observed.job)


def _is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def _launcher_create(observed: ObservedJob[MPIJobV2]) -> tuple[Create, ...]:
    job = observed.job
    name = objects.launcher_name(job)
    if observed.children.launcher is not None or (BATCH_JOBS, name) in observed.children.pending_creates:
        return ()
    edits = _gang_edits(observed, Member(objects.LAUNCHER, 0))
    return (Create(BATCH_JOBS, companion_body(job, objects.launcher_job(job, edits))),)


def _resumption(observed: ObservedJob[MPIJobV2]) -> tuple[tuple[Patch, ...], ...]:
    """Resume a suspended launcher where the job now says that it shall run."""
    launcher = observed.children.launcher
    if launcher is None or not launcher["spec"].get("suspend") or has_ended(launcher):
        return ()
    template = objects.launcher_template(observed.job, _gang_edits(observed, Member(objects.LAUNCHER, 0)))
    changes = objects.scheduling_changes(launcher["spec"]["template"], template)
    stages: tuple[tuple[Patch, ...], ...] = ()
    if changes and (launcher.get("status") or {}).get("startTime"):
        # Kubernetes lets nobody change the template of a Job that has started.
        stages = ((_launcher_patch(launcher, {"status": {"startTime": None}}, subresource="status"),),)
    spec = {"suspend": False, **({"template": changes} if changes else {})}
    return (*stages, (_launcher_patch(launcher, {"spec": spec}),))


def _launcher_patch(launcher: JSON, body: JSON, *, subresource: str = "") -> Patch:
    metadata = launcher["metadata"]
    return Patch(BATCH_JOBS, metadata["name"], body, metadata["uid"], subresource)


def _gang_edits(observed: ObservedJob[MPIJobV2], member: Member) -> GangPodEdits:
    scheduler = observed.scheduler_choice.gang_scheduler
    if scheduler is None:
        return NO_GANG_EDITS
    return scheduler.pod_edits(observed.gang_spec, member, observed.pod_group)


def _template_warnings(observed: ObservedJob[MPIJobV2]) -> tuple[JobEvent, ...]:
    """A warning, when the job is new, about a restart policy in a template: that of the replica is used."""
    if observed.job.status.conditions:
        return ()
    message = "Restart policy in the pod template of {} is overwritten by the one of the replica spec"
    return tuple(
        JobEvent("SetPodTemplateRestartPolicy", message.format(kind), warning=True)
        for kind, spec in observed.job.spec.mpi_replica_specs.items()
        if (spec.template.get("spec") or {}).get("restartPolicy")
    )


def _stages(*stages: tuple[JobAction, ...]) -> tuple[tuple[JobAction, ...], ...]:
    return tuple(stage for stage in stages if stage)
