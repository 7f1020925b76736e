"""List and watch objects of one kind; resume a watch that ended, list again after 410 Gone or a broken connection."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import NamedTuple

from gangline.api.meta import JSON, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock, SystemClock
from gangline.cli.resources.lookup import resource_version
from gangline.kube.client import Client
from gangline.kube.errors import Gone, StreamBroken, Unreachable
from gangline.kube.watch import ChangeType, ObjectChange

MAX_RECONNECTS = 5
"""How many times in a row to reconnect to a server that is unreachable."""
RECONNECT_DELAY = timedelta(seconds=1)


class WatchedObject(NamedTuple):
    """An object in its current or, if deleted, last state; a body of None marks the end of the initial list."""

    body: JSON | None
    deleted: bool = False


async def watch_objects(
    client: Client, resource: Resource[JSON], selector: Selector, clock: Clock | None = None
) -> AsyncGenerator[WatchedObject, None]:
    """Every selected object, then `WatchedObject(None)` once, then each change, without end: close it with `aclosing`.

    After a broken connection it lists again and yields what changed meanwhile. Raises `ApiError`, and `Unreachable`
    if the server does not come back.
    """
    clock = clock or SystemClock()
    objects: dict[str, JSON] = {}
    first, failures = True, 0
    while True:
        try:
            page = await client.list(resource, selector)
            for change in _list_changes(objects, page.items):
                yield change
            if first:
                yield WatchedObject(None)
            first, failures = False, 0
            version = page.metadata.resource_version
            while True:
                async with aclosing(client.watch(resource, selector, since=version)) as events:
                    async for event in events:
                        version = event.resource_version or version
                        if isinstance(event, ObjectChange):
                            deleted = event.type is ChangeType.DELETED
                            uid = event.object["metadata"]["uid"]
                            objects[uid] = event.object
                            if deleted:
                                del objects[uid]
                            yield WatchedObject(event.object, deleted)
        except Gone:
            continue
        except (StreamBroken, Unreachable):
            failures += 1
            if first or failures > MAX_RECONNECTS:
                raise
            await clock.sleep(RECONNECT_DELAY)


def _list_changes(objects: dict[str, JSON], listed: Iterable[JSON]) -> Iterator[WatchedObject]:
    """The differences between `objects` (by uid) and a new list. Updates `objects` while it is iterated."""
    current = {body["metadata"]["uid"]: body for body in listed}
    for uid in [uid for uid in objects if uid not in current]:
        yield WatchedObject(objects.pop(uid), deleted=True)
    for uid, body in current.items():
        before = objects.get(uid)
        if before is None or resource_version(before) != resource_version(body):
            objects[uid] = body
            yield WatchedObject(body)
