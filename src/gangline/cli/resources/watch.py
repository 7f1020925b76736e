"""Objects as they are and as they change: list, watch, and list again when the server has forgotten."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import NamedTuple

from gangline.api.meta import JSON, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock, SystemClock
from gangline.kube.client import Client
from gangline.kube.errors import Gone, StreamBroken, Unreachable
from gangline.kube.watch import ChangeType, ObjectChange

MAX_RECONNECTS = 5
"""How often in a row a lost server is looked for again, a second apart."""
RECONNECT_DELAY = timedelta(seconds=1)


class WatchedObject(NamedTuple):
    """One object, as it is now or was last; or None, once everything that was there at first has been given."""

    body: JSON | None
    deleted: bool = False


async def watch_objects(
    client: Client, resource: Resource[JSON], where: Selector, clock: Clock | None = None
) -> AsyncGenerator[WatchedObject, None]:
    """Everything selected, then `Seen(None)` once, then each change; until the caller leaves.

    A connection that breaks is made again, and what changed meanwhile is given. Raises `ApiError`, and
    `Unreachable` when the server does not come back. Close it (`aclosing`) to leave.
    """
    clock = clock or SystemClock()
    known: dict[str, JSON] = {}
    first, failures = True, 0
    while True:
        try:
            page = await client.list(resource, where)
            for each in _list_changes(known, page.items):
                yield each
            if first:
                yield WatchedObject(None)
            first, failures = False, 0
            version = page.metadata.resource_version
            while True:
                async with aclosing(client.watch(resource, where, since=version)) as events:
                    async for event in events:
                        version = event.resource_version or version
                        if isinstance(event, ObjectChange):
                            deleted = event.type is ChangeType.DELETED
                            uid = event.object["metadata"]["uid"]
                            known[uid] = event.object
                            if deleted:
                                del known[uid]
                            yield WatchedObject(event.object, deleted)
        except Gone:
            continue
        except (StreamBroken, Unreachable):
            failures += 1
            if first or failures > MAX_RECONNECTS:
                raise
            await clock.sleep(RECONNECT_DELAY)


def _list_changes(known: dict[str, JSON], listed: Iterable[JSON]) -> Iterator[WatchedObject]:
    """What a list says that was not known. `known` is brought up to date."""
    there = {body["metadata"]["uid"]: body for body in listed}
    for uid in [uid for uid in known if uid not in there]:
        yield WatchedObject(known.pop(uid), deleted=True)
    for uid, body in there.items():
        before = known.get(uid)
        if before is None or _resource_version(before) != _resource_version(body):
            known[uid] = body
            yield WatchedObject(body)


def _resource_version(body: JSON) -> str:
    version: str = body["metadata"].get("resourceVersion", "")
    return version
