"""Random histories of creations and deletions on the registry with its controllers, and what must be true at their end.

A history is determined by its seed: all tasks run on one event loop without a timer, and every commit and admission
yields a random number of times, so that other tasks come in between. By hand, as many as you like:

    PYTHONPATH=tests python -m support.property.deletion_histories 1000 --first 0
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.admission.lifecycle import CustomResourceLifecycle, NamespaceLifecycle
from gangline.apiserver.auth.signing_key import SigningKey
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.nonresource import NonResourceHandler
from gangline.apiserver.registry.admission import AdmissionChain, AdmissionPlugin, AdmissionRequest
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.served_kinds import builtin_catalog
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreEvent, StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from gangline.local.controllers.crds import CrdController
from gangline.local.controllers.garbage_collector import GarbageCollector
from gangline.local.controllers.namespace_deletion import NamespaceDeleter
from gangline.local.controllers.namespaces import NamespaceController
from gangline.testing.clock import FakeClock

CALL = WriteContext(field_manager="tester")
NAMESPACES = ("one", "two")
NAMES = ("a", "b", "c")
FINALIZERS = ("example.com/x", "example.com/y")
POLICIES = ("", "Background", "Foreground", "Orphan")
GROUP = "example.com"
CRD_RESOURCE = ("apiextensions.k8s.io", "customresourcedefinitions")
CUSTOM_PLURALS = ("widgets", "gadgets")
RESTART_RATE = 0.03
QUIET_ROUNDS = 120
"""After so many turns of the event loop without a commit nothing is under way: no commit takes that many."""

KINDS: dict[str, tuple[str, str, str]] = {
    "ConfigMap": ("", "v1", "configmaps"),
    "Pod": ("", "v1", "pods"),
    "HorizontalPodAutoscaler": ("autoscaling", "v1", "horizontalpodautoscalers"),
    "ClusterRole": ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    "Widget": (GROUP, "v1", "widgets"),
    "Gadget": (GROUP, "v1", "gadgets"),
}
CLUSTER_SCOPED = ("ClusterRole", "Gadget")
SCALE_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
BODIES: dict[str, JSON] = {
    "Pod": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 1, "scaleTargetRef": SCALE_TARGET}},
    "ClusterRole": {"rules": []},
}


class YieldingStore(Store):
    """A store whose commits let other tasks run first."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    async def commit(self, *writes: StoreWrite) -> tuple[StoreRecord, ...]:
        await yield_turns(self._dice.choice((0, 0, 1, 3)))
        return await super().commit(*writes)


class SlowAdmission(AdmissionPlugin):
    """Lets other tasks run between the admission of an object and its commit, as a webhook does."""

    name = "SlowAdmission"

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    async def validate(self, request: AdmissionRequest) -> None:
        await yield_turns(self._dice.choice((0, 0, 2, 12)))


