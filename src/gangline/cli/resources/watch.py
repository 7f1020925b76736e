"""List and watch objects of one kind; resume a watch that ended, list again after 410 Gone or a broken connection."""

import sys
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
from gangline.summary.objects import resource_version

MAX_RECONNECTS = 5
"""How many times in a row to reconnect to a server that is unreachable."""
RECONNECT_DELAY = timedelta(seconds=1)


class Reconnects:
    """Waits between attempts to reach a server that went away, and gives up after `limit` attempts in a row.

    Without a limit it tries until interrupted, and prints that the server is gone, and that it is back.
    """

    def __init__(self, limit: int | None = MAX_RECONNECTS, clock: Clock | None = None) -> None:
        self._limit, self._clock = limit, clock or SystemClock()
        self._failures = 0
        self._announced = False

    def succeed(self) -> None:
        """The server answered."""
        if self._announced:
            print("connected again", file=sys.stderr)
        self._failures, self._announced = 0, False

    async def wait(self, error: StreamBroken | Unreachable) -> None:
        """Wait for the next attempt after `error`, which is raised if there were enough of them."""
        self._failures += 1
        if self._limit is not None and self._failures > self._limit:
            raise error
        if self._limit is None and isinstance(error, Unreachable) and not self._announced:
            self._announced = True
            print("the server does not answer; trying again until it does (Ctrl-C ends it)", file=sys.stderr)
        await self._clock.sleep(RECONNECT_DELAY)


class WatchedObject(NamedTuple):
    """An object in its current or, if deleted, last state; a body of None marks the end of the initial list."""

    body: JSON | None
    deleted: bool = False


async def watch_objects(
    client: Client, resource: Resource[JSON], selector: Selector, reconnects: Reconnects | None = None
) -> AsyncGenerator[WatchedObject, None]:
    """Every selected object, then `WatchedObject(None)` once, then each change, without end: close it with `aclosing`.

    After a broken connection it lists again and yields what changed meanwhile. Raises `ApiError`, and `Unreachable`
    if the server does not come back.
    """
    reconnects = reconnects or Reconnects()
    objects: dict[str, JSON] = {}
    first = True
    while True:
        try:
            page = await client.list(resource, selector)
            for change in _list_changes(objects, page.items):
                yield change
            if first:
                yield WatchedObject(None)
            first = False
            reconnects.succeed()
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
        except (StreamBroken, Unreachable) as error:
            if first:
                raise
            await reconnects.wait(error)


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
