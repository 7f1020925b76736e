"""What our operator would do with the jobs that another one left: its own plan, computed and not carried out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import JOB_NAME, ConditionType, JobStatus
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock
from gangline.jobs.framework import Framework
from gangline.jobs.observer import ORPHAN_INDEX, OWNER_INDEX, JobCaches, Observer, orphan_keys, owner_uid
from gangline.jobs.plan.actions import Create, Delete, DeleteJob, JobPlan
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, NotFound
from gangline.operator.engine import companion_resources, enabled_frameworks, scheme_of
from gangline.operator.settings import OperatorSettings
from gangline.runtime.cache import Cache
from gangline.runtime.expectations import Expectations


class JobEffect(NamedTuple):
    """What becomes of a job; an empty text: it goes on as it is."""

    kind: str
    key: Key
    text: str = ""


class Rehearsal(NamedTuple):
    """All jobs, with what becomes of each, and the pods that they have now, by uid."""

    effects: tuple[JobEffect, ...] = ()
    pods: frozenset[str] = frozenset()
    # Jobs that our types cannot read, by name, with why.
    unreadable: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[JobEffect, ...]:
        """The jobs that do not go on as they are."""
        return tuple(effect for effect in self.effects if effect.text)


async def rehearse(client: Client, settings: OperatorSettings, clock: Clock) -> Rehearsal:
    """Read all jobs and their objects, and compute what our operator would do first. Changes nothing."""
    frameworks, site = enabled_frameworks(settings), settings.site
    scheme = scheme_of(frameworks, site.gang_schedulers)
    client = Client(client.transport, scheme=scheme, options=client.options)
    effects: list[JobEffect] = []
    unreadable: list[str] = []
    pod_uids: set[str] = set()
    for namespace in settings.namespaces or ("",):
        pods, services = await _children(client, Pod, namespace), await _children(client, Service, namespace)
        pod_uids |= {pod.metadata.uid for pod in pods}
        for framework in frameworks:
            jobs: Cache[Any] = Cache()
            unread = await _fill(client, framework.facts.model, Selector(namespace), jobs)
            unreadable += [f"{framework.facts.kind} {name}" for name in unread]
            companions = await _companions(client, framework, site, namespace) if len(jobs) else {}
            caches = JobCaches(jobs, pods, services, companions)
            observer = Observer(framework, caches, Expectations(clock), site, clock)
            effects += [_effect(framework, observer, job.metadata.key) for job in jobs]
    return Rehearsal(tuple(effects), frozenset(pod_uids), tuple(unreadable))


async def _children(client: Client, kind: type[Any], namespace: str) -> Cache[Any]:
    cache: Cache[Any] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
    await _fill(client, kind, Selector(namespace, JOB_NAME), cache)
    return cache


async def _companions(client: Client, framework: Framework[Any], site: Site, namespace: str) -> dict[str, Cache[JSON]]:
    caches: dict[str, Cache[JSON]] = {}
    for name in companion_resources(framework, site):
        caches[name] = Cache()
        await _fill(client, client.unstructured(client.scheme.find(name)), Selector(namespace), caches[name])
    return caches


async def _fill(client: Client, kind: Any, selector: Selector, cache: Cache[Any]) -> list[str]:
    """Put all objects into a cache. Returns those that cannot be read. Kinds that are not there have none."""
    unreadable: list[str] = []
    try:
        async for page in client.pages(kind, selector):
            for item in page.items:
                cache.put(item)
            unreadable += [f"{entry.key}: {entry.problem}" for entry in page.unreadable]
    except (Forbidden, NotFound):
        return []
    return unreadable


def _effect(framework: Framework[Any], observer: Observer[Any], key: Key) -> JobEffect:
    observed = observer(key)
    if observed is None:
        return JobEffect(framework.facts.kind, key, "is being deleted")
    plan = reconcile_plan(framework, observed)
    return JobEffect(framework.facts.kind, key, plan_text(observed.job.status, plan))


def plan_text(status: JobStatus, plan: JobPlan) -> str:
    """What a plan does to a job, in a few words; empty if it only writes what it counts."""
    actions = [action for stage in (plan.before_status, *plan.stages) for action in stage]
    texts = []
    if not status.holds(ConditionType.FAILED) and plan.status.holds(ConditionType.FAILED):
        texts.append(f"becomes Failed: {_message(plan.status, ConditionType.FAILED)}")
    elif not status.holds(ConditionType.SUCCEEDED) and plan.status.holds(ConditionType.SUCCEEDED):
        texts.append("becomes Succeeded")
    elif status.finished and status.completion_time is None and plan.status.completion_time is not None:
        texts.append("gets the time of its end")
    if any(isinstance(action, DeleteJob) for action in actions):
        texts.append("is deleted, because its ttlSecondsAfterFinished is over")
    texts += _counted("is removed", [action.resource for action in actions if isinstance(action, Delete)])
    texts += _counted("is created", [action.resource for action in actions if isinstance(action, Create)])
    return "; ".join(texts)


def _message(status: JobStatus, condition: str) -> str:
    return next((item.message for item in status.conditions if item.type == condition), "").rstrip(".")


def _counted(verb: str, resources: Sequence[str]) -> list[str]:
    counts = {name: resources.count(name) for name in dict.fromkeys(resources)}
    plurals = {name: name.partition(".")[0] for name in counts}
    return [
        f"1 {plurals[name].removesuffix('s')} {verb}"
        if count == 1
        else f"{count} {plurals[name]} {verb.replace('is ', 'are ')}"
        for name, count in counts.items()
    ]
