"""Deletion: what a DELETE does to an object (`deletion`, pure), and the transactions that do it (`Deleter`).

A DELETE marks the object, shortens its grace period, or removes it from the store.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import StatusError
from gangline.apiserver.kinds.scheduling import PRIORITY_CLASSES, SYSTEM_PRIORITY_CLASSES
from gangline.apiserver.registry.admission import AdmissionChain, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.catalog import ServedKind, is_core_resource, orphans_by_default, returns_deleted_object
from gangline.apiserver.registry.object_meta import rfc3339
from gangline.apiserver.registry.service_allocator import ServiceAllocator
from gangline.apiserver.registry.storage import decode_record, encode_object, storage_form, storage_path
from gangline.apiserver.registry.writes import MAX_COMMIT_ATTEMPTS, WriteContext, WriteResult
from gangline.apiserver.store.errors import StaleWrite
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import SERVER_USER, UserInfo
from gangline.base.clock import Clock
from gangline.base.tasks import for_each

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
CRD_CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
INSTANCE_DELETION_PENDING = (
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
INSTANCE_DELETION_IN_PROGRESS = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")
PODS_PRESERVED_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)


class DeletionOptions(msgspec.Struct, frozen=True):
    """Options of a deletion: preconditions, grace period, and what happens to dependents."""

    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    propagation_policy: str = ""
    orphan_dependents: bool | None = None
    dry_run: bool = False

    @property
    def has_propagation_policy(self) -> bool:
        return bool(self.propagation_policy) or self.orphan_dependents is not None


class Deletion(msgspec.Struct, frozen=True):
    """What one DELETE does to an object."""

    marked_object: JSON | None
    """The object with the mark of its deletion; None if it is removed without one."""
    removes_now: bool
    returns_object: bool
    warnings: tuple[str, ...] = ()


def deletion(served_kind: ServedKind, old: JSON, options: DeletionOptions, now: datetime) -> Deletion:
    """What this DELETE does. A second DELETE of an object may shorten its grace period and change nothing else."""
    metadata = dict(old["metadata"])
    finalizers = _deletion_finalizers(served_kind, metadata, options)
    definition = served_kind.resource.plural == "customresourcedefinitions"
    if definition and "deletionTimestamp" not in metadata:
        finalizers = [*finalizers, CRD_CLEANUP_FINALIZER]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace_seconds(served_kind, old, options)
    namespace = is_core_resource(served_kind, "namespaces")
    waits = bool(finalizers) or grace > 0 or (namespace and bool(old.get("spec", {}).get("finalizers")))
    # A pod is always marked before it is removed, so that watchers see its deletionTimestamp.
    if not waits and not is_core_resource(served_kind, "pods"):
        return Deletion(None, removes_now=True, returns_object=returns_deleted_object(served_kind))
    if "deletionTimestamp" in metadata:
        _shorten_grace(metadata, grace, now)
    else:
        metadata["deletionTimestamp"] = rfc3339(now + timedelta(seconds=grace))
        if not namespace and not definition:
            metadata["deletionGracePeriodSeconds"] = grace
        if served_kind.strategy.has_generation and not definition:
            metadata["generation"] = metadata.get("generation", 0) + 1
    marked = {**old, "metadata": metadata}
    if namespace:
        marked["status"] = {**old.get("status", {}), "phase": "Terminating"}
    if definition and "deletionTimestamp" not in old["metadata"]:
        marked["status"] = crd_terminating_status(old, INSTANCE_DELETION_PENDING, rfc3339(now))
    is_job = served_kind.resource.group_resource == ("batch", "jobs")
    preserves_pods = is_job and not options.has_propagation_policy
    warnings = (PODS_PRESERVED_WARNING,) if preserves_pods else ()
    return Deletion(
        marked, removes_now=not waits, returns_object=returns_deleted_object(served_kind) or waits, warnings=warnings
    )


def crd_terminating_status(crd: JSON, reason_and_message: tuple[str, str], now: str) -> JSON:
    """The status of a CRD that is being deleted: with a Terminating condition of this reason and message."""
    status: JSON = dict(crd.get("status") or {})
    conditions = status.get("conditions") or []
    since = next((item["lastTransitionTime"] for item in conditions if item.get("type") == "Terminating"), now)
    reason, message = reason_and_message
    condition = {"type": "Terminating", "status": "True", "lastTransitionTime": since, "reason": reason}
    others = [item for item in conditions if item.get("type") != "Terminating"]
    return {**status, "conditions": [*others, {**condition, "message": message}]}


def is_deletion_complete(obj: JSON) -> bool:
    """Whether an object is marked for deletion and has no finalizer and no grace period left."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if obj["kind"] == "Namespace" and obj["apiVersion"] == "v1":
        return not obj.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _grace_seconds(served_kind: ServedKind, old: JSON, options: DeletionOptions) -> int:
    if not is_core_resource(served_kind, "pods"):
        return 0
    phase = old.get("status", {}).get("phase")
    if not old["spec"].get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    requested = (
        options.grace_seconds
        if options.grace_seconds is not None
        else old["spec"].get("terminationGracePeriodSeconds", 30)
    )
    current = old["metadata"].get("deletionGracePeriodSeconds")
    if current is not None and options.grace_seconds is None:
        return int(current)
    # A grace period can be shortened, never lengthened.
    return max(0, int(requested) if current is None else min(int(requested), int(current)))


