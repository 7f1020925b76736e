"""Everything that a plan may depend on, at one moment."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Generic

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import SchedulingPolicy, TrainingJob
from gangline.api.meta import JSON
from gangline.api.scheduling import PodGroupState
from gangline.jobs.defaults import problems
from gangline.jobs.framework import (
    Addresses,
    Companion,
    CreatesInSteps,
    Elastic,
    Framework,
    J,
    NeedsCompanions,
    Problem,
)
from gangline.jobs.gangs.podgroup import GangSpec, ReportsGangState, pod_group_resource
from gangline.jobs.plan.actions import PODS
from gangline.jobs.plan.addressing import member_addresses
from gangline.jobs.plan.failures.records import LogTails
from gangline.jobs.plan.recovery.affinity import NO_AVOIDANCE, NodeAvoidance
from gangline.jobs.plan.recovery.decision import FailureCause, excluded_nodes
from gangline.jobs.plan.recovery.memory import with_raised_memory
from gangline.jobs.plan.recovery.policy import RecoveryPolicy, parse_recovery
from gangline.jobs.plan.render import port_number
from gangline.jobs.plan.stall import HangVerdict, Stall
from gangline.jobs.pods.held_pods import judged_pods
from gangline.jobs.pods.replicas import Gang
from gangline.jobs.site import SchedulerChoice, Site, choose_scheduler

ResourceName = tuple[str, str]
"""Resource and name of an object in the job's namespace."""
ObjectLookup = Callable[[str, str], JSON | None]
"""Returns the object of a resource and name in the job's namespace, if the cache has it."""


