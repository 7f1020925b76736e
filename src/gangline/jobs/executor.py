"""Plans become calls. The only writes of the job engine."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, assert_never

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.kubeflow.training import JobStatus, TrainingJob
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource, Scheme
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_all, slow_start
from gangline.jobs.framework import J
from gangline.jobs.plan.actions import (
    PODS,
    Adopt,
    Create,
    Delete,
    DeleteJob,
    JobAction,
    JobEvent,
    JobPlan,
    Patch,
    Rejection,
)
from gangline.jobs.pods.render import owner_reference
from gangline.kube.client import ApiWriter, Kind, T
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Status
from gangline.kube.options import DeletionPropagation
from gangline.runtime.expectations import Expectations

INITIAL_CREATES, MAX_CREATES = 2, 24
"""Objects that are made at the same time: of one job before the first is known to be welcome, and of all jobs."""


class CreateSlots:
    """How many objects one job may make at once: all, or its part while others make some too.

    So a job of thousands does not keep the server from those of two.
    """

    def __init__(self, total: int = MAX_CREATES) -> None:
        self._total, self._busy_jobs = total, 0

    @contextmanager
    def reserve(self) -> Iterator[Callable[[], int]]:
        self._busy_jobs += 1
        try:
            yield self._slots_per_job
        finally:
            self._busy_jobs -= 1

    @property
    def busy(self) -> bool:
        """Whether objects of any job are being made."""
        return self._busy_jobs > 0

    def _slots_per_job(self) -> int:
        return max(INITIAL_CREATES, self._total // max(self._busy_jobs, 1))


# What is told of a resource: the word for it in the reason of an event.
_KIND_NAMES = {
    "pods": "Pod",
    "services": "Service",
    "horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscaler",
    "configmaps": "ConfigMap",
    "serviceaccounts": "ServiceAccount",
    "roles.rbac.authorization.k8s.io": "Role",
    "rolebindings.rbac.authorization.k8s.io": "RoleBinding",
    "podgroups.scheduling.volcano.sh": "PodGroup",
    "podgroups.scheduling.x-k8s.io": "PodGroup",
    "podgroups.scheduling.gangline.dev": "PodGroup",
    "podgroups.scheduling.k8s.io": "PodGroup",
    "workloads.scheduling.k8s.io": "Workload",
}


class ExecutorClient(ApiWriter, Protocol):
    """What executing needs of a client."""

    @property
    def scheme(self) -> Scheme: ...
    async def get(self, kind: Kind[T], key: Key) -> T: ...
    def unstructured(self, kind: Kind[Any]) -> Resource[JSON]: ...


class EventSink(Protocol):
    """Takes notes of what happened to a job."""

    def emit(self, job: TrainingJob, note: JobEvent) -> None: ...


class CreateRejected(GanglineError):
    """The server does not want what a job needs."""

    def __init__(self, refusal: Rejection) -> None:
        super().__init__(refusal.message)
        self.rejection = refusal


def kind_name(resource: str) -> str:
    """What a resource is called in reasons: `Pod`, `Service`."""
    return _KIND_NAMES.get(resource, resource)


def rejections(error: BaseException) -> Iterator[Rejection]:
    """All refusals among what went wrong."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from rejections(inner)
    elif isinstance(error, CreateRejected):
        yield error.rejection