def _shorten_grace(metadata: JSON, grace: int, now: datetime) -> None:
    current = metadata.get("deletionGracePeriodSeconds")
    if current is not None and grace < current:
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["deletionTimestamp"] = rfc3339(now + timedelta(seconds=grace))


def _deletion_finalizers(served_kind: ServedKind, metadata: JSON, options: DeletionOptions) -> list[str]:
    """The object's finalizers, with the garbage collector's one for the propagation policy."""
    finalizers: list[str] = metadata.get("finalizers") or []
    collector = [name for name in finalizers if name in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    others = [name for name in finalizers if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    if options.propagation_policy == "Foreground":
        return [*others, FOREGROUND_FINALIZER]
    if options.propagation_policy == "Orphan" or options.orphan_dependents is True:
        return [*others, ORPHAN_FINALIZER]
    if options.propagation_policy == "Background" or options.orphan_dependents is False:
        return others
    if collector or not orphans_by_default(served_kind):
        return [*others, *collector]
    return [*others, ORPHAN_FINALIZER]


class Deleter:
    """Deletes objects, in transactions on the store."""

    def __init__(
        self, store: Store, service_allocator: ServiceAllocator, clock: Clock, admission: AdmissionChain
    ) -> None:
        self._store, self._service_allocator, self._clock = store, service_allocator, clock
        self._admission = admission

    async def delete(
        self, context: WriteContext, served_kind: ServedKind, key: Key, options: DeletionOptions
    ) -> WriteResult:
        """Begin, hasten or complete the deletion of an object. Raises `StatusError`."""
        if served_kind.resource.group_resource == PRIORITY_CLASSES and key.name in SYSTEM_PRIORITY_CLASSES:
            why = "this is a system priority class and cannot be deleted"
            raise apierrors.forbidden(served_kind.resource, key.name, why)
        return await self._delete(context, served_kind, key, options)

    async def _delete(
        self, context: WriteContext, served_kind: ServedKind, key: Key, options: DeletionOptions
    ) -> WriteResult:
        for _ in range(MAX_COMMIT_ATTEMPTS):
            record = self._store.get(storage_path(served_kind, key))
            if record is None:
                raise apierrors.not_found(served_kind.resource, key.name)
            old = decode_record(record, served_kind)
            _check_preconditions(served_kind, key, old, options)
            warnings = await self._admit(context, served_kind, key, old)
            step = deletion(served_kind, old, options, self._clock.now())
            step = msgspec.structs.replace(step, warnings=(*warnings, *step.warnings)) if warnings else step
            if context.dry_run:
                return _deletion_result(served_kind, old, step)
            try:
                return await self._commit(served_kind, record, old, step)
            except StaleWrite:
                continue
        raise apierrors.conflict(served_kind.resource, key.name, apierrors.MODIFIED_MESSAGE)

    async def _admit(self, context: WriteContext, served_kind: ServedKind, key: Key, old: JSON) -> list[str]:
        """Let webhooks and policies refuse the deletion. Returns their warnings. Raises `StatusError`."""
        request = AdmissionRequest(WriteOperation.DELETE, served_kind, key, {}, old, context, [])
        with request.errors_with_warnings():
            await self._admission.admit(request)
            await self._admission.validate(request)
        return request.warnings

    async def delete_all(
        self,
        served_kind: ServedKind,
        records: Iterable[StoreRecord],
        options: DeletionOptions,
        user: UserInfo = SERVER_USER,
    ) -> tuple[str, ...]:
        """Delete these objects, as far as they are still there. Returns warnings. Raises `StatusError`.

        Several at once, so that they share commits: each commit waits for the disk.
        """
        context = WriteContext(dry_run=options.dry_run, user=user)

        refusals: list[StatusError] = []
        warnings: dict[str, None] = {}

        async def delete_one(record: StoreRecord) -> None:
            path = split_path(record.path)
            if refusals:
                return
            try:
                result = await self._delete(context, served_kind, Key(path.namespace, path.name), options)
                warnings.update(dict.fromkeys(result.warnings))
            except StatusError as error:
                if error.code != 404:
                    refusals.append(error)

        await for_each(records, delete_one)
        if refusals:
            raise refusals[0]
        return tuple(warnings)

    async def _commit(self, served_kind: ServedKind, record: StoreRecord, old: JSON, step: Deletion) -> WriteResult:
        if step.marked_object is not None and step.marked_object != old:
            (marked,) = await self._store.commit(
                StoreWrite(record.path, storage_form(served_kind, step.marked_object), record.revision)
            )
            if not step.removes_now:
                return WriteResult(served_kind.served_bytes(marked.data), warnings=step.warnings)
            record, old = marked, decode_record(marked, served_kind)
        elif not step.removes_now:
            return WriteResult(served_kind.served_bytes(record.data), warnings=step.warnings)
        final_body = storage_form(served_kind, old)
        await self._store.commit(StoreWrite(record.path, None, record.revision, final_body=final_body))
        self._service_allocator.release_deleted(served_kind, old)
        return _deletion_result(served_kind, old, step)


def _check_preconditions(served_kind: ServedKind, key: Key, old: JSON, options: DeletionOptions) -> None:
    uid, version = old["metadata"]["uid"], old["metadata"]["resourceVersion"]
    if options.uid and options.uid != uid:
        raise apierrors.precondition_failed(served_kind.resource, key.name, "UID", options.uid, uid)
    if options.resource_version and options.resource_version != version:
        raise apierrors.precondition_failed(
            served_kind.resource, key.name, "ResourceVersion", options.resource_version, version
        )
    if is_core_resource(served_kind, "namespaces") and key.name in IMMORTAL_NAMESPACES:
        raise apierrors.forbidden(served_kind.resource, key.name, "this namespace may not be deleted")


def _deletion_result(served_kind: ServedKind, old: JSON, step: Deletion) -> WriteResult:
    if step.removes_now and not step.returns_object:
        metadata = old["metadata"]
        status = apierrors.deletion_success(served_kind.resource, metadata["name"], metadata["uid"])
        return WriteResult(encode_object(status), is_status=True, warnings=step.warnings)
    return WriteResult(encode_object(step.marked_object or old), warnings=step.warnings)
