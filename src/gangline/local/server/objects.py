"""What the server does with objects, without HTTP: create, patch, bind, delete, each one transaction."""

import uuid
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.kube.errors import Status, StatusDetails
from gangline.local.store.store import Record, StaleWrite, Store, Write


class Refused(Exception):
    """A request that gets a Status instead of an object."""

    def __init__(self, code: int, reason: str, message: str, resource: Resource[Any], name: str = "") -> None:
        super().__init__(message)
        details = StatusDetails(name=name, kind=resource.plural, group=resource.group)
        self.status = Status(status="Failure", message=message, reason=reason, code=code, details=details)


def store_path(resource: Resource[Any], namespace: str = "", name: str = "") -> str:
    """Where a collection (ends in a slash) or an object is kept."""
    scope = f"{namespace}/" if resource.namespaced and namespace else ""
    return f"/{resource.group}/{resource.plural}/{scope}{name}"


def versioned(record: Record) -> JSON:
    """The object as clients see it: with the revision as its resourceVersion."""
    value = record.value if record.value is not None else record.before
    assert value is not None
    return {**value, "metadata": {**value["metadata"], "resourceVersion": str(record.revision)}}


class Objects:
    """Objects of every served kind, kept in a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def get(self, resource: Resource[Any], key: Key) -> Record:
        record = await self._store.get(store_path(resource, *key))
        if record is None:
            raise Refused(404, "NotFound", f'{resource.name} "{key.name}" not found', resource, key.name)
        return record

    async def create(self, resource: Resource[Any], namespace: str, body: JSON) -> JSON:
        metadata = dict(body.get("metadata", {}))
        name = str(metadata.get("name", ""))
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=self._stamp(), generation=1)
        if resource.namespaced:
            metadata["namespace"] = namespace
        value = {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        if resource.kind == "Pod":
            value.setdefault("status", {"phase": "Pending"})
        write = Write(store_path(resource, namespace, name), value, 0)
        try:
            revision = await self._store.commit(write)
        except StaleWrite:
            message = f'{resource.name} "{name}" already exists'
            raise Refused(409, "AlreadyExists", message, resource, name) from None
        return versioned(Record(write.path, revision, value))

    async def change(
        self, resource: Resource[Any], key: Key, change: Callable[[JSON], None], expected: str
    ) -> JSON:
        """Read, change a copy, write back; again when somebody was faster, unless a version was asked for."""
        while True:
            record = await self.get(resource, key)
            if expected and expected != str(record.revision):
                raise self._stale(resource, key)
            value = deepcopy(record.value)
            assert value is not None
            change(value)
            value["metadata"].pop("resourceVersion", None)
            if value == record.value:
                return versioned(record)
            try:
                revision = await self._store.commit(Write(record.path, value, record.revision))
            except StaleWrite:
                continue
            return versioned(Record(record.path, revision, value))

    async def delete(self, resource: Resource[Any], key: Key, uid: str, grace: int | None) -> JSON:
        """A running pod is only marked, until its node lets go with grace 0; everything else is gone at once."""
        while True:
            record = await self.get(resource, key)
            value = record.value
            assert value is not None
            if uid and value["metadata"]["uid"] != uid:
                raise self._stale(resource, key)
            waits = resource.kind == "Pod" and grace != 0 and value.get("spec", {}).get("nodeName")
            marked = None
            if waits:
                marked = {**value, "metadata": {"deletionTimestamp": self._stamp(), **value["metadata"]}}
            try:
                revision = await self._store.commit(Write(record.path, marked, record.revision))
            except StaleWrite:
                continue
            return versioned(Record(record.path, revision, marked or value))

    def _stale(self, resource: Resource[Any], key: Key) -> Refused:
        message = (
            f'Operation cannot be fulfilled on {resource.name} "{key.name}": the object has been modified'
        )
        return Refused(409, "Conflict", message, resource, key.name)

    def _stamp(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def merge(target: JSON, patch: JSON) -> None:
    """JSON merge patch, in place."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            nested = target.setdefault(name, {})
            if not isinstance(nested, dict):
                nested = target[name] = {}
            merge(nested, value)
        else:
            target[name] = value
