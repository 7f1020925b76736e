"""Empties namespaces that are being deleted, and writes into their status what is left, as kube-controller-manager does.

Pods go first; everything else is deleted when no pod is left. When nothing is left, the finalizer is removed.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from gangline.api.meta import JSON, Key, timestamp
from gangline.apiserver.errors import StatusError
from gangline.apiserver.kinds.core.namespace import NAMESPACE_FINALIZER
from gangline.apiserver.registry.catalog import ServedKind, is_core_resource
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, object_path, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, remove_finalizer, storage_kind

CALL = WriteContext(field_manager="kube-controller-manager")
STATUS_CALL = msgspec.structs.replace(CALL, subresource="status")
FINALIZE_CALL = msgspec.structs.replace(CALL, subresource="finalize")
BACKGROUND = DeletionOptions(propagation_policy="Background")

OK_CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""Reason and message of each condition while there is no problem."""


class NamespaceNotEmptied(GanglineError):
    """Objects of a namespace could not be deleted."""


class RemainingContent(msgspec.Struct, frozen=True):
    """What a namespace has left after all of it was deleted."""

    counts: dict[str, int] = {}
    """How many objects are left, by `plural.group`."""
    finalizers: dict[str, int] = {}
    """How many objects are left with a finalizer, by finalizer."""
    errors: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.counts and not self.errors

    def problems(self) -> dict[str, tuple[str, str]]:
        """Reason and message of the conditions that are true."""
        found: dict[str, tuple[str, str]] = {}
        if self.errors:
            listed = ", ".join(sorted(self.errors))
            message = f"Failed to delete all resource types, {len(self.errors)} remaining: {listed}"
            found["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
        if self.counts:
            listed = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in self.counts.items()))
            found["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {listed}")
        if self.finalizers:
            listed = ", ".join(
                sorted(f"{name} in {count} resource instances" for name, count in self.finalizers.items())
            )
            message = f"Some content in the namespace has finalizers remaining: {listed}"
            found["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
        return found


def deletion_conditions(old: list[JSON], problems: dict[str, tuple[str, str]], now: str) -> list[JSON]:
    """The conditions of a namespace that is being deleted. A transition time is kept while the status is the same."""
    before = {condition["type"]: condition for condition in old}
    for type_, ok in OK_CONDITIONS.items():
        status = "True" if type_ in problems else "False"
        reason, message = problems.get(type_, ok)
        last = before.get(type_, {})
        since = last["lastTransitionTime"] if last.get("status") == status else now
        condition = {"type": type_, "status": status, "lastTransitionTime": since}
        before[type_] = {**condition, "reason": reason, "message": message}
    return list(before.values())


class NamespaceDeleter:
    """Watches the store, and empties every namespace that is being deleted. Inert until `run`."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry, self._clock = registry, clock
        self._terminating: set[str] = set()
        self._worker = KeyWorker("deletion of a namespace", self._reconcile, clock)

    async def run(self) -> None:
        """Empty namespaces until cancelled."""
        store = self._registry.store
        with store.watch("", after=store.revision) as changes:
            for record in store.range(collection_prefix("", "namespaces")).records:
                self._handle_event(StoreEvent(record, None))
            await self._worker.follow(changes, self._handle_event)

    def _handle_event(self, event: StoreEvent) -> None:
        path = split_path(event.record.path)
        if (path.group, path.plural) != ("", "namespaces"):
            if path.namespace in self._terminating:
                self._worker.add(path.namespace)
        elif event.deleted:
            self._terminating.discard(path.name)
        elif b'"deletionTimestamp"' in event.record.data:
            self._terminating.add(path.name)
            self._worker.add(path.name)

    async def _reconcile(self, name: str) -> None:
        """Delete all objects of the namespace; when none is left, remove its finalizer."""
        record = self._registry.store.get(object_path("", "namespaces", "", name))
        namespace: JSON = decode_record(record) if record is not None else {"metadata": {}}
        deleted_at = namespace["metadata"].get("deletionTimestamp")
        if not deleted_at or NAMESPACE_FINALIZER not in namespace["spec"].get("finalizers", ()):
            return
        await self._registry.creations.wait_for_namespace(name)
        content, conditions_content = await self._delete_contents(name, datetime.fromisoformat(deleted_at))
        await self._write_conditions(namespace, conditions_content)
        if content.errors:
            raise NamespaceNotEmptied(", ".join(content.errors))
        if content.is_empty:
            await self._edit(FINALIZE_CALL, namespace, lambda body: remove_finalizer(body["spec"], NAMESPACE_FINALIZER))

    async def _delete_contents(self, name: str, deleted_at: datetime) -> tuple[RemainingContent, RemainingContent]:
        """Delete what can be deleted now. Returns what is left, and what the conditions say of it."""
        kinds = [kind for kind in self._registry.catalog.collections() if kind.resource.namespaced]
        pods = [kind for kind in kinds if is_core_resource(kind, "pods")]
        left = await self._delete_collections(pods, name, deleted_at)
        if left.counts:
            # kube-controller-manager counts nothing while it waits for pods.
            return left, RemainingContent(errors=left.errors)
        others = await self._delete_collections(
            [kind for kind in kinds if not is_core_resource(kind, "pods")], name, deleted_at
        )
        content = RemainingContent(others.counts, others.finalizers, (*left.errors, *others.errors))
        return content, content

    async def _delete_collections(
        self, kinds: list[ServedKind], namespace: str, deleted_at: datetime
    ) -> RemainingContent:
        counts: dict[str, int] = {}
        finalizers: Counter[str] = Counter()
        errors: list[str] = []
        for kind in kinds:
            prefix = collection_prefix(kind.storage_group, kind.resource.plural, namespace)
            if not self._registry.store.has(prefix):
                continue
            may_linger = is_core_resource(kind, "pods") and self._has_grace_left(prefix, deleted_at)
            try:
                await self._registry.delete_all(kind, self._registry.store.range(prefix).records, BACKGROUND)
            except StatusError as error:
                errors.append(str(error))
            remaining = [decode_record(record)["metadata"] for record in self._registry.store.range(prefix).records]
            held = Counter(name for metadata in remaining for name in metadata.get("finalizers", ()))
            if remaining:
                counts[f"{kind.resource.plural}.{kind.resource.group}"] = len(remaining)
                finalizers += held
            if remaining and not held and not may_linger:
                resource = f"{kind.resource.group}/{kind.resource.version}, Resource={kind.resource.plural}"
                errors.append(f"unexpected items still remain in namespace: {namespace} for gvr: {resource}")
        return RemainingContent(counts, dict(finalizers), tuple(errors))

    def _has_grace_left(self, prefix: str, deleted_at: datetime) -> bool:
        """Whether a pod under the prefix may still be within its grace period."""
        pods = [decode_record(record) for record in self._registry.store.range(prefix).records]
        longest = max(
            (
                pod["spec"].get("terminationGracePeriodSeconds", 0)
                for pod in pods
                if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            ),
            default=0,
        )
        return self._clock.now() - deleted_at < timedelta(seconds=longest)

    async def _write_conditions(self, namespace: JSON, content: RemainingContent) -> None:
        now = timestamp(self._clock.now())

        def edit(body: JSON) -> None:
            status = body.setdefault("status", {})
            status["conditions"] = deletion_conditions(status.get("conditions") or [], content.problems(), now)

        await self._edit(STATUS_CALL, namespace, edit)

    async def _edit(self, call: WriteContext, namespace: JSON, edit: Callable[[JSON], None]) -> None:
        kind, metadata = storage_kind(self._registry, "", "namespaces"), namespace["metadata"]
        with ignore_status(404):
            await edit_object(self._registry, call, kind, Key("", metadata["name"]), metadata["uid"], edit)
