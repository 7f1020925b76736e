"""The verbs of the API as transactions on the store. Knows no HTTP.

Every write has the same steps: read the object, let a function make the new one, restore what clients may not change,
set defaults, validate, record field ownership, commit if the object is still the one that was read. A write that
changes nothing is not committed. A write without a resourceVersion is repeated when another writer was faster.
"""

import asyncio
from datetime import datetime
from weakref import WeakValueDictionary

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.apply import ApplyConflict, ApplyResult, server_side_apply
from gangline.apiserver.apply.managed_fields import equal_ignoring_timestamps
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry import object_meta
from gangline.apiserver.registry.admission import NO_ADMISSION, AdmissionChain, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.catalog import Catalog, ServedKind
from gangline.apiserver.registry.creations import CreationTracker
from gangline.apiserver.registry.deletion import Deleter, is_deletion_complete
from gangline.apiserver.registry.service_allocator import SERVICE_CIDR, ServiceAllocator
from gangline.apiserver.registry.storage import decode_record, encode_object, storage_form, storage_path
from gangline.apiserver.registry.writes import (
    MAX_COMMIT_ATTEMPTS,
    ApplyFunc,
    UpdateFunc,
    WriteContext,
    WriteResult,
    check_applied_values,
    default_and_prune,
    managed_fields,
    prepare_and_validate,
    set_managed_fields,
)
from gangline.apiserver.store.errors import StaleWrite
from gangline.apiserver.store.records import StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.schema.typed.integers import set_go_numbers, with_integers


