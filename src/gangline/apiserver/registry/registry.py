"""The verbs, as transactions on the store. Knows no HTTP.

Every change has one shape: read, let a function make the new object, put back what nobody may change, default,
validate, note who owns what, commit if the object is still what was read. A change that makes no difference is not
written. A change without a resourceVersion is tried again when somebody was faster.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from gangline.api.meta import JSON, Key
from gangline.api.quantity import QuantityError
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.apply import ApplyConflict, ApplyResult, server_side_apply
from gangline.apiserver.apply.managed import (
    equal_ignoring_timestamps,
    scaled_managed_fields,
    updated_managed_fields,
)
from gangline.apiserver.errors import StatusError, UnknownFields
from gangline.apiserver.kinds.core.namespace import NamespaceStrategy
from gangline.apiserver.kinds.crd.resource_metadata import prune_metadata
from gangline.apiserver.kinds.crd.resource_strategy import CustomResourceStrategy
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.registry import metadata as registry_metadata
from gangline.apiserver.registry.admission import Admission, preserve_priority
from gangline.apiserver.registry.catalog import Catalog, ServedKind, is_core_resource
from gangline.apiserver.registry.deletion import Deletion, DeletionOptions, deletion, is_deletion_complete
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.registry.service_ips import ServiceAllocator
from gangline.apiserver.store.errors import StaleWrite
from gangline.apiserver.store.paths import collection_prefix, object_path, split_path
from gangline.apiserver.store.records import StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.schema.problems import FieldProblem
from gangline.schema.structural.embedded_objects import MetadataError

MAX_COMMIT_ATTEMPTS = 10

"""Subresources whose handlers change what an update may not, and nothing else."""

IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")


class WriteContext(msgspec.Struct, frozen=True):
    """How a write is asked for."""

    field_manager: str = "gangline"
    dry_run: bool = False
    subresource: str = ""
    field_validation: str = ""
    """What becomes of unknown fields: Strict, Warn (the default) or Ignore."""
    is_put: bool = False
    """Whether the whole object was sent: some kinds are not overwritten without a resourceVersion."""
    expected_uid: str = ""
    """Only an object with this uid is meant."""
    replicas_path: tuple[str, ...] | None = None
    """Where the replicas are that a write of `scale` changes."""


class WriteResult(msgspec.Struct, frozen=True):
    """What became of a write: the object as it is now (or was last), and what to warn of."""

    data: bytes
    created: bool = False
    warnings: tuple[str, ...] = ()
    is_status: bool = False
    """The data is a Status, not the object."""


UpdateFunc = Callable[[JSON | None], JSON]
"""Makes the new object of the old one, which it may change; None when there is none yet."""
ApplyFunc = Callable[[JSON | None, str], ApplyResult]
"""What an apply makes of the object that is there, if any, at this time. Raises `ApplyConflict` or `Refused`."""


class Registry:
    """Objects of every kind in the catalog."""

    def __init__(self, store: Store, catalog: Catalog, clock: Clock, *, tells_inert: bool = True) -> None:
        """With `tells_inert`, whoever creates an object that nothing acts on is warned."""
        self.store, self.catalog, self._clock = store, catalog, clock
        self._admission, self._service_allocator = Admission(store, catalog), ServiceAllocator(store)
        self._warn_on_inert_kinds = tells_inert

    # Reading

    def get(self, entry: ServedKind, key: Key) -> StoreRecord:
        """The object. Raises `Refused` (404)."""
        record = self.store.get(storage_path(entry, key))
        if record is None:
            raise apierrors.not_found(entry, key.name)
        return record

    # Creating

    async def create(
        self,
        call: WriteContext,
        entry: ServedKind,
        namespace: str,
        body: JSON,
        managed: list[JSON] | None = None,
    ) -> WriteResult:
        """Store a new object. The body is ours to change. `managed` says who owns what, where that is known."""
        metadata = registry_metadata.ensure_metadata(body)
        if registry_metadata.version_precondition(metadata):
            raise StatusError(500, "resourceVersion should not be set on objects to be created")
        registry_metadata.check_namespace(entry, namespace, metadata)
        now = self.timestamp()

        def taken(name: str) -> bool:
            return self.store.get(storage_path(entry, Key(metadata.get("namespace", ""), name))) is not None

        registry_metadata.fill_system_fields(metadata, now, taken)
        name = metadata.get("name") or ""
        body["kind"], body["apiVersion"] = entry.kind, entry.api_version
        warnings = default_and_prune(call, entry, body)
        # Before the server adds anything of its own accord: nobody owns that.
        owners = managed if managed is not None else _managed_fields(call, entry, None, body, now)
        _set_managed_fields(entry, body, owners)
        self._admission.admit(entry, Key(namespace, name), body)
        entry.strategy.prepare_for_create(body, now)
        problems = entry.strategy.validate(body)
        if problems:
            raise apierrors.invalid(entry, name, problems)
        warnings += entry.strategy.warnings(body, None)
        if self._warn_on_inert_kinds and entry.resource.inert_warning:
            warnings.append(entry.resource.inert_warning)
        return await self._insert(call, entry, body, tuple(warnings))

    async def _insert(
        self, call: WriteContext, entry: ServedKind, body: JSON, warnings: tuple[str, ...]
    ) -> WriteResult:
        metadata = body["metadata"]
        path = storage_path(entry, Key(metadata.get("namespace", ""), metadata["name"]))
        there = self.store.get(path)
        if there is not None:
            raise _already_exists(entry, metadata["name"], there)
        with self._service_allocation(entry, None, body, keep=not call.dry_run):
            if call.dry_run:
                return WriteResult(encode_object(body), created=True, warnings=warnings)
            try:
                (record,) = await self.store.commit(StoreWrite(path, storage_form(entry, body), 0))
            except StaleWrite as error:
                raise _already_exists(entry, metadata["name"], error.current) from None
        return WriteResult(entry.served_bytes(record.data), created=True, warnings=warnings)

    @contextmanager
    def _service_allocation(self, entry: ServedKind, old: JSON | None, new: JSON, *, keep: bool) -> Iterator[None]:
        """Give a service its addresses for as long as it is stored; those of the loser are free again."""
        if not is_core_resource(entry, "services"):
            yield
            return
        problems = self._service_allocator.allocate(new, old)
        if problems:
            raise apierrors.invalid(entry, new["metadata"]["name"], problems)
        done = False
        try:
            yield
            done = keep
        finally:
            self._service_allocator.release_replaced(old if done else new, new if done else old)

    # Changing

    async def update(
        self, call: WriteContext, entry: ServedKind, key: Key, transform: UpdateFunc, *, upsert: bool = False
    ) -> WriteResult:
        """Let `transform` make the new object, and store it. With `upsert`, one that is missing is created."""
        for _ in range(MAX_COMMIT_ATTEMPTS):
            record = self.store.get(storage_path(entry, key))
            if record is None:
                if not upsert:
                    raise apierrors.not_found(entry, key.name)
                body = transform(None)
                registry_metadata.ensure_metadata(body).pop("resourceVersion", None)
                return await self.create(call, entry, key.namespace, body)
            new = transform(decode_record(record, entry))
            registry_metadata.check_object_key(entry, key, new)
            pinned = bool(registry_metadata.version_precondition(new["metadata"])) and call.is_put
            try:
                return await self._commit_update(call, entry, record, new)
            except StaleWrite:
                if pinned:
                    raise apierrors.conflict(entry, key.name, apierrors.MODIFIED_MESSAGE) from None
        raise apierrors.conflict(entry, key.name, apierrors.MODIFIED_MESSAGE)

    async def apply(self, call: WriteContext, entry: ServedKind, key: Key, config: JSON, *, force: bool) -> WriteResult:
        """Server-side apply: the object has what the configuration says, and the manager owns it."""
        owned = entry.managed_kind(call.subresource)

        def merge(old: JSON | None, now: str) -> ApplyResult:
            result = server_side_apply(old, config, owned, manager=call.field_manager, now=now, force=force)
            _check_applied_values(entry, key.name, result.object)
            return result

        return await self.apply_with(call, entry, key, merge)

    async def apply_with(self, call: WriteContext, entry: ServedKind, key: Key, merge: ApplyFunc) -> WriteResult:
        """Let `merge` say what an apply makes of the object and who owns it then, and store that."""
        for _ in range(MAX_COMMIT_ATTEMPTS):
            record = self.store.get(storage_path(entry, key))
            old = decode_record(record, entry) if record is not None else None
            if old is None and call.subresource:
                raise apierrors.not_found(entry, key.name)
            try:
                result = merge(old, self.timestamp())
            except ApplyConflict as error:
                raise apierrors.apply_conflict(str(error), error.causes) from error
            registry_metadata.check_object_key(entry, key, result.object)
            if record is None:
                return await self._create_from_apply(call, entry, key, result)
            try:
                return await self._commit_update(call, entry, record, result.object, result.managed_fields)
            except StaleWrite:
                continue
        raise apierrors.conflict(entry, key.name, apierrors.MODIFIED_MESSAGE)

    async def _create_from_apply(
        self, call: WriteContext, entry: ServedKind, key: Key, result: ApplyResult
    ) -> WriteResult:
        metadata = result.object["metadata"]
        if uid := metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise apierrors.conflict(entry, key.name, why)
        metadata.pop("resourceVersion", None)
        return await self.create(call, entry, key.namespace, result.object, result.managed_fields)

    async def _commit_update(
        self,
        call: WriteContext,
        entry: ServedKind,
        record: StoreRecord,
        new: JSON,
        managed: list[JSON] | None = None,
    ) -> WriteResult:
        """Commit the new object in place of what was read. Raises `StaleWrite` when somebody was faster."""
        old = decode_record(record, entry)
        warnings = self._prepare_update(call, entry, old, new, managed)
        if equal_ignoring_timestamps(old, new):
            return WriteResult(entry.served_bytes(record.data), warnings=warnings)
        with self._service_allocation(entry, old, new, keep=not call.dry_run):
            if call.dry_run:
                return WriteResult(encode_object(new), warnings=warnings)
            return WriteResult(await self._commit_object(entry, record, new), warnings=warnings)

    def _prepare_update(
        self, call: WriteContext, entry: ServedKind, old: JSON, new: JSON, managed: list[JSON] | None
    ) -> tuple[str, ...]:
        """Default, restore, validate, note the owners: the new object becomes what may be stored."""
        name = old["metadata"]["name"]
        if call.expected_uid and call.expected_uid != old["metadata"]["uid"]:
            key = Key(old["metadata"].get("namespace", ""), name)
            raise apierrors.uid_mismatch(entry, key, call.expected_uid, old["metadata"])
        registry_metadata.preserve_system_fields(entry, name, old, new, put=call.is_put)
        new["kind"], new["apiVersion"] = entry.kind, entry.api_version
        wished = new["metadata"].get("managedFields")
        warnings = default_and_prune(call, entry, new)
        if wished == []:
            new["metadata"]["managedFields"] = []  # says more than nothing: the owners are to be forgotten
        owners = managed if managed is not None else _managed_fields(call, entry, old, new, self.timestamp())
        _set_managed_fields(entry, new, owners)
        preserve_priority(entry, new, old)
        problems = _apply_strategy(call.subresource, entry.strategy, new, old)
        if problems:
            raise apierrors.invalid(entry, name, problems)
        return (*warnings, *entry.strategy.warnings(new, old))

    async def _commit_object(self, entry: ServedKind, record: StoreRecord, new: JSON) -> bytes:
        """Commit the new object; one that was only waiting for its last finalizer goes with it."""
        if is_deletion_complete(new):
            # The answer shows the object without its finalizer; those who watch see it as it was.
            before = decode_record(record)
            await self.store.commit(StoreWrite(record.path, None, record.revision, final_body=before))
            self._release_addresses(entry, before)
            return encode_object(new)
        (kept,) = await self.store.commit(StoreWrite(record.path, storage_form(entry, new), record.revision))
        return entry.served_bytes(kept.data)

    def _release_addresses(self, entry: ServedKind, gone: JSON) -> None:
        if is_core_resource(entry, "services"):
            self._service_allocator.release_replaced(gone, None)

    # Deleting

    async def delete(self, call: WriteContext, entry: ServedKind, key: Key, options: DeletionOptions) -> WriteResult:
        """Begin, hasten or complete a deletion."""
        for _ in range(MAX_COMMIT_ATTEMPTS):
            record = self.get(entry, key)
            old = decode_record(record, entry)
            self._check_preconditions(entry, key, old, options)
            step = deletion(entry, old, options, self._clock.now())
            if call.dry_run:
                return self._deletion_result(entry, old, step)
            try:
                return await self._commit_deletion(entry, record, old, step)
            except StaleWrite:
                continue
        raise apierrors.conflict(entry, key.name, apierrors.MODIFIED_MESSAGE)

    async def delete_collection(
        self, entry: ServedKind, namespace: str, chosen: Selection, options: DeletionOptions
    ) -> list[bytes]:
        """Delete every selected object; those that are gone meanwhile are no error. Gives them as they were."""
        call = WriteContext(dry_run=options.dry_run)
        told: list[bytes] = []
        for record in self.store.range(collection_prefix(entry.storage_group, entry.plural, namespace)).records:
            if chosen and not chosen.matches(record):
                continue
            where = split_path(record.path)
            try:
                outcome = await self.delete(call, entry, Key(where.namespace, where.name), options)
            except apierrors.StatusError as refusal:
                if refusal.code != 404:
                    raise
            else:
                told.append(record.data if outcome.is_status else outcome.data)
        return told

    def _check_preconditions(self, entry: ServedKind, key: Key, old: JSON, options: DeletionOptions) -> None:
        metadata = old["metadata"]
        if options.uid and options.uid != metadata["uid"]:
            raise apierrors.precondition_failed(entry, key.name, "UID", options.uid, metadata["uid"])
        if options.resource_version and options.resource_version != metadata["resourceVersion"]:
            found = metadata["resourceVersion"]
            raise apierrors.precondition_failed(entry, key.name, "ResourceVersion", options.resource_version, found)
        if entry.plural == "namespaces" and not entry.group and key.name in IMMORTAL_NAMESPACES:
            raise apierrors.forbidden(entry, key.name, "this namespace may not be deleted")

    async def _commit_deletion(self, entry: ServedKind, record: StoreRecord, old: JSON, step: Deletion) -> WriteResult:
        if step.marked_object is not None and step.marked_object != old:
            (marked,) = await self.store.commit(
                StoreWrite(record.path, storage_form(entry, step.marked_object), record.revision)
            )
            if not step.removes_now:
                return WriteResult(entry.served_bytes(marked.data), warnings=step.warnings)
            record, old = marked, decode_record(marked, entry)
        elif not step.removes_now:
            return WriteResult(entry.served_bytes(record.data), warnings=step.warnings)
        await self.store.commit(StoreWrite(record.path, None, record.revision, final_body=storage_form(entry, old)))
        self._release_addresses(entry, old)
        return self._deletion_result(entry, old, step)

    def _deletion_result(self, entry: ServedKind, old: JSON, step: Deletion) -> WriteResult:
        if step.removes_now and not step.returns_object:
            metadata = old["metadata"]
            body = encode_object(apierrors.deletion_success(entry, metadata["name"], metadata["uid"]))
            return WriteResult(body, is_status=True, warnings=step.warnings)
        return WriteResult(encode_object(step.marked_object or old), warnings=step.warnings)

    def timestamp(self) -> str:
        """Now, as objects say it."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def storage_path(entry: ServedKind, key: Key) -> str:
    return object_path(entry.storage_group, entry.plural, key.namespace if entry.resource.namespaced else "", key.name)


