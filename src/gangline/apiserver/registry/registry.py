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
from gangline.apiserver import refusals
from gangline.apiserver.apply.apply import Applied, ApplyConflict, applied
from gangline.apiserver.apply.managed import same_but_times, scaled, updated
from gangline.apiserver.errors import Refused, Undeclared
from gangline.apiserver.kinds.core.namespace import NamespaceKind
from gangline.apiserver.kinds.crd.resource_metadata import tidy
from gangline.apiserver.kinds.crd.resource_strategy import CustomKind
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.apiserver.registry import metadata as registry_metadata
from gangline.apiserver.registry.admission import Admission, keep_admitted
from gangline.apiserver.registry.catalog import Catalog, Entry
from gangline.apiserver.registry.deletion import DeleteOptions, Deletion, deletion, finished
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.registry.service_ips import ServiceAddresses
from gangline.apiserver.registry.traits import is_core
from gangline.apiserver.store.errors import StaleWrite
from gangline.apiserver.store.paths import collection_prefix, object_path, split_path
from gangline.apiserver.store.records import Record, Write
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.schema.problems import Problem
from gangline.schema.structural.embedded_objects import MetadataError

TRIES = 10

"""Subresources whose handlers change what an update may not, and nothing else."""

IMMORTAL = ("default", "kube-system", "kube-public")


class Call(msgspec.Struct, frozen=True):
    """How a write is asked for."""

    manager: str = "gangline"
    dry_run: bool = False
    subresource: str = ""
    validation: str = ""
    """What becomes of unknown fields: Strict, Warn (the default) or Ignore."""
    put: bool = False
    """Whether the whole object was sent: some kinds are not overwritten without a resourceVersion."""
    uid: str = ""
    """Only an object with this uid is meant."""
    scaled: tuple[str, ...] | None = None
    """Where the replicas are that a write of `scale` changes."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a write: the object as it is now (or was last), and what to warn of."""

    data: bytes
    created: bool = False
    warnings: tuple[str, ...] = ()
    status: bool = False
    """The data is a Status, not the object."""


Transform = Callable[[JSON | None], JSON]
"""Makes the new object of the old one, which it may change; None when there is none yet."""
Merge = Callable[[JSON | None, str], Applied]
"""What an apply makes of the object that is there, if any, at this time. Raises `ApplyConflict` or `Refused`."""