class Registry:
    """Reads and writes objects of every kind in the catalog."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        *,
        admission: AdmissionChain = NO_ADMISSION,
        warn_on_inert_kinds: bool = True,
        service_cidr: str = SERVICE_CIDR,
    ) -> None:
        """With `warn_on_inert_kinds`, creating an object that no controller acts on returns a warning."""
        self.store, self.catalog, self._clock = store, catalog, clock
        self._admission, self._service_allocator = admission, ServiceAllocator(store, service_cidr)
        self._warn_on_inert_kinds = warn_on_inert_kinds
        # Locks by namespace, as long as somebody holds or awaits them.
        self._joint_commits: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.creations = CreationTracker()
        deleter = Deleter(store, self._service_allocator, clock, admission)
        self.delete, self.delete_all = deleter.delete, deleter.delete_all

    def get(self, served_kind: ServedKind, key: Key) -> StoreRecord:
        """The stored object. Raises `StatusError` (404)."""
        record = self.store.get(storage_path(served_kind, key))
        if record is None:
            raise apierrors.not_found(served_kind.resource, key.name)
        return record

    def now(self) -> datetime:
        return self._clock.now()

    def timestamp(self) -> str:
        """The current time in the form of object metadata."""
        return object_meta.rfc3339(self._clock.now())

    # Creating

    async def create(
        self,
        context: WriteContext,
        served_kind: ServedKind,
        namespace: str,
        body: JSON,
        managed: list[JSON] | None = None,
    ) -> WriteResult:
        """Store a new object, which is changed in place. `managed` are its managedFields, where an apply made them.

        Raises `StatusError`.
        """
        with self.creations.under_way(served_kind, namespace):
            return await self._create(context, served_kind, namespace, body, managed)

    async def _create(
        self, context: WriteContext, served_kind: ServedKind, namespace: str, body: JSON, managed: list[JSON] | None
    ) -> WriteResult:
        metadata = object_meta.ensure_metadata(body)
        if object_meta.version_precondition(metadata):
            raise StatusError(500, "resourceVersion should not be set on objects to be created")
        object_meta.check_namespace(served_kind, namespace, metadata)
        now = self.timestamp()

        def name_exists(name: str) -> bool:
            return self.store.get(storage_path(served_kind, Key(metadata.get("namespace", ""), name))) is not None

        prefix = "" if metadata.get("name") else metadata.get("generateName") or ""
        object_meta.fill_system_fields(metadata, now, name_exists)
        name = metadata.get("name") or ""
        body["kind"], body["apiVersion"] = served_kind.resource.kind, served_kind.resource.api_version
        warnings = default_and_prune(context, served_kind, body)
        warnings += object_meta.drop_duplicate_owners(metadata, patched=managed is not None)
        # Before the server adds fields of its own: no manager owns those.
        owners = managed if managed is not None else managed_fields(context, served_kind, None, body, now)
        set_managed_fields(served_kind, body, owners)
        request = AdmissionRequest(
            WriteOperation.CREATE, served_kind, Key(namespace, name), body, None, context, warnings, prefix
        )
        with request.errors_with_warnings():
            await self._complete_and_check(request, now)
            return await self._insert(request)

    async def admit_subresource(
        self,
        context: WriteContext,
        served_kind: ServedKind,
        key: Key,
        body: JSON,
        operation: WriteOperation = WriteOperation.CREATE,
    ) -> None:
        """Admit a POST to a subresource that stores no object of its own, or a connection. Raises `StatusError`."""
        request = AdmissionRequest(operation, served_kind, key, body, None, context, [])
        await self._admission.admit(request)
        await self._admission.validate(request)

    async def _complete_and_check(self, request: AdmissionRequest, now: str) -> None:
        """Make the new object ready to be stored, in place: admission, strategy. Raises `StatusError`."""
        served_kind, body = request.served_kind, request.obj
        await self._admission.admit_new(request)
        served_kind.strategy.prepare_for_create(body, now)
        problems = served_kind.strategy.validate(body)
        if problems:
            named = served_kind.strategy.problems_kind or served_kind.resource
            raise apierrors.invalid(named, request.key.name, problems)
        if served_kind.custom:
            set_go_numbers(body)
        request.warnings.extend(served_kind.strategy.warnings(body, None))
        if self._warn_on_inert_kinds and served_kind.resource.inert_warning:
            request.warnings.append(served_kind.resource.inert_warning)
        if request.context.check_create is not None:
            request.context.check_create()
        await self._admission.validate(request)

    async def _insert(self, request: AdmissionRequest) -> WriteResult:
        context, served_kind, body = request.context, request.served_kind, request.obj
        metadata, warnings = body["metadata"], tuple(request.warnings)
        path = storage_path(served_kind, Key(metadata.get("namespace", ""), metadata["name"]))
        existing = self.store.get(path)
        if existing is not None:
            raise _already_exists(served_kind, metadata["name"], existing)
        with self._service_allocator.allocation(served_kind, None, body, keep=not context.dry_run):
            if context.dry_run:
                return WriteResult(encode_object(body), created=True, warnings=warnings)
            try:
                record = await self._commit(request, StoreWrite(path, storage_form(served_kind, body), 0))
            except StaleWrite as error:
                raise _already_exists(served_kind, metadata["name"], error.current) from None
        return WriteResult(served_kind.served_bytes(record.data), created=True, warnings=warnings)

    # Updating

    async def update(
        self, context: WriteContext, served_kind: ServedKind, key: Key, transform: UpdateFunc, *, upsert: bool = False
    ) -> WriteResult:
        """Store what `transform` makes of the object. With `upsert`, a missing object is created.

        `transform` may be called several times. Raises `StatusError`.
        """
        for _ in range(MAX_COMMIT_ATTEMPTS):
            record = self.store.get(storage_path(served_kind, key))
            if record is None:
                if not upsert:
                    raise apierrors.not_found(served_kind.resource, key.name)
                body = transform(None)
                metadata = object_meta.ensure_metadata(body)
                metadata.pop("resourceVersion", None)
                if uid := metadata.get("uid"):
                    raise apierrors.uid_mismatch(served_kind.resource, key, uid, {"uid": ""})
                return await self.create(context, served_kind, key.namespace, body)
            new = transform(decode_record(record, served_kind))
            object_meta.check_object_key(served_kind, key, new)
            pinned = bool(object_meta.version_precondition(new["metadata"])) and context.is_put
            try:
                return await self._commit_update(context, served_kind, record, new)
            except StaleWrite:
                if pinned:
                    raise apierrors.conflict(served_kind.resource, key.name, apierrors.MODIFIED_MESSAGE) from None
        raise apierrors.conflict(served_kind.resource, key.name, apierrors.MODIFIED_MESSAGE)

    async def apply(
        self, context: WriteContext, served_kind: ServedKind, key: Key, config: JSON, *, force: bool
    ) -> WriteResult:
        """Server-side apply: the manager sets and owns the fields of `config`. Raises `StatusError`."""
        kind = served_kind.managed_kind(context.subresource)

        def merge(old: JSON | None, now: str) -> ApplyResult:
            wanted = config if served_kind.custom else with_integers(config, served_kind.type)
            result = server_side_apply(old, wanted, kind, manager=context.field_manager, now=now, force=force)
            check_applied_values(served_kind, key.name, result.object)
            return result

        return await self.apply_with(context, served_kind, key, merge)

    async def apply_with(
        self, context: WriteContext, served_kind: ServedKind, key: Key, merge: ApplyFunc
    ) -> WriteResult:
        """Store the object and the managedFields that `merge` makes. It may be called several times."""
        for _ in range(MAX_COMMIT_ATTEMPTS):
            record = self.store.get(storage_path(served_kind, key))
            old = decode_record(record, served_kind) if record is not None else None
            if old is None and context.subresource:
                raise apierrors.not_found(served_kind.resource, key.name)
            try:
                result = merge(old, self.timestamp())
            except ApplyConflict as error:
                raise apierrors.apply_conflict(str(error), error.causes) from error
            object_meta.check_object_key(served_kind, key, result.object)
            if record is None:
                return await self._create_from_apply(context, served_kind, key, result)
            try:
                return await self._commit_update(context, served_kind, record, result.object, result.managed_fields)
            except StaleWrite:
                continue
        raise apierrors.conflict(served_kind.resource, key.name, apierrors.MODIFIED_MESSAGE)

    async def _create_from_apply(
        self, context: WriteContext, served_kind: ServedKind, key: Key, result: ApplyResult
    ) -> WriteResult:
        metadata = result.object["metadata"]
        if uid := metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise apierrors.conflict(served_kind.resource, key.name, why)
        metadata.pop("resourceVersion", None)
        return await self.create(context, served_kind, key.namespace, result.object, result.managed_fields)

    async def _commit_update(
        self,
        context: WriteContext,
        served_kind: ServedKind,
        record: StoreRecord,
        new: JSON,
        managed: list[JSON] | None = None,
    ) -> WriteResult:
        """Commit the new object in place of the record. Raises `StaleWrite` when another writer was faster."""
        old = decode_record(record, served_kind)
        key = Key(old["metadata"].get("namespace", ""), old["metadata"]["name"])
        request = AdmissionRequest(WriteOperation.UPDATE, served_kind, key, new, old, context, [])
        with request.errors_with_warnings():
            await self._prepare_update(request, old, managed)
            await self._admission.validate(request)
        warnings = tuple(request.warnings)
        if equal_ignoring_timestamps(old, new):
            return WriteResult(served_kind.served_bytes(record.data), warnings=warnings)
        with self._service_allocator.allocation(served_kind, old, new, keep=not context.dry_run):
            if context.dry_run:
                return WriteResult(encode_object(new), warnings=warnings)
            return WriteResult(await self._commit_object(request, record), warnings=warnings)

    async def _prepare_update(self, request: AdmissionRequest, old: JSON, managed: list[JSON] | None) -> None:
        """Make the new object ready to be stored, in place: defaults, restored fields, owners, admission.

        Raises `StatusError` when it is invalid or a precondition fails.
        """
        context, served_kind, new = request.context, request.served_kind, request.obj
        if context.expected_uid and context.expected_uid != old["metadata"]["uid"]:
            raise apierrors.uid_mismatch(served_kind.resource, request.key, context.expected_uid, old["metadata"])
        object_meta.preserve_system_fields(served_kind, request.key.name, old, new, put=context.is_put)
        new["kind"], new["apiVersion"] = served_kind.resource.kind, served_kind.resource.api_version
        sent_managed_fields = new["metadata"].get("managedFields")
        request.warnings.extend(default_and_prune(context, served_kind, new))
        request.warnings.extend(object_meta.drop_duplicate_owners(new["metadata"], patched=not context.is_put))
        if sent_managed_fields == []:
            # Unlike an absent list, an empty one asks the server to forget the owners; defaulting removed it.
            new["metadata"]["managedFields"] = []
        owners = managed if managed is not None else managed_fields(context, served_kind, old, new, self.timestamp())
        set_managed_fields(served_kind, new, owners)
        await self._admission.admit(request)
        problems = prepare_and_validate(context.subresource, served_kind.strategy, new, old)
        if problems:
            named = served_kind.strategy.problems_kind or served_kind.resource
            raise apierrors.invalid(named, request.key.name, problems)
        if served_kind.custom:
            set_go_numbers(new)
        request.warnings.extend(served_kind.strategy.warnings(new, old))

    async def _commit_object(self, request: AdmissionRequest, record: StoreRecord) -> bytes:
        """Commit the new object, or delete it if this write removed the last finalizer of an object being deleted."""
        served_kind, new = request.served_kind, request.obj
        if is_deletion_complete(new):
            # The response shows the object without its finalizer; watchers see it as it was before.
            before = decode_record(record)
            await self.store.commit(StoreWrite(record.path, None, record.revision, final_body=before))
            self._service_allocator.release_deleted(served_kind, before)
            return encode_object(new)
        write = StoreWrite(record.path, storage_form(served_kind, new), record.revision)
        return served_kind.served_bytes((await self._commit(request, write)).data)

    async def _commit(self, request: AdmissionRequest, write: StoreWrite) -> StoreRecord:
        """Commit the object together with what admission adds, such as its charge to a quota.

        Raises `StaleWrite` when another writer changed the object, and `StatusError`.
        """
        if self._admission.joint_writes(request) is None:
            (record,) = await self.store.commit(write)
            return record
        async with self.joint_commits(request.key.namespace):
            for _ in range(MAX_COMMIT_ATTEMPTS):
                writes = self._admission.joint_writes(request) or ()
                try:
                    records = await self.store.commit(*writes, write)
                except StaleWrite as error:
                    if error.path == write.path:
                        raise
                else:
                    return records[-1]
        raise apierrors.conflict(request.served_kind.resource, request.key.name, apierrors.MODIFIED_MESSAGE)

    def joint_commits(self, namespace: str) -> asyncio.Lock:
        """Held by whoever commits an object of the namespace together with its charge to quotas."""
        return self._joint_commits.setdefault(namespace, asyncio.Lock())


def _already_exists(served_kind: ServedKind, name: str, existing: StoreRecord | None) -> StatusError:
    terminating = existing is not None and "deletionTimestamp" in decode_record(existing)["metadata"]
    return apierrors.already_exists(served_kind.resource, name, terminating=terminating)
