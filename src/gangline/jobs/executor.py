"""Carries out plans. All writes of the job engine are here."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, assert_never

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.kubeflow.training import JobStatus, TrainingJob
from gangline.api.meta import JSON, Key, Object, ObjectMeta
from gangline.api.scheme import Resource, Scheme
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_all, slow_start
from gangline.jobs.framework import BATCH_JOBS, J
from gangline.jobs.plan.actions import (
    PODS,
    Adopt,
    ConfirmEnded,
    ConfirmJob,
    Create,
    CreateKeyPair,
    Delete,
    DeleteJob,
    JobAction,
    JobEvent,
    JobPlan,
    Patch,
    Rejection,
)
from gangline.jobs.plan.observed import is_owned_by
from gangline.jobs.pods.labels import owner_reference
from gangline.jobs.pods.replicas import round_number
from gangline.kube.client import ApiWriter, Kind, T, metadata_only
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Status
from gangline.kube.options import DeletionPropagation
from gangline.runtime.expectations import Expectations

INITIAL_CREATES, MAX_CREATES = 2, 24
"""Objects created at the same time: of one job until the first is accepted, and of all jobs together."""


class CreateSlots:
    """How many objects a job may create at the same time: its share among the jobs that create some now.

    So a job of thousands of pods does not delay one of two.
    """

    def __init__(self, total: int = MAX_CREATES) -> None:
        self._total, self._busy_jobs = total, 0

    @contextmanager
    def reserve(self) -> Iterator[Callable[[], int]]:
        """Take part until the block ends. Yields a function that returns the share of one job at that moment."""
        self._busy_jobs += 1
        try:
            yield self._slots_per_job
        finally:
            self._busy_jobs -= 1

    def _slots_per_job(self) -> int:
        return max(INITIAL_CREATES, self._total // max(self._busy_jobs, 1))


# The kind of a resource, as event reasons and messages name it.
_KIND_NAMES = {
    "pods": "Pod",
    "services": "Service",
    "horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscaler",
    "configmaps": "ConfigMap",
    BATCH_JOBS: "Job",
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
    """The part of a client that the executor uses."""

    @property
    def scheme(self) -> Scheme: ...
    async def get(self, kind: Kind[T], key: Key) -> T: ...
    def unstructured(self, kind: Kind[Any]) -> Resource[JSON]: ...


class EventSink(Protocol):
    """Takes the events of jobs."""

    def emit(self, job: TrainingJob, event: JobEvent) -> None: ...


class CreateRejected(GanglineError):
    """The server rejects an object that a job needs."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


def kind_name(resource: str) -> str:
    """The kind of a resource as event reasons name it: `Pod`, `Service`."""
    return _KIND_NAMES.get(resource, resource)