def decode_record(record: StoreRecord, entry: ServedKind | None = None) -> JSON:
    """A copy of the object, free to be changed; with an entry, in its version."""
    value: JSON = msgspec.json.decode(record.data)
    return value if entry is None or entry.from_storage is None else entry.from_storage(value)


def storage_form(entry: ServedKind, body: JSON) -> JSON:
    """What goes into the store: the object in the version that is kept."""
    return with_kind_first(body if entry.to_storage is None else entry.to_storage(body))


def encode_object(body: JSON) -> bytes:
    return msgspec.json.encode(with_kind_first(body))


def with_kind_first(body: JSON) -> JSON:
    """Kind and apiVersion first: lists leave them out of items by cutting off that many bytes."""
    return {"kind": body["kind"], "apiVersion": body["apiVersion"], **body}


def default_and_prune(call: WriteContext, entry: ServedKind, body: JSON) -> list[str]:
    """Default and prune in place; what to warn of. Raises `Refused`."""
    try:
        if not isinstance(entry.strategy, CustomResourceStrategy):
            entry.strategy.normalize(body)
            return []
        prune_metadata(body["metadata"])
        dropped = [f'unknown field "{path}"' for path in entry.strategy.default_and_prune(body)]
    except (QuantityError, MetadataError) as error:
        raise apierrors.bad_request(str(error)) from error
    if dropped and call.field_validation == "Strict":
        raise UnknownFields(f"strict decoding error: {', '.join(dropped)}")
    return [] if call.field_validation == "Ignore" else dropped