class Registry:
    """Objects of every kind in the catalog."""

    def __init__(self, store: Store, catalog: Catalog, clock: Clock, *, tells_inert: bool = True) -> None:
        """With `tells_inert`, whoever creates an object that nothing acts on is warned."""
        self.store, self.catalog, self._clock = store, catalog, clock
        self._admission, self._addresses = Admission(store, catalog), ServiceAddresses(store)
        self._tells_inert = tells_inert

    # Reading

    def get(self, entry: Entry, key: Key) -> Record:
        """The object. Raises `Refused` (404)."""
        record = self.store.get(path_of(entry, key))
        if record is None:
            raise refusals.not_found(entry, key.name)
        return record

    # Creating

    async def create(
        self, call: Call, entry: Entry, namespace: str, body: JSON, managed: list[JSON] | None = None
    ) -> Outcome:
        """Store a new object. The body is ours to change. `managed` says who owns what, where that is known."""
        metadata = registry_metadata.metadata_of(body)
        if registry_metadata.pinned_version(metadata):
            raise Refused(500, "resourceVersion should not be set on objects to be created")
        registry_metadata.check_namespace(entry, namespace, metadata)
        now = self.stamp()

        def taken(name: str) -> bool:
            return self.store.get(path_of(entry, Key(metadata.get("namespace", ""), name))) is not None

        registry_metadata.identify(metadata, now, taken)
        name = metadata.get("name") or ""
        body["kind"], body["apiVersion"] = entry.kind, entry.api_version
        warnings = prepared(call, entry, body)
        # Before the server adds anything of its own accord: nobody owns that.
        owners = managed if managed is not None else _owners(call, entry, None, body, now)
        _own(entry, body, owners)
        self._admission.admit(entry, Key(namespace, name), body)
        entry.rules.create(body, now)
        problems = entry.rules.validate(body)
        if problems:
            raise refusals.invalid(entry, name, problems)
        warnings += entry.rules.warnings(body, None)
        if self._tells_inert and entry.served.warning:
            warnings.append(entry.served.warning)
        return await self._insert(call, entry, body, tuple(warnings))

    async def _insert(self, call: Call, entry: Entry, body: JSON, warnings: tuple[str, ...]) -> Outcome:
        metadata = body["metadata"]
        path = path_of(entry, Key(metadata.get("namespace", ""), metadata["name"]))
        there = self.store.get(path)
        if there is not None:
            raise _taken(entry, metadata["name"], there)
        with self._addressed(entry, None, body, keep=not call.dry_run):
            if call.dry_run:
                return Outcome(encoded(body), created=True, warnings=warnings)
            try:
                (record,) = await self.store.commit(Write(path, stored(entry, body), 0))
            except StaleWrite as error:
                raise _taken(entry, metadata["name"], error.current) from None
        return Outcome(entry.show(record.data), created=True, warnings=warnings)

    @contextmanager
    def _addressed(self, entry: Entry, old: JSON | None, new: JSON, *, keep: bool) -> Iterator[None]:
        """Give a service its addresses for as long as it is stored; those of the loser are free again."""
        if not is_core(entry, "services"):
            yield
            return
        problems = self._addresses.take(new, old)
        if problems:
            raise refusals.invalid(entry, new["metadata"]["name"], problems)
        done = False
        try:
            yield
            done = keep
        finally:
            self._addresses.settle(old if done else new, new if done else old)

    # Changing

    async def change(
        self, call: Call, entry: Entry, key: Key, transform: Transform, *, upsert: bool = False
    ) -> Outcome:
        """Let `transform` make the new object, and store it. With `upsert`, one that is missing is created."""
        for _ in range(TRIES):
            record = self.store.get(path_of(entry, key))
            if record is None:
                if not upsert:
                    raise refusals.not_found(entry, key.name)
                body = transform(None)
                registry_metadata.metadata_of(body).pop("resourceVersion", None)
                return await self.create(call, entry, key.namespace, body)
            new = transform(decoded(record, entry))
            registry_metadata.check_place(entry, key, new)
            pinned = bool(registry_metadata.pinned_version(new["metadata"])) and call.put
            try:
                return await self._change(call, entry, record, new)
            except StaleWrite:
                if pinned:
                    raise refusals.conflict(entry, key.name, refusals.MODIFIED) from None
        raise refusals.conflict(entry, key.name, refusals.MODIFIED)

    async def apply(self, call: Call, entry: Entry, key: Key, config: JSON, *, force: bool) -> Outcome:
        """Server-side apply: the object has what the configuration says, and the manager owns it."""
        owned = entry.owned(call.subresource)

        def merge(old: JSON | None, now: str) -> Applied:
            result = applied(old, config, owned, manager=call.manager, now=now, force=force)
            _check_values(entry, key.name, result.object)
            return result

        return await self.applying(call, entry, key, merge)

    async def applying(self, call: Call, entry: Entry, key: Key, merge: Merge) -> Outcome:
        """Let `merge` say what an apply makes of the object and who owns it then, and store that."""
        for _ in range(TRIES):
            record = self.store.get(path_of(entry, key))
            old = decoded(record, entry) if record is not None else None
            if old is None and call.subresource:
                raise refusals.not_found(entry, key.name)
            try:
                result = merge(old, self.stamp())
            except ApplyConflict as error:
                raise refusals.apply_conflict(str(error), error.causes) from error
            registry_metadata.check_place(entry, key, result.object)
            if record is None:
                return await self._create_applied(call, entry, key, result)
            try:
                return await self._change(call, entry, record, result.object, result.managed)
            except StaleWrite:
                continue
        raise refusals.conflict(entry, key.name, refusals.MODIFIED)

    async def _create_applied(self, call: Call, entry: Entry, key: Key, result: Applied) -> Outcome:
        metadata = result.object["metadata"]
        if uid := metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise refusals.conflict(entry, key.name, why)
        metadata.pop("resourceVersion", None)
        return await self.create(call, entry, key.namespace, result.object, result.managed)

    async def _change(
        self, call: Call, entry: Entry, record: Record, new: JSON, managed: list[JSON] | None = None
    ) -> Outcome:
        """Commit the new object in place of what was read. Raises `StaleWrite` when somebody was faster."""
        old = decoded(record, entry)
        warnings = self._settle(call, entry, old, new, managed)
        if same_but_times(old, new):
            return Outcome(entry.show(record.data), warnings=warnings)
        with self._addressed(entry, old, new, keep=not call.dry_run):
            if call.dry_run:
                return Outcome(encoded(new), warnings=warnings)
            return Outcome(await self._replace(entry, record, new), warnings=warnings)

    def _settle(
        self, call: Call, entry: Entry, old: JSON, new: JSON, managed: list[JSON] | None
    ) -> tuple[str, ...]:
        """Default, restore, validate, note the owners: the new object becomes what may be stored."""
        name = old["metadata"]["name"]
        if call.uid and call.uid != old["metadata"]["uid"]:
            key = Key(old["metadata"].get("namespace", ""), name)
            raise refusals.stale_uid(entry, key, call.uid, old["metadata"])
        registry_metadata.same_object(entry, name, old, new, put=call.put)
        new["kind"], new["apiVersion"] = entry.kind, entry.api_version
        wished = new["metadata"].get("managedFields")
        warnings = prepared(call, entry, new)
        if wished == []:
            new["metadata"]["managedFields"] = []  # says more than nothing: the owners are to be forgotten
        owners = managed if managed is not None else _owners(call, entry, old, new, self.stamp())
        _own(entry, new, owners)
        keep_admitted(entry, new, old)
        problems = _restored(call.subresource, entry.rules, new, old)
        if problems:
            raise refusals.invalid(entry, name, problems)
        return (*warnings, *entry.rules.warnings(new, old))

    async def _replace(self, entry: Entry, record: Record, new: JSON) -> bytes:
        """Commit the new object; one that was only waiting for its last finalizer goes with it."""
        if finished(new):
            # The answer shows the object without its finalizer; those who watch see it as it was.
            before = decoded(record)
            await self.store.commit(Write(record.path, None, record.revision, final=before))
            self._freed(entry, before)
            return encoded(new)
        (kept,) = await self.store.commit(Write(record.path, stored(entry, new), record.revision))
        return entry.show(kept.data)

    def _freed(self, entry: Entry, gone: JSON) -> None:
        if is_core(entry, "services"):
            self._addresses.settle(gone, None)

    # Deleting

    async def delete(self, call: Call, entry: Entry, key: Key, options: DeleteOptions) -> Outcome:
        """Begin, hasten or complete a deletion."""
        for _ in range(TRIES):
            record = self.get(entry, key)
            old = decoded(record, entry)
            self._check_preconditions(entry, key, old, options)
            step = deletion(entry, old, options, self._clock.now())
            if call.dry_run:
                return self._deleted(entry, old, step)
            try:
                return await self._delete(entry, record, old, step)
            except StaleWrite:
                continue
        raise refusals.conflict(entry, key.name, refusals.MODIFIED)

    async def delete_all(
        self, entry: Entry, namespace: str, chosen: Selection, options: DeleteOptions
    ) -> list[bytes]:
        """Delete every selected object; those that are gone meanwhile are no error. Gives them as they were."""
        call = Call(dry_run=options.dry_run)
        told: list[bytes] = []
        for record in self.store.range(
            collection_prefix(entry.stored_group, entry.plural, namespace)
        ).records:
            if chosen and not chosen.takes(record):
                continue
            where = split_path(record.path)
            try:
                outcome = await self.delete(call, entry, Key(where.namespace, where.name), options)
            except refusals.Refused as refusal:
                if refusal.code != 404:
                    raise
            else:
                told.append(record.data if outcome.status else outcome.data)
        return told

    def _check_preconditions(self, entry: Entry, key: Key, old: JSON, options: DeleteOptions) -> None:
        metadata = old["metadata"]
        if options.uid and options.uid != metadata["uid"]:
            raise refusals.precondition(entry, key.name, "UID", options.uid, metadata["uid"])
        if options.resource_version and options.resource_version != metadata["resourceVersion"]:
            found = metadata["resourceVersion"]
            raise refusals.precondition(entry, key.name, "ResourceVersion", options.resource_version, found)
        if entry.plural == "namespaces" and not entry.group and key.name in IMMORTAL:
            raise refusals.forbidden(entry, key.name, "this namespace may not be deleted")

    async def _delete(self, entry: Entry, record: Record, old: JSON, step: Deletion) -> Outcome:
        if step.marked is not None and step.marked != old:
            (marked,) = await self.store.commit(
                Write(record.path, stored(entry, step.marked), record.revision)
            )
            if not step.gone:
                return Outcome(entry.show(marked.data), warnings=step.warnings)
            record, old = marked, decoded(marked, entry)
        elif not step.gone:
            return Outcome(entry.show(record.data), warnings=step.warnings)
        await self.store.commit(Write(record.path, None, record.revision, final=stored(entry, old)))
        self._freed(entry, old)
        return self._deleted(entry, old, step)

    def _deleted(self, entry: Entry, old: JSON, step: Deletion) -> Outcome:
        if step.gone and not step.shows_object:
            metadata = old["metadata"]
            body = encoded(refusals.success(entry, metadata["name"], metadata["uid"]))
            return Outcome(body, status=True, warnings=step.warnings)
        return Outcome(encoded(step.marked or old), warnings=step.warnings)

    def stamp(self) -> str:
        """Now, as objects say it."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def path_of(entry: Entry, key: Key) -> str:
    return object_path(
        entry.stored_group, entry.plural, key.namespace if entry.served.namespaced else "", key.name
    )


def decoded(record: Record, entry: Entry | None = None) -> JSON:
    """A copy of the object, free to be changed; with an entry, in its version."""
    value: JSON = msgspec.json.decode(record.data)
    return value if entry is None or entry.read is None else entry.read(value)


def stored(entry: Entry, body: JSON) -> JSON:
    """What goes into the store: the object in the version that is kept."""
    return ordered(body if entry.write is None else entry.write(body))


def encoded(body: JSON) -> bytes:
    return msgspec.json.encode(ordered(body))


def ordered(body: JSON) -> JSON:
    """Kind and apiVersion first: lists leave them out of items by cutting off that many bytes."""
    return {"kind": body["kind"], "apiVersion": body["apiVersion"], **body}


def prepared(call: Call, entry: Entry, body: JSON) -> list[str]:
    """Default and prune in place; what to warn of. Raises `Refused`."""
    try:
        if not isinstance(entry.rules, CustomKind):
            entry.rules.defaults(body)
            return []
        tidy(body["metadata"])
        dropped = [f'unknown field "{path}"' for path in entry.rules.prepared(body)]
    except (QuantityError, MetadataError) as error:
        raise refusals.bad_request(str(error)) from error
    if dropped and call.validation == "Strict":
        raise Undeclared(f"strict decoding error: {', '.join(dropped)}")
    return [] if call.validation == "Ignore" else dropped


def _restored(subresource: str, rules: Kind, new: JSON, old: JSON) -> list[Problem]:
    """Put back what a write here may not touch; what is wrong with the rest."""
    match subresource:
        case "status":
            rules.update_status(new, old)
            return rules.validate_status_update(new, old)
        case "finalize" if isinstance(rules, NamespaceKind):
            rules.update_finalizers(new, old)
            return rules.validate_finalize_update(new, old)
        case "binding":
            return []  # the one write that may give a pod its node
        case _:
            rules.update(new, old)
            return rules.validate_update(new, old)


def _check_values(entry: Entry, name: str, made: JSON) -> None:
    """What apply does not look at: whether amounts, times and bytes can be read. Raises `Refused` (500)."""
    if entry.decoder is None:
        return
    wrong = entry.decoder.findings(msgspec.json.encode(made), made).error
    if wrong:
        kind = f"{entry.group}/{entry.served.version}, Kind={entry.kind}"
        why = f"error decoding from json: {wrong}" if wrong.startswith("illegal base64") else wrong
        raise Refused(
            500,
            f"failed to convert new object (/{name}; {kind}) to proper version: "
            f"unable to convert unstructured object to {kind}: {why}",
        )


def _owners(call: Call, entry: Entry, old: JSON | None, new: JSON, now: str) -> list[JSON]:
    before: list[JSON] = ((old or {}).get("metadata") or {}).get("managedFields") or []
    if call.subresource == "binding":
        return before
    if call.subresource == "scale" and call.scaled is not None:
        return scaled(
            before,
            manager=call.manager,
            api_version=entry.api_version,
            path=[f"f:{step}" for step in call.scaled],
            changed=True,
        )
    return updated(old, new, entry.owned(call.subresource), manager=call.manager, now=now)


def _own(entry: Entry, obj: JSON, managed: list[JSON]) -> None:
    if managed and entry.custom:
        # Objects that are maps for Go are written in the order of their keys; clients that sort texts depend on it.
        obj["metadata"]["managedFields"] = in_order(managed)
    elif managed:
        obj["metadata"]["managedFields"] = managed
    else:
        obj["metadata"].pop("managedFields", None)


def in_order(value: Any) -> Any:
    """The same value with all keys sorted."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def _taken(entry: Entry, name: str, there: Record | None) -> Refused:
    ending = there is not None and "deletionTimestamp" in decoded(there)["metadata"]
    return refusals.already_exists(entry, name, terminating=ending)