class Executor:
    """Knows how, never whether. Safe to repeat."""

    def __init__(
        self,
        client: ExecutorClient,
        expectations: Expectations,
        teller: EventSink,
        shares: CreateSlots | None = None,
    ) -> None:
        """Executors of one process should have the same shares."""
        self._client, self._expectations, self._events = client, expectations, teller
        self._slots = shares or CreateSlots()

    async def write_status(self, job: J, status: JobStatus) -> J:
        """Write a status down, if it is another one, and give the job that has it.

        Raises `Conflict`, before anything happened, if the job seen is not the newest.
        """
        if status == job.status:
            return job
        written = await self._client.patch(
            type(job),
            job.metadata.key,
            {"status": merge_patch_between(to_json(job.status), to_json(status))},
            subresource="status",
            resource_version=job.metadata.resource_version,
        )
        return msgspec.structs.replace(job, status=status, metadata=written.metadata)

    async def run_before_status(self, job: TrainingJob, intent: JobPlan) -> None:
        """Do what a plan wants done before its status is written, if the job is still the one that was seen.

        Else raises `Conflict`: the verdict may have been written, and pods may be gone for it. Raises as `run_all` does.
        """
        # What is done after a status is written needs no such look: a status that is not the newest is not taken.
        now = await self._client.get(type(job), job.metadata.key)
        if now.metadata.resource_version != job.metadata.resource_version:
            raise Conflict(Status(code=409, message=f"{job.KIND} {job.metadata.key} has changed"))
        await run_all(self._perform(job, action) for action in intent.before_status)

    async def run_stages(self, job: TrainingJob, intent: JobPlan) -> None:
        """Tell and do what a plan says. Raises `CreateRejected` for what the server does not want, alone or in a group."""
        for note in intent.events:
            self._events.emit(job, note)
        for stage in intent.stages:
            await self._run_stage(job, stage)

    def recheck_after(self, job: TrainingJob) -> timedelta | None:
        """When to look again even if nothing happens: the cache may never show what we did. None if it has."""
        return self._expectations.expires_in(job.metadata.uid) or None

    async def _run_stage(self, job: TrainingJob, stage: Iterable[JobAction]) -> None:
        creates = [action for action in stage if isinstance(action, Create)]
        others = [action for action in stage if not isinstance(action, Create)]
        if others:
            await run_all(self._perform(job, action) for action in others)
        if not creates:
            return
        uid = job.metadata.uid
        self._expectations.expect_created(uid, ((action.resource, action.name) for action in creates))
        made: list[Create] = []
        try:
            with self._slots.reserve() as part:
                work = (self._create(job, action, made) for action in creates)
                await slow_start(work, first=INITIAL_CREATES, at_once=part)
        finally:
            done = {id(action) for action in made}
            for action in creates:
                if id(action) not in done:
                    self._expectations.observe_created(uid, (action.resource, action.name))
            # In the order of their seats, whichever was made first.
            self._emit_created(job, [action for action in creates if id(action) in done])

    def _emit_created(self, job: TrainingJob, made: list[Create]) -> None:
        """Pods are told, all in one note. What is made for them is not news: only that it could not be made is."""
        names = [action.name for action in made if action.resource == PODS]
        if names:
            told = f"Created pod: {names[0]}"
            if len(names) > 1:
                told = f"Created {len(names)} pods: {names[0]} to {names[-1]}"
            self._events.emit(job, JobEvent("SuccessfulCreatePod", told))

    async def _create(self, job: TrainingJob, action: Create, made: list[Create]) -> None:
        resource = self._client.unstructured(self._client.scheme.find(action.resource))
        try:
            await self._client.create(resource, action.body, namespace=job.metadata.namespace)
        except AlreadyExists:
            await self._resolve_existing(job, action, resource)
            return
        except (Invalid, Forbidden) as error:
            note = JobEvent(f"FailedCreate{kind_name(action.resource)}", f"Error creating: {error}", warning=True)
            self._events.emit(job, note)
            why = f"{kind_name(action.resource).lower()} {action.name} is refused: {error}"
            raise CreateRejected(
                Rejection(kind_name(action.resource), why, permanent=isinstance(error, Invalid))
            ) from error
        made.append(action)

    async def _resolve_existing(self, job: TrainingJob, action: Create, resource: Resource[JSON]) -> None:
        """The name is taken: by our own object, which the cache has yet to show, or by a stranger's."""
        key = Key(job.metadata.namespace, action.name)
        try:
            found = await self._client.get(resource, key)
        except NotFound:
            raise NameBeingFreed(f"{kind_name(action.resource)} {key} came and went") from None
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or []
        if any(owner.get("uid") == job.metadata.uid for owner in owners):
            wanted = action.body["metadata"].get("labels") or {}
            if not wanted.items() <= (metadata.get("labels") or {}).items():
                await self._client.patch(resource, key, {"metadata": {"labels": wanted, "uid": metadata["uid"]}})
            return
        if metadata.get("deletionTimestamp"):
            raise NameBeingFreed(f"{kind_name(action.resource)} {key} is on its way out")
        why = (
            f'Resource "{action.name}" of Kind "{kind_name(action.resource)}" already exists'
            f" and is not managed by {job.KIND}"
        )
        self._events.emit(job, JobEvent("ErrResourceExists", why, warning=True))
        raise CreateRejected(Rejection(kind_name(action.resource), why, name_conflict=True))

    async def _perform(self, job: TrainingJob, action: Adopt | Patch | Delete | DeleteJob) -> None:
        match action:
            case Delete():
                await self._delete(job, action)
            case Patch(resource, name, body, uid):
                key = Key(job.metadata.namespace, name)
                guarded = {**body, "metadata": {**body.get("metadata", {}), "uid": uid}}
                with suppress(NotFound):
                    await self._client.patch(self._unstructured_resource(resource), key, guarded)
            case Adopt():
                await self._adopt(job, action)
            case DeleteJob():
                with suppress(NotFound):
                    await self._client.delete(
                        type(job),
                        job.metadata.key,
                        uid=job.metadata.uid,
                        propagation=DeletionPropagation.BACKGROUND,
                    )
                    self._events.emit(job, JobEvent("SuccessfulDeleteJob", f"Deleted job: {job.metadata.name}"))
            case _:
                assert_never(action)

    async def _delete(self, job: TrainingJob, action: Delete) -> None:
        uid, what = job.metadata.uid, kind_name(action.resource)
        key = Key(job.metadata.namespace, action.name)
        self._expectations.expect_deleted(uid, (action.uid,))
        try:
            await self._client.delete(self._unstructured_resource(action.resource), key, uid=action.uid)
        except NotFound:
            self._expectations.observe_deleted(uid, action.uid)
        except Conflict:
            # Another one of that name, or contention: the next look will tell which.
            self._expectations.observe_deleted(uid, action.uid)
            raise
        except ApiError as error:
            self._expectations.observe_deleted(uid, action.uid)
            self._events.emit(job, JobEvent(f"FailedDelete{what}", f"Error deleting: {error}", warning=True))
            raise
        except BaseException:
            self._expectations.observe_deleted(uid, action.uid)
            raise
        else:
            self._events.emit(job, JobEvent(f"SuccessfulDelete{what}", f"Deleted {what.lower()}: {action.name}"))

    async def _adopt(self, job: TrainingJob, action: Adopt) -> None:
        """Only after asking the server: the cache may not know yet that the job is going away."""
        with suppress(NotFound):
            now = await self._client.get(type(job), job.metadata.key)
            if now.metadata.uid != job.metadata.uid or now.metadata.deletion_timestamp is not None:
                return
            key = Key(job.metadata.namespace, action.name)
            body = {"metadata": {"uid": action.uid, "ownerReferences": [owner_reference(job)]}}
            await self._client.patch(self._unstructured_resource(action.resource), key, body)

    def _unstructured_resource(self, resource: str) -> Resource[JSON]:
        return self._client.unstructured(self._client.scheme.find(resource))


class NameBeingFreed(GanglineError):
    """A name was taken a moment ago and is about to be free."""


def merge_patch_between(before: JSON, after: JSON) -> JSON:
    """A merge patch: what is there no more is null, for what a merge patch leaves out stays as it is."""
    made: JSON = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        was = before.get(name)
        if isinstance(value, dict) and isinstance(was, dict):
            inner = merge_patch_between(was, value)
            if inner:
                made[name] = inner
        elif value != was:
            made[name] = value
    return made