async def yield_turns(count: int) -> None:
    """Let all other tasks run this many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class SeenObject(msgspec.Struct):
    """What was ever seen of one uid."""

    path: str
    kind: str
    created: int
    """The revision of its creation."""
    metadata: JSON
    ever_owned: bool = False
    deleted: int = 0
    """The revision at which it was removed; 0 while it exists."""
    marked: int = 0
    orphans: bool = False
    """Whether its mark came from a deletion that orphans its dependents."""
    references: dict[str, int] = {}
    """The uids of its owners, and the revision at which the reference was added."""


class OrphanPromise(msgspec.Struct, frozen=True):
    """A dependent that must outlive its owner, which was deleted with the policy Orphan."""

    owner: str
    dependent: str
    revision: int


class DeletionHistory:
    """One history on a server that is restarted now and then."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._dice = random.Random(seed)
        self._store = YieldingStore(random.Random(seed + 1))
        self._registry: Registry
        self._controllers: list[asyncio.Task[None]] = []
        self._requests: set[asyncio.Task[None]] = set()
        self._seen: dict[str, SeenObject] = {}
        self._reader: StoreWatch
        # What the client did, by uid: finalizers that it removed, objects that it deleted or changed, with the revision.
        self._released: set[tuple[str, str]] = set()
        self._touched: dict[str, int] = {}
        self._promises: list[OrphanPromise] = []
        self.log: list[str] = []
        self.problems: list[str] = []

    async def run(self, steps: int) -> None:
        """Play the history, and collect what is wrong at its end."""
        async with self._store:
            self._reader = self._store.watch("", after=self._store.revision)
            await self._play(steps)

    async def _play(self, steps: int) -> None:
        self._start()
        for _ in range(steps):
            await self._step()
            await yield_turns(self._dice.choice((0, 1, 1, 4, 20, 60)))
        await self._settle("at rest")
        self._check_rest()
        await self._release_all()
        await self._settle("after all finalizers are removed")
        self._check_rest()
        self._check_nothing_waits()
        await self._delete_all()
        await self._settle("after all is deleted")
        self._check_empty()
        await self._stop()

    # The server

    def _start(self) -> None:
        catalog, clock = builtin_catalog(), FakeClock()
        slow = SlowAdmission(random.Random(self._dice.random()))
        admission = AdmissionChain(
            [NamespaceLifecycle(self._store, catalog), CustomResourceLifecycle(self._store), slow]
        )
        self._registry = Registry(self._store, catalog, clock, admission=admission)
        collector = GarbageCollector(self._registry, clock)
        crds = CrdController(self._registry, NonResourceHandler("", SigningKey()), clock, collector.wait_until_settled)
        crds.serve_established()
        parts = [
            collector.run(), crds.run(), NamespaceController(self._registry).run(),
            NamespaceDeleter(self._registry, clock).run(),
        ]  # fmt: skip
        self._dice.shuffle(parts)
        self._controllers = [asyncio.create_task(part) for part in parts]

    async def _stop(self) -> None:
        tasks = [*self._controllers, *self._requests]
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _settle(self, when: str) -> None:
        """Run until nothing happens any more."""
        quiet, revision = 0, self._store.revision
        while quiet < QUIET_ROUNDS or self._requests:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._store.revision == revision else 0
            revision = self._store.revision
            if revision > 5000:
                self.problems.append("it never comes to rest")
                return
        self.log.append(f"-- {when}, revision {revision}")
        self._read_events()

    # The client

    async def _step(self) -> None:
        if self._dice.random() < RESTART_RATE:
            self.log.append("restart")
            await self._stop()
            self._start()
            return
        actions = {
            self._create_namespace: 6,
            self._delete_namespace: 3,
            self._create_crd: 6,
            self._delete_crd: 2,
            self._create_object: 30,
            self._delete_object: 12,
            self._change_finalizers: 10,
            self._change_owners: 6,
        }
        (action,) = self._dice.choices(list(actions), list(actions.values()))
        self._send(action)

    def _send(self, request: Callable[[], Awaitable[object]]) -> None:
        """Send a request without waiting for its answer. A refusal is an answer."""

        async def perform() -> None:
            try:
                await request()
            except StatusError as error:
                self.log.append(f"   {error.code} {error}"[:160])

        task = asyncio.create_task(perform())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _create_namespace(self) -> None:
        name = self._dice.choice(NAMESPACES)
        self.log.append(f"create namespace {name}")
        await self._registry.create(CALL, self._kind("", "v1", "namespaces"), "", {"metadata": {"name": name}})

    async def _delete_namespace(self) -> None:
        name = self._dice.choice(NAMESPACES)
        self.log.append(f"delete namespace {name}")
        await self._delete("", "v1", "namespaces", Key("", name), "")

    async def _create_crd(self) -> None:
        plural = self._dice.choice(CUSTOM_PLURALS)
        served, stored = self._dice.choice((("v1", "v1"), ("v1 v2", "v1"), ("v1 v2", "v2"), ("v1", "v2")))
        self.log.append(f"create CRD {plural}, serves {served}, stores {stored}")
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        versions = [
            {"name": name, "served": name in served, "storage": name == stored, "schema": schema}
            for name in ("v1", "v2")
        ]
        kind = plural[:-1].capitalize()
        spec = {
            "group": GROUP,
            "scope": "Cluster" if kind in CLUSTER_SCOPED else "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": versions,
        }
        body = {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec}
        await self._registry.create(CALL, self._kind(CRD_RESOURCE[0], "v1", CRD_RESOURCE[1]), "", body)

    async def _delete_crd(self) -> None:
        name = f"{self._dice.choice(CUSTOM_PLURALS)}.{GROUP}"
        self.log.append(f"delete CRD {name}")
        await self._delete(CRD_RESOURCE[0], "v1", CRD_RESOURCE[1], Key("", name), "")

    async def _create_object(self) -> None:
        kind = self._dice.choice(list(KINDS))
        namespace = "" if kind in CLUSTER_SCOPED else self._dice.choice(NAMESPACES)
        metadata: JSON = {"name": self._dice.choice(NAMES)}
        if self._dice.random() < 0.3:
            metadata["finalizers"] = self._dice.sample(FINALIZERS, self._dice.choice((1, 2)))
        if self._dice.random() < 0.6:
            metadata["ownerReferences"] = self._references()
        self.log.append(f"create {kind} {namespace}/{metadata['name']} {_brief(metadata)}")
        served = self._kind(*KINDS[kind])
        body = {**msgspec.json.decode(msgspec.json.encode(BODIES.get(kind, {}))), "metadata": metadata}
        await self._registry.create(CALL, served, namespace, body)

    async def _delete_object(self) -> None:
        seen = self._pick()
        if seen is None:
            return
        policy = self._dice.choice(POLICIES)
        path = split_path(seen.path)
        self.log.append(f"delete {seen.path} {policy}")
        group, version, plural = KINDS[seen.kind]
        key = Key(path.namespace, path.name)
        before = self._store.get(seen.path)
        old = _metadata(before) if before is not None else {"uid": ""}
        uid = old["uid"]
        self._touched[uid] = self._store.revision
        await self._delete(group, version, plural, key, policy, uid)
        if policy == "Orphan" and "deletionTimestamp" not in old:
            self._promise_orphans(uid)

    def _promise_orphans(self, owner: str) -> None:
        """Note which dependents must survive. It is called when the owner has its mark."""
        self._read_events()
        seen = self._seen.get(owner)
        if seen is None or seen.deleted or not seen.orphans:
            return
        for uid, other in self._seen.items():
            references = other.metadata.get("ownerReferences") or []
            is_only_owner = [item["uid"] for item in references] == [owner] and _names(references[0], seen)
            if is_only_owner and _in_reach(other, seen) and not other.deleted and not other.marked:
                self._promises.append(OrphanPromise(owner, uid, self._store.revision))

    async def _change_finalizers(self) -> None:
        seen = self._pick()
        if seen is None:
            return
        name, adds = self._dice.choice(FINALIZERS), self._dice.random() < 0.3
        self.log.append(f"{'add' if adds else 'remove'} finalizer {name} of {seen.path}")
        await self._set_finalizer(seen, name, adds=adds)

    async def _set_finalizer(self, seen: SeenObject, name: str, *, adds: bool) -> None:
        def transform(old: JSON | None) -> JSON:
            assert old is not None
            finalizers = [item for item in old["metadata"].get("finalizers", []) if item != name]
            if not adds:
                self._released.add((old["metadata"]["uid"], name))
                old["metadata"]["finalizers"] = finalizers
            elif "deletionTimestamp" not in old["metadata"]:
                old["metadata"]["finalizers"] = [*finalizers, name]
            return old

        path = split_path(seen.path)
        await self._registry.update(CALL, self._kind(*KINDS[seen.kind]), Key(path.namespace, path.name), transform)

    async def _change_owners(self) -> None:
        seen = self._pick()
        if seen is None:
            return
        references = self._references() if self._dice.random() < 0.7 else []
        self.log.append(f"own {seen.path} {_brief({'ownerReferences': references})}")

        def transform(old: JSON | None) -> JSON:
            assert old is not None
            self._touched[old["metadata"]["uid"]] = self._store.revision
            old["metadata"]["ownerReferences"] = references
            return old

        path = split_path(seen.path)
        await self._registry.update(CALL, self._kind(*KINDS[seen.kind]), Key(path.namespace, path.name), transform)

    def _references(self) -> list[JSON]:
        """References to one or two objects that exist or existed; some are wrong."""
        self._read_events()
        known = [uid for uid, seen in self._seen.items() if seen.kind in KINDS]
        found: dict[str, JSON] = {}
        for _ in range(self._dice.choice((1, 1, 1, 2))):
            if not known:
                break
            uid = self._dice.choice(known[-12:])
            seen = self._seen[uid]
            group, version, _ = KINDS[seen.kind]
            reference: JSON = {
                "apiVersion": f"{group}/{version}" if group else version,
                "kind": seen.kind,
                "name": split_path(seen.path).name,
                "uid": uid,
                "blockOwnerDeletion": self._dice.random() < 0.5,
            }
            flaw = self._dice.random()
            if flaw < 0.04:
                reference["uid"] = f"wrong-{self._dice.randrange(9)}"
            elif flaw < 0.08:
                reference["name"] = "wrong"
            found[reference["uid"]] = reference
        return list(found.values())

    def _pick(self) -> SeenObject | None:
        """An object that exists, or did a moment ago."""
        self._read_events()
        choices = [seen for seen in self._seen.values() if seen.kind in KINDS and not seen.deleted]
        return self._dice.choice(choices) if choices else None

    async def _delete(self, group: str, version: str, plural: str, key: Key, policy: str, uid: str = "") -> None:
        options = DeletionOptions(propagation_policy=policy, uid=uid)
        await self._registry.delete(CALL, self._kind(group, version, plural), key, options)

    def _kind(self, group: str, version: str, plural: str) -> ServedKind:
        kind = self._registry.catalog.find(group, version, plural)
        if kind is None:
            raise StatusError(404, "not served")
        return kind

    # Endings

    async def _release_all(self) -> None:
        """Remove every finalizer of the client, until none is left."""
        while held := [
            (seen, name)
            for seen in self._existing()
            for name in seen.metadata.get("finalizers", ())
            if name in FINALIZERS and seen.kind in KINDS
        ]:
            for seen, name in held:
                self._send(partial(self._set_finalizer, seen, name, adds=False))
            await self._settle("finalizers removed")

    async def _delete_all(self) -> None:
        for name in NAMESPACES:
            self._send(partial(self._delete, "", "v1", "namespaces", Key("", name), ""))
        for plural in CUSTOM_PLURALS:
            key = Key("", f"{plural}.{GROUP}")
            self._send(partial(self._delete, CRD_RESOURCE[0], "v1", CRD_RESOURCE[1], key, ""))

    # What was seen

    def _read_events(self) -> None:
        """Take in all changes since the last call, and check each."""
        while self._reader.revision < self._store.revision:
            step = self._reader.__anext__()
            try:
                step.send(None)
            except StopIteration as done:
                for event in done.value:
                    self._observe(event)
            else:
                raise AssertionError("a change that is there was not delivered")

    def _observe(self, event: StoreEvent) -> None:
        record, metadata = event.record, _metadata(event.record)
        uid = metadata["uid"]
        seen = self._seen.get(uid)
        if seen is None:
            kind = msgspec.json.decode(record.data)["kind"]
            seen = self._seen[uid] = SeenObject(record.path, kind, record.revision, metadata)
            self._check_birth(seen)
        before = set(seen.metadata.get("finalizers", ()))
        after = set() if event.deleted else set(metadata.get("finalizers", ()))
        for name in (before - after) & set(FINALIZERS):
            if (uid, name) not in self._released:
                self.problems.append(f"{record.path} lost its finalizer {name} at {record.revision}")
        seen.metadata = metadata
        if metadata.get("deletionTimestamp") and not seen.marked:
            seen.marked, seen.orphans = record.revision, "orphan" in metadata.get("finalizers", ())
        references = {item["uid"] for item in metadata.get("ownerReferences", ())}
        seen.references = {item: seen.references.get(item, record.revision) for item in references}
        seen.ever_owned = seen.ever_owned or bool(references)
        if event.deleted:
            seen.deleted = record.revision

    def _check_birth(self, seen: SeenObject) -> None:
        """No object is created in a namespace, or of a kind, that does not exist."""
        path = split_path(seen.path)
        if path.namespace and self._alive(f"//namespaces//{path.namespace}") is None:
            self.problems.append(f"{seen.path} was created at {seen.created} without its namespace")
        if path.group == GROUP and self._alive(_crd_path(path.plural)) is None:
            self.problems.append(f"{seen.path} was created at {seen.created} without its CRD")

    def _alive(self, path: str) -> SeenObject | None:
        return next((seen for seen in self._seen.values() if seen.path == path and not seen.deleted), None)

    def _existing(self) -> list[SeenObject]:
        return [seen for seen in self._seen.values() if not seen.deleted]

    def _parents(self, seen: SeenObject) -> Iterator[tuple[str, SeenObject | None]]:
        """The namespace and the CRD that the object needs, as far as they exist."""
        path = split_path(seen.path)
        if path.namespace:
            yield "namespace", self._alive(f"//namespaces//{path.namespace}")
        if path.group == GROUP:
            yield "CRD", self._alive(_crd_path(path.plural))

    # What must be true

    def _check_rest(self) -> None:
        for seen in self._existing():
            if seen.kind not in KINDS:
                continue
            self._check_parents(seen)
            if seen.marked:
                self._check_waits(seen)
            elif seen.references:
                self._check_owners(seen)
        self._check_survivors()
        self._check_orphans()
        for seen in self._existing():
            if seen.kind in ("Namespace", "CustomResourceDefinition") and seen.marked and not self._contents(seen):
                self.problems.append(f"{seen.path} is empty and still there")

    def _contents(self, parent: SeenObject) -> list[SeenObject]:
        return [seen for seen in self._existing() if any(other is parent for _, other in self._parents(seen))]

    def _check_parents(self, seen: SeenObject) -> None:
        for what, parent in self._parents(seen):
            if parent is None:
                self.problems.append(f"{seen.path} exists without its {what}")
            elif seen.created < parent.created:
                self.problems.append(f"{seen.path} is older than its {what}")
            elif parent.marked and not seen.marked and not self._waits_for_pods(parent):
                self.problems.append(f"{seen.path} is not deleted with its {what}")

    def _waits_for_pods(self, parent: SeenObject) -> bool:
        return parent.kind == "Namespace" and any(seen.kind == "Pod" for seen in self._contents(parent))

    def _check_waits(self, seen: SeenObject) -> None:
        """An object that is being deleted waits for the client, or for a dependent that blocks it."""
        finalizers = set(seen.metadata.get("finalizers", ()))
        if "orphan" in finalizers:
            self.problems.append(f"{seen.path} still has the finalizer orphan")
        if "foregroundDeletion" in finalizers and not self._blocking(seen):
            self.problems.append(f"{seen.path} waits for no dependent")
        if not finalizers:
            self.problems.append(f"{seen.path} waits for nothing")

    def _blocking(self, owner: SeenObject) -> list[SeenObject]:
        """The dependents that the owner waits for."""
        return [
            other
            for other in self._existing()
            for item in other.metadata.get("ownerReferences", ())
            if item["uid"] == owner.metadata["uid"] and item.get("blockOwnerDeletion")
            if other is not owner and _names(item, owner) and _in_reach(other, owner)
        ]

    def _check_owners(self, seen: SeenObject) -> None:
        """An object with owners has one that exists, or one of which nothing can be known."""
        for item in seen.metadata["ownerReferences"]:
            owner = self._seen.get(item["uid"])
            if self._is_unknown(seen, item, owner):
                return
            if owner is None or owner.deleted or not _names(item, owner) or not _in_reach(seen, owner):
                continue
            if not (owner.marked and "foregroundDeletion" in owner.metadata.get("finalizers", ())):
                return
        self.problems.append(f"{seen.path} is left although its owners are gone")

    def _is_unknown(self, seen: SeenObject, reference: JSON, owner: SeenObject | None) -> bool:
        path, kind = split_path(seen.path), reference["kind"]
        if not path.namespace and kind not in CLUSTER_SCOPED:
            return True
        if KINDS[kind][0] != GROUP or self._alive(_crd_path(KINDS[kind][2])) is not None:
            return False
        # Its kind is not served. The collector knows that the owner is gone if the reference was there before.
        if owner is None or not _names(reference, owner) or not _in_reach(seen, owner):
            return True
        return not 0 < seen.references[reference["uid"]] < owner.deleted

    def _check_survivors(self) -> None:
        """What nobody deleted, directly or with its namespace, CRD or owner, is there."""
        for uid, seen in self._seen.items():
            if seen.kind not in KINDS or not seen.deleted or seen.ever_owned or uid in self._touched:
                continue
            if not self._lost_parent(seen):
                self.problems.append(f"{seen.path} was deleted at {seen.deleted} by nobody")

    def _lost_parent(self, seen: SeenObject) -> bool:
        """Whether the namespace or the CRD of the object was deleted in its life."""
        path = split_path(seen.path)
        places = {f"//namespaces//{path.namespace}", _crd_path(path.plural)}
        end = seen.deleted or self._store.revision + 1
        return any(
            other.path in places and other.created < seen.created < (other.deleted or end) and 0 < other.marked < end
            for other in self._seen.values()
        )

    def _check_orphans(self) -> None:
        for promise in self._promises:
            owner, dependent = self._seen[promise.owner], self._seen[promise.dependent]
            changed = max(self._touched.get(promise.dependent, 0), 0) >= promise.revision - 30
            overruled = self._touched.get(promise.owner, 0) > promise.revision - 1
            if changed or overruled or self._lost_parent(dependent) or self._lost_parent(owner):
                continue
            if dependent.deleted:
                self.problems.append(f"{dependent.path} was to be orphaned and is deleted at {dependent.deleted}")
            elif promise.owner in dependent.references:
                self.problems.append(f"{dependent.path} still names the owner that orphaned it")

    def _check_nothing_waits(self) -> None:
        for seen in self._existing():
            if seen.marked and not self._is_stuck(seen):
                self.problems.append(f"{seen.path} is never deleted: {seen.metadata.get('finalizers')}")

    def _is_stuck(self, seen: SeenObject) -> bool:
        """Whether it waits for a dependent that names a namespaced owner without being in a namespace, or in turn waits.

        Kubernetes' collector decides nothing about such a dependent.
        """
        if seen.kind in ("Namespace", "CustomResourceDefinition"):
            return any(self._is_stuck(other) for other in self._contents(seen))
        return any(
            self._is_stuck(other)
            if other.marked
            else any(self._is_unknown(other, item, None) for item in other.metadata["ownerReferences"])
            for other in self._blocking(seen)
        )

    def _check_empty(self) -> None:
        for seen in self._existing():
            path = split_path(seen.path)
            is_deleted = {path.namespace, path.name} & set(NAMESPACES) or {path.group, path.plural} & {
                GROUP,
                CRD_RESOURCE[1],
            }
            if is_deleted and not self._is_stuck(seen):
                self.problems.append(f"{seen.path} is left at the end")


