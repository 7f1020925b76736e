"""Which gang schedulers an operator uses: named by a flag, found on the server."""

import msgspec

from gangline.api.scheduling import SCHEDULER_NAME
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.gangs.kubernetes import KNOWN_VERSIONS, KubernetesWorkloads
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.site import NO_GANG_SCHEDULER, Site
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.operator.definitions import POLL_INTERVAL

SCHEDULER_FLAG = "--gang-scheduler-name"

_REMEDIES = {
    SCHEDULER_NAME: "gangline crds | kubectl apply -f -, and run gangline scheduler",
    Volcano.name: "install Volcano",
    KubernetesWorkloads.name: (
        "it takes Kubernetes 1.36 with feature gates GenericWorkload and GangScheduling and the API"
        " scheduling.k8s.io/v1alpha2 switched on, or 1.37 with GenericWorkload and scheduling.k8s.io/v1beta1"
    ),
}


def site_from_flag(text: str, *, protect: bool = True) -> Site:
    """A site with the gang schedulers that the flag names, by commas: the first for all jobs, the others on request.

    As v1 reads it, a name that is none of ours is the one under which scheduler-plugins run. Raises `InputError`.
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if "" in names or len({name.lower() for name in names}) < len(names):
        raise InputError(f'{SCHEDULER_FLAG}: "{text}": write each name once, with a comma between two')
    if NO_GANG_SCHEDULER in [name.lower() for name in names[1:]]:
        raise InputError(
            f'{SCHEDULER_FLAG}: "{text}": write {NO_GANG_SCHEDULER} first, or not at all: jobs may always ask for it'
        )
    first, *more = names or [NO_GANG_SCHEDULER]
    default = None if first.lower() == NO_GANG_SCHEDULER else _gang_scheduler(first, protect=protect)
    return Site(
        gang_scheduler=default,
        other_gang_schedulers=tuple(_gang_scheduler(name, protect=protect) for name in more),
    )


def _gang_scheduler(name: str, *, protect: bool) -> GangScheduler:
    match name.lower():
        case GanglineScheduler.name:
            return GanglineScheduler(protect=protect)
        case Volcano.name:
            return Volcano()
        case KubernetesWorkloads.name:
            return KubernetesWorkloads(protect=protect)
    return SchedulerPlugins(name)


async def with_served_versions(client: Client, site: Site) -> Site:
    """The site with Kubernetes' own scheduler in the version that the server has. The client needs no scheme for it."""
    if not any(isinstance(gangs, KubernetesWorkloads) for gangs in site.gang_schedulers):
        return site
    found = (
        site.gang_scheduler
        if not isinstance(site.gang_scheduler, KubernetesWorkloads)
        else await _with_served_version(client, site.gang_scheduler)
    )
    more = [
        await _with_served_version(client, each) if isinstance(each, KubernetesWorkloads) else each
        for each in site.other_gang_schedulers
    ]
    return msgspec.structs.replace(site, gang_scheduler=found, other_gang_schedulers=tuple(more))


async def _with_served_version(client: Client, gangs: KubernetesWorkloads) -> KubernetesWorkloads:
    for version in KNOWN_VERSIONS:
        known = gangs.with_version(version)
        if all([await is_served(client, kind) for kind in known.kinds]):
            return known
    return gangs


async def check_with_retry(client: Client, site: Site, clock: Clock) -> None:
    """As `check_installed`, with a second look: definitions that are just being installed come one by one, PodGroups last."""
    try:
        await check_installed(client, site)
    except InputError:
        await clock.sleep(POLL_INTERVAL)
        await check_installed(client, site)


async def check_installed(client: Client, site: Site) -> None:
    """Raises `InputError` for one that the server lacks."""
    for gangs in site.gang_schedulers:
        for kind in gangs.kinds:
            if not await is_served(client, kind):
                remedy = _REMEDIES.get(gangs.name, "install scheduler-plugins with that scheduler")
                raise InputError(
                    f"{SCHEDULER_FLAG}: the server has no {kind.name}, which {gangs.name} needs: {remedy}; or leave the name out"
                )
