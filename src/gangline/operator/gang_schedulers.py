"""Which gang schedulers an operator uses: named by a flag, found on the server."""

import msgspec

from gangline.api.scheduling import SCHEDULER
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.jobs.gangs.choice import NONE
from gangline.jobs.gangs.gangline import Gangline
from gangline.jobs.gangs.kubernetes import VERSIONS, Kubernetes
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.pods.addressing import Site
from gangline.kube.client import Client
from gangline.kube.discovery import served
from gangline.operator.definitions import LOOK

FLAG = "--gang-scheduler-name"

_REMEDIES = {
    SCHEDULER: "gangline crds | kubectl apply -f -, and run gangline scheduler",
    Volcano.name: "install Volcano",
    Kubernetes.name: (
        "it takes Kubernetes 1.36 with feature gates GenericWorkload and GangScheduling and the API"
        " scheduling.k8s.io/v1alpha2 switched on, or 1.37 with GenericWorkload and scheduling.k8s.io/v1beta1"
    ),
}


def named(text: str, *, protect: bool = True) -> Site:
    """A site with the gang schedulers that the flag names, by commas: the first for all jobs, the others on request.

    As v1 reads it, a name that is none of ours is the one under which scheduler-plugins run. Raises `InputError`.
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if "" in names or len({name.lower() for name in names}) < len(names):
        raise InputError(f'{FLAG}: "{text}": write each name once, with a comma between two')
    if NONE in [name.lower() for name in names[1:]]:
        raise InputError(f'{FLAG}: "{text}": write {NONE} first, or not at all: jobs may always ask for it')
    first, *more = names or [NONE]
    default = None if first.lower() == NONE else _scheduler(first, protect=protect)
    return Site(gangs=default, more_gangs=tuple(_scheduler(name, protect=protect) for name in more))


def _scheduler(name: str, *, protect: bool) -> GangScheduler:
    match name.lower():
        case Gangline.name:
            return Gangline(protect=protect)
        case Volcano.name:
            return Volcano()
        case Kubernetes.name:
            return Kubernetes(protect=protect)
    return SchedulerPlugins(name)


async def discovered(client: Client, site: Site) -> Site:
    """The site with Kubernetes' own scheduler in the version that the server has. The client needs no scheme for it."""
    if not any(isinstance(gangs, Kubernetes) for gangs in site.offered):
        return site
    found = site.gangs if not isinstance(site.gangs, Kubernetes) else await _served(client, site.gangs)
    more = [await _served(client, each) if isinstance(each, Kubernetes) else each for each in site.more_gangs]
    return msgspec.structs.replace(site, gangs=found, more_gangs=tuple(more))


async def _served(client: Client, gangs: Kubernetes) -> Kubernetes:
    for version in VERSIONS:
        known = gangs.speaking(version)
        if all([await served(client, kind) for kind in known.kinds]):
            return known
    return gangs


async def installed(client: Client, site: Site, clock: Clock) -> None:
    """As `check`, with a second look: definitions that are just being installed come one by one, PodGroups last."""
    try:
        await check(client, site)
    except InputError:
        await clock.sleep(LOOK)
        await check(client, site)


async def check(client: Client, site: Site) -> None:
    """Raises `InputError` for one that the server lacks."""
    for gangs in site.offered:
        for kind in gangs.kinds:
            if not await served(client, kind):
                remedy = _REMEDIES.get(gangs.name, "install scheduler-plugins with that scheduler")
                raise InputError(
                    f"{FLAG}: the server has no {kind.name}, which {gangs.name} needs: {remedy}; or leave the name out"
                )
