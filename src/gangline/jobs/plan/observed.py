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
from gangline.jobs.framework import Addresses, Companion, Framework, J, NeedsCompanions, Problem, Shrinks
from gangline.jobs.gangs.choice import Choice, choice
from gangline.jobs.gangs.podgroup import GangScheduler, Team, TellsState, groups_of
from gangline.jobs.plan.actions import PODS
from gangline.jobs.pods.addressing import Site, addresses
from gangline.jobs.pods.render import port_number
from gangline.jobs.pods.replicas import Gang

Name = tuple[str, str]
"""Resource and name of an object in the job's namespace."""
Find = Callable[[str, str], JSON | None]
"""Gives the object of a resource and name in the job's namespace, if the cache has one."""


class Children(msgspec.Struct, frozen=True):
    """What the caches hold of one job."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    # Objects with the job's labels and no owner.
    orphans: tuple[tuple[str, Pod | Service], ...] = ()
    # Made and ended by us, and not shown by the cache yet.
    awaited: frozenset[Name] = frozenset()
    ending: frozenset[str] = frozenset()
    # The end of failed pods' logs, by uid, where they could be had.
    logs: Mapping[str, tuple[str, ...]] = {}


class Observed(msgspec.Struct, Generic[J], frozen=True):
    """A job, defaulted; its children, seated; where its members are found; what it needs besides; and when."""

    job: J
    children: Children
    # Why it cannot run, if it cannot; the rest is then as good as it gets.
    problems: tuple[Problem, ...]
    gang: Gang
    addresses: Addresses
    # Each with the object of that name, whoever owns it, if there is one.
    companions: tuple[tuple[Companion, JSON | None], ...]
    now: datetime
    site: Site
    # Who places its pods, and what that one is told of them.
    placed_by: Choice
    team: Team
    # The PodGroup there is, and how its gang is doing, where its scheduler says so.
    group: JSON | None
    gang_state: PodGroupState | None

    @classmethod
    def of(
        cls,
        framework: Framework[J],
        job: J,
        now: datetime,
        children: Children = Children(),  # noqa: B008 - frozen
        site: Site = Site(),  # noqa: B008 - frozen
        find: Find = lambda resource, name: None,
    ) -> "Observed[J]":
        job = framework.default(job)
        replicas, facts = framework.replicas(job), framework.facts
        wrong = problems(framework, job)
        gang = Gang.of(job.metadata.name, replicas, children.pods, job.status.ledger.round)
        policy = framework.run_policy(job).scheduling_policy
        placed_by = choice(site, job, policy=policy is not None)
        fewest = framework.fewest(job) if not wrong and isinstance(framework, Shrinks) else None
        team = Team(job, replicas, policy or SchedulingPolicy(), fewest, _ended(gang))
        gangs = placed_by.gangs
        group = find(groups_of(gangs), job.metadata.name) if gangs is not None and not wrong else None
        ports = {kind: port_number(spec.template, facts) for kind, spec in replicas.items()}
        return cls(
            job=job,
            children=children,
            gang=gang,
            addresses=addresses(site, job, ports, replicas, children.services, facts),
            problems=wrong,
            companions=(
                ()
                if wrong
                else (
                    *(_grouped(gangs, team, group, find) if gangs is not None else ()),
                    *(
                        (found, find(found.resource, found.name))
                        for found in _companions(framework, job, gang)
                    ),
                )
            ),
            now=now,
            site=site,
            placed_by=placed_by,
            team=team,
            group=group,
            gang_state=_state(gangs, group, job.metadata.uid),
        )

    @property
    def admitted(self) -> bool:
        """Whether pods may be made: whoever places whole gangs may want to be asked first."""
        gangs = self.placed_by.gangs
        if gangs is None:
            return not self.placed_by.missing
        return gangs.admits(self.group)

    def there(self, resource: str) -> set[str]:
        """Names of the pods or services that are there, or will be as soon as the cache has caught up."""
        found = self.children.pods if resource == PODS else self.children.services
        names = {child.metadata.name for child in found}
        return names | {name for kind, name in self.children.awaited if kind == resource}


def owned(found: JSON, uid: str) -> bool:
    """Whether an object is the job's of that uid."""
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or [])


def _ended(gang: Gang) -> int:
    """0 where it is of no interest: nobody is told of every member that ends while no other waits for a place."""
    ended = sum(counts.succeeded for counts in gang.counts.values())
    placed = sum(bool(pod.spec.node_name) for pod in gang.pods.values()) if ended else 0
    return ended if placed < len(gang.seats) else 0


def _grouped(
    gangs: GangScheduler, team: Team, group: JSON | None, find: Find
) -> tuple[tuple[Companion, JSON | None], ...]:
    return tuple((each, find(each.resource, each.name)) for each in gangs.groups(team, group))


def _state(gangs: object, group: JSON | None, uid: str) -> PodGroupState | None:
    if group is None or not owned(group, uid) or not isinstance(gangs, TellsState):
        return None
    return gangs.state(group)


def _companions(framework: Framework[J], job: J, gang: Gang) -> tuple[Companion, ...]:
    return framework.companions(job, gang) if isinstance(framework, NeedsCompanions) else ()
