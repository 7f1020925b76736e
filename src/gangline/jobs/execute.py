"""Plans become calls. The only writes of the job engine."""

from contextlib import suppress
from typing import Any, assert_never

from gangline.api.codec import to_json
from gangline.api.core import Pod, Service
from gangline.api.meta import JSON, Key
from gangline.api.training import TrainingJob
from gangline.base.tasks import run_all
from gangline.jobs.actions import Action, CreatePod, CreateService, DeletePod
from gangline.jobs.plan import Observed, Plan
from gangline.kube.client import Writer
from gangline.kube.errors import AlreadyExists, Conflict, NotFound


class Executor:
    """Knows how, never whether. Safe to repeat."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def apply(self, seen: Observed[Any], intent: Plan) -> None:
        """Write the status down, then act. Raises `Conflict` before anything happened if the view was stale."""
        job: TrainingJob = seen.job
        if intent.status != job.status:
            await self._writer.patch(
                type(job),
                job.metadata.key,
                {"status": _change(to_json(job.status), to_json(intent.status))},
                subresource="status",
                resource_version=job.metadata.resource_version,
            )
        for stage in intent.stages:
            await run_all(self._perform(job, action) for action in stage)

    async def _perform(self, job: TrainingJob, action: Action) -> None:
        namespace = job.metadata.namespace
        match action:
            case CreateService(body):
                await self._create(Service, body, namespace)
            case CreatePod(body):
                await self._create(Pod, body, namespace)
            case DeletePod(name, uid):
                # Gone, or already another pod of that name: either way that one is no more.
                with suppress(NotFound, Conflict):
                    await self._writer.delete(Pod, Key(namespace, name), uid=uid)
            case _:
                assert_never(action)

    async def _create(self, kind: type[Any], body: dict[str, Any], namespace: str) -> None:
        # Our own, not yet in the cache: names are deterministic.
        with suppress(AlreadyExists):
            await self._writer.create(kind, body, namespace=namespace)


def _change(before: JSON, after: JSON) -> JSON:
    """A merge patch: what is there no more is null, for what a merge patch leaves out stays as it is."""
    change: JSON = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        was = before.get(name)
        if isinstance(value, dict) and isinstance(was, dict):
            change[name] = _change(was, value)
        elif value != was:
            change[name] = value
    return change
