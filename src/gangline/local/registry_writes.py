"""Writes of controllers that share a process with the API server, and go to its registry directly."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.writes import WriteContext


@contextmanager
def ignore_status(*codes: int) -> Iterator[None]:
    """Suppress a `StatusError` with one of these codes, as 404 for an object that is already deleted."""
    try:
        yield
    except StatusError as error:
        if error.code not in codes:
            raise


async def edit_object(
    registry: Registry, call: WriteContext, kind: ServedKind, key: Key, uid: str, edit: Callable[[JSON], None]
) -> None:
    """Edit the object in place and store it, unless another object has its name by now. Raises `StatusError`."""

    def transform(old: JSON | None) -> JSON:
        assert old is not None
        if old["metadata"]["uid"] == uid:
            edit(old)
        return old

    await registry.update(call, kind, key, transform)


def remove_finalizer(holder: JSON, name: str) -> None:
    """Remove a finalizer from metadata (or from a namespace's spec); an empty list is removed too."""
    remaining = [finalizer for finalizer in holder.get("finalizers", ()) if finalizer != name]
    holder.pop("finalizers", None)
    if remaining:
        holder["finalizers"] = remaining


def storage_kind(registry: Registry, group: str, plural: str) -> ServedKind:
    """The storage version of a kind that every server has."""
    kind = registry.catalog.storage_kind(group, plural)
    assert kind is not None
    return kind