def _apply_strategy(subresource: str, rules: Strategy, new: JSON, old: JSON) -> list[FieldProblem]:
    """Put back what a write here may not touch; what is wrong with the rest."""
    match subresource:
        case "status":
            rules.status.prepare_for_update(new, old)
            return rules.status.validate_update(new, old)
        case "finalize" if isinstance(rules, NamespaceStrategy):
            rules.prepare_for_finalize_update(new, old)
            return rules.validate_finalize_update(new, old)
        case "binding":
            return []  # the one write that may give a pod its node
        case _:
            rules.prepare_for_update(new, old)
            return rules.validate_update(new, old)


def _check_applied_values(entry: ServedKind, name: str, made: JSON) -> None:
    """What apply does not look at: whether amounts, times and bytes can be read. Raises `Refused` (500)."""
    if entry.decoder is None:
        return
    wrong = entry.decoder.errors(msgspec.json.encode(made), made).error
    if wrong:
        kind = f"{entry.group}/{entry.resource.version}, Kind={entry.kind}"
        why = f"error decoding from json: {wrong}" if wrong.startswith("illegal base64") else wrong
        raise StatusError(
            500,
            f"failed to convert new object (/{name}; {kind}) to proper version: "
            f"unable to convert unstructured object to {kind}: {why}",
        )


