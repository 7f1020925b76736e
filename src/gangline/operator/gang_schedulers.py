"""The gang schedulers that an operator uses: named by a flag, and checked against the server."""

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
from gangline.operator.definitions import POLL_INTERVAL, missing_definitions

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
    """A site with the gang schedulers in the flag, separated by commas: the first for all jobs, the others on request.

    As in v1, an unknown name is the one under which scheduler-plugins run. Raises `InputError`.
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if "" in names or len({name.lower() for name in names}) < len(names):
        raise InputError(f'{SCHEDULER_FLAG}: "{text}": write each name once, with a comma between two')
    if NO_GANG_SCHEDULER in [name.lower() for name in names[1:]]:
        raise InputError(
            f'{SCHEDULER_FLAG}: "{text}": write {NO_GANG_SCHEDULER} first, or not at all: jobs may always ask for it'
        )
    first, *others = names or [NO_GANG_SCHEDULER]
    default = None if first.lower() == NO_GANG_SCHEDULER else _gang_scheduler(first, protect=protect)
    return Site(
        gang_scheduler=default, other_gang_schedulers=tuple(_gang_scheduler(name, protect=protect) for name in others)
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
    """The site with Kubernetes' own scheduler in the API version that the server has, if one is served.

    The client's scheme need not know its kinds.
    """
    default = site.gang_scheduler
    if default is not None:
        default = await _with_served_version(client, default)
    others = [await _with_served_version(client, scheduler) for scheduler in site.other_gang_schedulers]
    return msgspec.structs.replace(site, gang_scheduler=default, other_gang_schedulers=tuple(others))


async def _with_served_version(client: Client, scheduler: GangScheduler) -> GangScheduler:
    if isinstance(scheduler, KubernetesWorkloads):
        for version in KNOWN_VERSIONS:
            candidate = scheduler.with_version(version)
            if not await missing_definitions(client, candidate.kinds):
                return candidate
    return scheduler


async def check_with_retry(client: Client, site: Site, clock: Clock) -> None:
    """As `check_installed`, and once more after a pause: definitions are installed one by one, PodGroups last."""
    try:
        await check_installed(client, site)
    except InputError:
        await clock.sleep(POLL_INTERVAL)
        await check_installed(client, site)


async def check_installed(client: Client, site: Site) -> None:
    """Raise `InputError` if the server does not serve a resource of one of the gang schedulers."""
    for scheduler in site.gang_schedulers:
        for kind in await missing_definitions(client, scheduler.kinds):
            remedy = _REMEDIES.get(scheduler.name, "install scheduler-plugins with that scheduler")
            raise InputError(
                f"{SCHEDULER_FLAG}: the server has no {kind.name}, which {scheduler.name} needs: {remedy};"
                " or leave the name out"
            )