def _metadata(record: StoreRecord) -> JSON:
    found: JSON = msgspec.json.decode(record.data)["metadata"]
    return found


def _crd_path(plural: str) -> str:
    return f"/{CRD_RESOURCE[0]}/{CRD_RESOURCE[1]}//{plural}.{GROUP}"


def _names(reference: JSON, owner: SeenObject) -> bool:
    return bool(reference["name"] == split_path(owner.path).name and reference["kind"] == owner.kind)


def _in_reach(dependent: SeenObject, owner: SeenObject) -> bool:
    return split_path(owner.path).namespace in ("", split_path(dependent.path).namespace)


def _brief(metadata: JSON) -> str:
    owners = [
        f"{item['kind']}/{item['name']}{'!' if item['blockOwnerDeletion'] else ''}"
        for item in metadata.get("ownerReferences", ())
    ]
    return " ".join([*metadata.get("finalizers", ()), *(f"owner {owner}" for owner in owners)])


def play(seed: int, steps: int = 60) -> DeletionHistory:
    """Play one history to its end."""

    async def run() -> DeletionHistory:
        history = DeletionHistory(seed)
        await history.run(steps)
        return history

    return asyncio.run(run())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    failed = 0
    for seed in range(options.first, options.first + options.count):
        history = play(seed, options.steps)
        if history.problems:
            failed += 1
            lines: list[Any] = [*history.log, *history.problems] if options.verbose else history.problems[:3]
            print(f"seed {seed}:", *lines, sep="\n  ")
    print(f"{options.count} histories, {failed} with problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