def rejections(error: BaseException) -> Iterator[Rejection]:
    """All rejections in an error or in a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from rejections(inner)
    elif isinstance(error, CreateRejected):
        yield error.rejection


class Executor:
    """Carries out actions, and decides none. Every action is safe to repeat."""

    def __init__(
        self, client: ExecutorClient, expectations: Expectations, events: EventSink, slots: CreateSlots | None = None
    ) -> None:
        """All executors of a process should share the same `slots`."""
        self._client, self._expectations, self._events = client, expectations, events
        self._slots = slots or CreateSlots()
        # By the name of the resource: for writes, whose results are not read.
        self._written_resources: dict[str, Resource[Object]] = {}

    async def write_status(self, job: J, status: JobStatus) -> J:
        """Write the status of a job if it changed. Returns the job with the new status and resourceVersion.

        Raises `Conflict`, without an effect, if `job` is not the newest version.
        """
        if status == job.status:
            return job
        written = await self._client.patch(
            metadata_only(self._client.scheme.of(type(job))),
            job.metadata.key,
            {"status": merge_patch_between(to_json(job.status), to_json(status))},
            subresource="status",
            resource_version=job.metadata.resource_version,
        )
        return msgspec.structs.replace(job, status=status, metadata=written.metadata)

    async def run_before_status(self, job: TrainingJob, plan: JobPlan) -> None:
        """Run the actions of a plan that come before its status.

        Raises `Conflict` if `job` is not the newest version: the verdict may have been written, and pods deleted
        because of it. Raises as `run_all` does.
        """
        # Actions after the status need no such check: writing a status over a newer version fails.
        await self._confirm_job(job)
        await run_all(self._perform(job, action) for action in plan.before_status)

    async def run_stages(self, job: TrainingJob, plan: JobPlan) -> None:
        """Emit the events and run the stages of a plan. Raises `CreateRejected`, alone or in a group, for rejected objects."""
        for event in plan.events:
            self._events.emit(job, event)
        for stage in plan.stages:
            await self._run_stage(job, stage)

    def recheck_after(self, job: TrainingJob) -> timedelta | None:
        """After how long to reconcile again in case the cache never shows what we did; None if it shows everything."""
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
        created: list[Create] = []
        try:
            with self._slots.reserve() as share:
                work = (self._create(job, action, created) for action in creates)
                await slow_start(work, first=INITIAL_CREATES, at_once=share)
        finally:
            done = {id(action) for action in created}
            for action in creates:
                if id(action) not in done:
                    self._expectations.observe_created(uid, (action.resource, action.name))
            # In the order of the plan, whichever was created first.
            self._emit_created(job, [action for action in creates if id(action) in done])

    def _emit_created(self, job: TrainingJob, created: list[Create]) -> None:
        """One event for all pods created. Other objects get an event only when creating them fails."""
        names = [action.name for action in created if action.resource == PODS]
        if names:
            message = f"Created pod: {names[0]}"
            if len(names) > 1:
                message = f"Created {len(names)} pods: {names[0]} to {names[-1]}"
            self._events.emit(job, JobEvent("SuccessfulCreatePod", message))

    async def _create(self, job: TrainingJob, action: Create, created: list[Create]) -> None:
        resource = self._written_resource(action.resource)
        try:
            await self._client.create(resource, action.body, namespace=job.metadata.namespace)
        except AlreadyExists:
            await self._resolve_existing(job, action)
            return
        except (Invalid, Forbidden) as error:
            raise self._rejection(job, kind_name(action.resource), action.name, error) from error
        created.append(action)

    async def _resolve_existing(self, job: TrainingJob, action: Create) -> None:
        """Handle a name that is taken: by the job's own object, which the cache does not show yet, or by another one.

        Restores the labels of the job's own object. Raises `NameBeingFreed` or `CreateRejected` for another one.
        """
        key, kind = Key(job.metadata.namespace, action.name), kind_name(action.resource)
        try:
            existing = await self._client.get(self._unstructured_resource(action.resource), key)
        except NotFound:
            raise NameBeingFreed(f"{kind} {key} came and went") from None
        metadata = existing["metadata"]
        if is_owned_by(existing, job.metadata.uid):
            labels = action.body["metadata"].get("labels") or {}
            await self._restore_labels(action.resource, key, existing, labels)
            return
        if metadata.get("deletionTimestamp"):
            raise NameBeingFreed(f"{kind} {key} is on its way out")
        message = f'Resource "{action.name}" of Kind "{kind}" already exists and is not managed by {job.KIND}'
        self._events.emit(job, JobEvent("ErrResourceExists", message, warning=True))
        raise CreateRejected(Rejection(kind, message, name_conflict=True))

    async def _restore_labels(self, resource: str, key: Key, body: JSON, labels: Mapping[str, str]) -> None:
        metadata = body["metadata"]
        if not labels.items() <= (metadata.get("labels") or {}).items():
            patch = {"metadata": {"labels": dict(labels), "uid": metadata["uid"]}}
            await self._client.patch(self._written_resource(resource), key, patch)

    async def _confirm_job(self, job: TrainingJob) -> None:
        """Raise `Conflict` if `job` is not the newest version."""
        newest = await self._client.get(type(job), job.metadata.key)
        if newest.metadata.resource_version != job.metadata.resource_version:
            raise Conflict(Status(code=409, message=f"{job.KIND} {job.metadata.key} has changed"))

    async def _confirm_ended(self, job: TrainingJob, action: ConfirmEnded) -> None:
        """Raise `NameBeingFreed` if the job still owns a pod of this name of an earlier round."""
        key = Key(job.metadata.namespace, action.name)
        try:
            pod = await self._client.get(self._unstructured_resource(PODS), key)
        except NotFound:
            return
        is_earlier = round_number(msgspec.convert(pod["metadata"], ObjectMeta)) < action.round
        if is_earlier and is_owned_by(pod, job.metadata.uid):
            await self._restore_labels(PODS, key, pod, action.labels)
            raise NameBeingFreed(f"Pod {key} of an earlier round still exists")

    async def _perform(
        self, job: TrainingJob, action: Adopt | CreateKeyPair | Patch | Delete | DeleteJob | ConfirmJob | ConfirmEnded
    ) -> None:
        match action:
            case Delete():
                await self._delete(job, action)
            case CreateKeyPair():
                await self._create_key_pair(job, action)
            case Patch(resource, name, body, uid, subresource):
                key = Key(job.metadata.namespace, name)
                guarded = {**body, "metadata": {**body.get("metadata", {}), "uid": uid}}
                with suppress(NotFound):
                    await self._client.patch(self._written_resource(resource), key, guarded, subresource=subresource)
            case Adopt():
                await self._adopt(job, action)
            case DeleteJob():
                with suppress(NotFound):
                    await self._client.delete(
                        type(job), job.metadata.key, uid=job.metadata.uid, propagation=DeletionPropagation.BACKGROUND
                    )
                    self._events.emit(job, JobEvent("SuccessfulDeleteJob", f"Deleted job: {job.metadata.name}"))
            case ConfirmJob():
                await self._confirm_job(job)
            case ConfirmEnded():
                await self._confirm_ended(job, action)
            case _:
                assert_never(action)

    async def _create_key_pair(self, job: TrainingJob, action: CreateKeyPair) -> None:
        # Imported here: only MPIJobs need it, and it takes a moment.
        from gangline.base.certificates.ssh_keys import ssh_auth_data

        body = {**action.body, "type": "kubernetes.io/ssh-auth", "stringData": ssh_auth_data()}
        try:
            await self._client.create(self._written_resource("secrets"), body, namespace=job.metadata.namespace)
        except AlreadyExists:
            # By the job's own earlier attempt or by its user; which of them cannot be known without reading Secrets.
            return
        except (Invalid, Forbidden) as error:
            raise self._rejection(job, "Secret", action.name, error) from error

    def _rejection(self, job: TrainingJob, kind: str, name: str, error: Invalid | Forbidden) -> CreateRejected:
        self._events.emit(job, JobEvent(f"FailedCreate{kind}", f"Error creating: {error}", warning=True))
        message = f"{kind.lower()} {name} is refused: {error}"
        return CreateRejected(Rejection(kind, message, permanent=isinstance(error, Invalid)))

    async def _delete(self, job: TrainingJob, action: Delete) -> None:
        uid, kind = job.metadata.uid, kind_name(action.resource)
        key = Key(job.metadata.namespace, action.name)
        self._expectations.expect_deleted(uid, (action.uid,))
        try:
            # Kubernetes would leave the pods of a Job behind.
            propagation = DeletionPropagation.BACKGROUND if action.resource == BATCH_JOBS else None
            await self._client.delete(
                self._written_resource(action.resource), key, uid=action.uid, propagation=propagation
            )
        except NotFound:
            self._expectations.observe_deleted(uid, action.uid)
        except Conflict:
            # Another object of that name, or contention: the next reconcile sees which.
            self._expectations.observe_deleted(uid, action.uid)
            raise
        except ApiError as error:
            self._expectations.observe_deleted(uid, action.uid)
            self._events.emit(job, JobEvent(f"FailedDelete{kind}", f"Error deleting: {error}", warning=True))
            raise
        except BaseException:
            self._expectations.observe_deleted(uid, action.uid)
            raise
        else:
            self._events.emit(job, JobEvent(f"SuccessfulDelete{kind}", f"Deleted {kind.lower()}: {action.name}"))

    async def _adopt(self, job: TrainingJob, action: Adopt) -> None:
        """Adopt an object if the server, unlike the cache, says that the job is not being deleted."""
        with suppress(NotFound):
            newest = await self._client.get(type(job), job.metadata.key)
            if newest.metadata.uid != job.metadata.uid or newest.metadata.deletion_timestamp is not None:
                return
            key = Key(job.metadata.namespace, action.name)
            body = {"metadata": {"uid": action.uid, "ownerReferences": [owner_reference(job)]}}
            await self._client.patch(self._written_resource(action.resource), key, body)

    def _written_resource(self, name: str) -> Resource[Object]:
        resource = self._written_resources.get(name)
        if resource is None:
            resource = self._written_resources[name] = metadata_only(self._client.scheme.find(name))
        return resource

    def _unstructured_resource(self, resource: str) -> Resource[JSON]:
        return self._client.unstructured(self._client.scheme.find(resource))


class NameBeingFreed(GanglineError):
    """The name of an object to create is still taken by one that is being deleted. Tried again later."""


def merge_patch_between(before: JSON, after: JSON) -> JSON:
    """The merge patch that turns `before` into `after`. Removed fields are null in it."""
    patch: JSON = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            nested = merge_patch_between(old, value)
            if nested:
                patch[name] = nested
        elif value != old:
            patch[name] = value
    return patch