class JobChildren(msgspec.Struct, frozen=True):
    """What the caches hold of one job."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    # Objects with the job's labels and without an owner, by resource.
    orphans: tuple[tuple[str, Pod | Service], ...] = ()
    # Objects that we created or deleted, which the cache does not show yet.
    pending_creates: frozenset[ResourceName] = frozenset()
    pending_deletes: frozenset[str] = frozenset()
    # The last log lines of failed pods by uid, where they could be read.
    log_tails: LogTails = {}
    # The cause of the first of these failures, where the job has a recovery policy and somebody has diagnosed it.
    cause: FailureCause | None = None
    # The Job of Kubernetes that is the job's launcher, if it has one, and the pods of that Job.
    launcher: JSON | None = None
    launched: tuple[Pod, ...] = ()
    # The last states of pods that are gone since the job ended: its first failure may have been one of theirs.
    departed: tuple[Pod, ...] = ()


class ObservedJob(msgspec.Struct, Generic[J], frozen=True):
    """A job with its defaults, its children, and the time."""

    job: J
    children: JobChildren
    # Why the job cannot run. If there are any, the fields below may be incomplete.
    problems: tuple[Problem, ...]
    gang: Gang
    addresses: Addresses
    # Each with the object of that name, if there is one, even if the job does not own it.
    companions: tuple[tuple[Companion, JSON | None], ...]
    now: datetime
    site: Site
    # The gang scheduler, and what it must know about the gang.
    scheduler_choice: SchedulerChoice
    gang_spec: GangSpec
    # The PodGroup that exists, and the state of the gang if its scheduler reports one.
    pod_group: JSON | None
    gang_state: PodGroupState | None
    # What follows from which failure; None: restartPolicy decides.
    recovery: RecoveryPolicy | None = None
    # The nodes that new pods keep away from.
    avoidance: NodeAvoidance = NO_AVOIDANCE
    # What the hang watcher says: that the job is stalled, or why it is not any more; neither: it has no opinion.
    stall: Stall | None = None
    stall_end: str = ""
    # The uids of pods that are judged as ended, and wait for the decision whether they restart in place.
    held: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        framework: Framework[J],
        job: J,
        now: datetime,
        children: JobChildren = JobChildren(),  # noqa: B008 - frozen
        site: Site = Site(),  # noqa: B008 - frozen
        find: ObjectLookup = lambda resource, name: None,
        bad_nodes: NodeAvoidance = NO_AVOIDANCE,
        verdict: HangVerdict = HangVerdict(),  # noqa: B008 - frozen
    ) -> "ObservedJob[J]":
        """Apply the defaults, assign pods to replicas, and look up the companions of the job.

        `bad_nodes` are avoided by all jobs with a recovery policy.
        """
        job = framework.default(job)
        replicas, job_kind = framework.replicas(job), framework.facts
        recovery, _ = parse_recovery(framework.run_policy(job).recovery)
        if recovery is not None:
            replicas = with_raised_memory(replicas, job.status.recovery, job_kind)
        invalid = problems(framework, job)
        pods, held = judged_pods(children.pods)
        if held:
            children = msgspec.structs.replace(children, pods=pods)
        gang = Gang.of(job.metadata.name, replicas, children.pods, job.status.ledger.round)
        policy = framework.run_policy(job).scheduling_policy
        choice = choose_scheduler(site, job, policy=policy is not None)
        min_members = framework.min_members(job) if not invalid and isinstance(framework, Elastic) else None
        gang_policy = _gang_policy(framework, job, policy or SchedulingPolicy())
        spec = GangSpec(job, replicas, gang_policy, min_members, _succeeded_members(gang))
        scheduler = choice.gang_scheduler
        pod_group, companions = None, list[Companion]()
        if not invalid and scheduler is not None:
            pod_group = find(pod_group_resource(scheduler), job.metadata.name)
            companions.extend(scheduler.group_companions(spec, pod_group))
        if not invalid and isinstance(framework, NeedsCompanions):
            companions.extend(framework.companions(job, gang))
        ports = {kind: port_number(replica_spec.template, job_kind) for kind, replica_spec in replicas.items()}
        return cls(
            job=job,
            children=children,
            gang=gang,
            addresses=member_addresses(site, job, ports, gang.names, children.services, job_kind),
            problems=invalid,
            companions=_with_existing(companions, find),
            now=now,
            site=site,
            scheduler_choice=choice,
            gang_spec=spec,
            pod_group=pod_group,
            gang_state=_pod_group_state(scheduler, pod_group, job.metadata.uid),
            recovery=recovery,
            avoidance=_avoidance(job, bad_nodes, now, site) if recovery is not None else NO_AVOIDANCE,
            stall=verdict.stall,
            stall_end=verdict.end,
            held=held,
        )

    @property
    def is_admitted(self) -> bool:
        """Whether pods may be created: some gang schedulers admit a PodGroup first."""
        scheduler = self.scheduler_choice.gang_scheduler
        if scheduler is None:
            return not self.scheduler_choice.missing_name
        return scheduler.admits(self.pod_group)

    def existing_names(self, resource: str) -> set[str]:
        """Names of the pods or services that exist, with those that the cache does not show yet."""
        children: Iterable[Pod | Service] = self.children.pods if resource == PODS else self.children.services
        names = {child.metadata.name for child in children}
        return names | {name for kind, name in self.children.pending_creates if kind == resource}

    def is_being_deleted(self, child: Pod | Service) -> bool:
        """Whether a child is terminating, or we deleted it and the cache does not show that yet."""
        metadata = child.metadata
        return metadata.deletion_timestamp is not None or metadata.uid in self.children.pending_deletes


def is_owned_by(body: JSON, uid: str) -> bool:
    """Whether one of the owners of an object has that uid."""
    return any(owner.get("uid") == uid for owner in body["metadata"].get("ownerReferences") or [])


def _avoidance(job: TrainingJob, bad_nodes: NodeAvoidance, now: datetime, site: Site) -> NodeAvoidance:
    """The nodes that new pods of a job keep away from: those on which it failed, and bad nodes."""
    if site.shared_host:
        return NO_AVOIDANCE
    own = [node.name for node in excluded_nodes(job.status.recovery, now)]
    excluded = tuple(dict.fromkeys([*own, *bad_nodes.excluded]))
    disliked = tuple(name for name in bad_nodes.disliked if name not in excluded)
    return NodeAvoidance(
        excluded, disliked, {name: reason for name, reason in bad_nodes.reasons.items() if name not in own}
    )


def _gang_policy(framework: Framework[J], job: J, policy: SchedulingPolicy) -> SchedulingPolicy:
    """The policy, with the number of replicas that are created at first if it names none and not all are."""
    first = framework.first_members(job) if isinstance(framework, CreatesInSteps) else None
    if first is None or policy.min_available is not None:
        return policy
    return msgspec.structs.replace(policy, min_available=first)


def _succeeded_members(gang: Gang) -> int:
    """Succeeded replicas, or 0 when all others are placed, so that the PodGroup is not patched at every completion."""
    succeeded = sum(counts.succeeded for counts in gang.counts.values())
    placed = sum(bool(pod.spec.node_name) for pod in gang.pods.values()) if succeeded else 0
    return succeeded if placed < len(gang.seats) else 0


def _with_existing(companions: Iterable[Companion], find: ObjectLookup) -> tuple[tuple[Companion, JSON | None], ...]:
    return tuple((companion, find(companion.resource, companion.name)) for companion in companions)


def _pod_group_state(scheduler: object, pod_group: JSON | None, uid: str) -> PodGroupState | None:
    if pod_group is None or not is_owned_by(pod_group, uid) or not isinstance(scheduler, ReportsGangState):
        return None
    return scheduler.gang_state(pod_group)
