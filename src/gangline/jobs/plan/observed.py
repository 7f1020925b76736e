"""Everything a decision may depend on, at one moment."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Generic

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import SchedulingPolicy
from gangline.api.meta import JSON
from gangline.api.scheduling import PodGroupState
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Addresses, Companion, Elastic, Framework, J, NeedsCompanions, Problem
from gangline.jobs.gangs.choice import SchedulerChoice, choose_scheduler
from gangline.jobs.gangs.podgroup import GangScheduler, GangSpec, ReportsGangState, pod_group_resource
from gangline.jobs.plan.actions import PODS
from gangline.jobs.pods.addressing import Site, member_addresses
from gangline.jobs.pods.render import port_number
from gangline.jobs.pods.replicas import Gang

ResourceName = tuple[str, str]
"""Resource and name of an object in the job's namespace."""
ObjectLookup = Callable[[str, str], JSON | None]
"""Gives the object of a resource and name in the job's namespace, if the cache has one."""


class JobChildren(msgspec.Struct, frozen=True):
    """What the caches hold of one job."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    # Objects with the job's labels and no owner.
    orphans: tuple[tuple[str, Pod | Service], ...] = ()
    # Made and ended by us, and not shown by the cache yet.
    pending_creates: frozenset[ResourceName] = frozenset()
    pending_deletes: frozenset[str] = frozenset()
    # The end of failed pods' logs, by uid, where they could be had.
    log_tails: Mapping[str, tuple[str, ...]] = {}


class ObservedJob(msgspec.Struct, Generic[J], frozen=True):
    """A job, defaulted; its children, seated; where its members are found; what it needs besides; and when."""

    job: J
    children: JobChildren
    # Why it cannot run, if it cannot; the rest is then as good as it gets.
    problems: tuple[Problem, ...]
    gang: Gang
    addresses: Addresses
    # Each with the object of that name, whoever owns it, if there is one.
    companions: tuple[tuple[Companion, JSON | None], ...]
    now: datetime
    site: Site
    # Who places its pods, and what that one is told of them.
    scheduler_choice: SchedulerChoice
    gang_spec: GangSpec
    # The PodGroup there is, and how its gang is doing, where its scheduler says so.
    pod_group: JSON | None
    gang_state: PodGroupState | None

    @classmethod
    def of(
        cls,
        framework: Framework[J],
        job: J,
        now: datetime,
        children: JobChildren = JobChildren(),  # noqa: B008 - frozen
        site: Site = Site(),  # noqa: B008 - frozen
        find: ObjectLookup = lambda resource, name: None,
    ) -> "ObservedJob[J]":
        job = framework.default(job)
        replicas, facts = framework.replicas(job), framework.facts
        wrong = problems(framework, job)
        gang = Gang.of(job.metadata.name, replicas, children.pods, job.status.ledger.round)
        policy = framework.run_policy(job).scheduling_policy
        placed_by = choose_scheduler(site, job, policy=policy is not None)
        fewest = framework.min_members(job) if not wrong and isinstance(framework, Elastic) else None
        team = GangSpec(job, replicas, policy or SchedulingPolicy(), fewest, _succeeded_members(gang))
        gangs = placed_by.gang_scheduler
        group = find(pod_group_resource(gangs), job.metadata.name) if gangs is not None and not wrong else None
        ports = {kind: port_number(spec.template, facts) for kind, spec in replicas.items()}
        return cls(
            job=job,
            children=children,
            gang=gang,
            addresses=member_addresses(site, job, ports, replicas, children.services, facts),
            problems=wrong,
            companions=(
                ()
                if wrong
                else (
                    *(_pod_group_companions(gangs, team, group, find) if gangs is not None else ()),
                    *(
                        (found, find(found.resource, found.name))
                        for found in _framework_companions(framework, job, gang)
                    ),
                )
            ),
            now=now,
            site=site,
            scheduler_choice=placed_by,
            gang_spec=team,
            pod_group=group,
            gang_state=_pod_group_state(gangs, group, job.metadata.uid),
        )

    @property
    def is_admitted(self) -> bool:
        """Whether pods may be made: whoever places whole gangs may want to be asked first."""
        gangs = self.scheduler_choice.gang_scheduler
        if gangs is None:
            return not self.scheduler_choice.missing_name
        return gangs.admits(self.pod_group)

    def existing_names(self, resource: str) -> set[str]:
        """Names of the pods or services that are there, or will be as soon as the cache has caught up."""
        found = self.children.pods if resource == PODS else self.children.services
        names = {child.metadata.name for child in found}
        return names | {name for kind, name in self.children.pending_creates if kind == resource}


def is_owned_by(found: JSON, uid: str) -> bool:
    """Whether an object is the job's of that uid."""
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or [])


def _succeeded_members(gang: Gang) -> int:
    """0 where it is of no interest: nobody is told of every member that ends while no other waits for a place."""
    ended = sum(counts.succeeded for counts in gang.counts.values())
    placed = sum(bool(pod.spec.node_name) for pod in gang.pods.values()) if ended else 0
    return ended if placed < len(gang.seats) else 0


def _pod_group_companions(
    gangs: GangScheduler, team: GangSpec, group: JSON | None, find: ObjectLookup
) -> tuple[tuple[Companion, JSON | None], ...]:
    return tuple((each, find(each.resource, each.name)) for each in gangs.group_companions(team, group))


def _pod_group_state(gangs: object, group: JSON | None, uid: str) -> PodGroupState | None:
    if group is None or not is_owned_by(group, uid) or not isinstance(gangs, ReportsGangState):
        return None
    return gangs.gang_state(group)


def _framework_companions(framework: Framework[J], job: J, gang: Gang) -> tuple[Companion, ...]:
    return framework.companions(job, gang) if isinstance(framework, NeedsCompanions) else ()