def _managed_fields(call: WriteContext, entry: ServedKind, old: JSON | None, new: JSON, now: str) -> list[JSON]:
    before: list[JSON] = ((old or {}).get("metadata") or {}).get("managedFields") or []
    if call.subresource == "binding":
        return before
    if call.subresource == "scale" and call.replicas_path is not None:
        return scaled_managed_fields(
            before,
            manager=call.field_manager,
            api_version=entry.api_version,
            path=[f"f:{step}" for step in call.replicas_path],
            changed=True,
        )
    return updated_managed_fields(old, new, entry.managed_kind(call.subresource), manager=call.field_manager, now=now)


def _set_managed_fields(entry: ServedKind, obj: JSON, managed: list[JSON]) -> None:
    if managed and entry.custom:
        # Objects that are maps for Go are written in the order of their keys; clients that sort texts depend on it.
        obj["metadata"]["managedFields"] = with_sorted_keys(managed)
    elif managed:
        obj["metadata"]["managedFields"] = managed
    else:
        obj["metadata"].pop("managedFields", None)


def with_sorted_keys(value: Any) -> Any:
    """The same value with all keys sorted."""
    if isinstance(value, dict):
        return {key: with_sorted_keys(value[key]) for key in sorted(value)}
    return [with_sorted_keys(item) for item in value] if isinstance(value, list) else value


def _already_exists(entry: ServedKind, name: str, there: StoreRecord | None) -> StatusError:
    ending = there is not None and "deletionTimestamp" in decode_record(there)["metadata"]
    return apierrors.already_exists(entry, name, terminating=ending)
