"""A view that changes: its viewers get one snapshot, then one small patch per change, each encoded once for all of them.

A viewer that reads slowly holds up nobody. Messages wait for it up to a limit; beyond that they are dropped, and the viewer
gets a new snapshot when it reads again.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.kube.errors import KubeError, Unauthorized

log = logging.getLogger(__name__)

T = TypeVar("T")

PATCH_INTERVAL = timedelta(milliseconds=200)
"""The shortest time between two patches. Changes in between are one patch; the first after a pause is sent at once."""
MAX_WAITING_MESSAGES = 32
MAX_WAITING_BYTES = 256 * 1024

_ENCODER = msgspec.json.Encoder(enc_hook=str)


def sse_message(event: str, revision: int, data: Any) -> bytes:
    """A message of a server-sent event stream. JSON has no raw line ends, so one `data` line holds it."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event.encode(), revision, _ENCODER.encode(data))


class ViewFailed(GanglineError):
    """A view ended with an error that nobody expected."""

    def __init__(self) -> None:
        super().__init__("the dashboard failed; its log says why")


class RightsChanged(GanglineError):
    """A view ends because its viewer may read more or less than when it began."""


class Subscription:
    """One connection to a feed: the messages that wait for it, and whether it lost some."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self.needs_snapshot = True
        self._arrived.set()

    def put(self, message: bytes) -> None:
        """Queue a message; beyond the limit drop all of them in favour of a snapshot."""
        if self.needs_snapshot:
            return
        if len(self._waiting) >= MAX_WAITING_MESSAGES or self._size + len(message) > MAX_WAITING_BYTES:
            self.restart()
            return
        self._waiting.append(message)
        self._size += len(message)
        self._arrived.set()

    def restart(self) -> None:
        """Forget what waits: the next message is a snapshot."""
        self._waiting.clear()
        self._size, self.needs_snapshot = 0, True
        self._arrived.set()

    def take(self) -> bytes:
        """All messages that wait, in one piece; empty if there is none."""
        taken = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._arrived.clear()
        return taken

    async def wait(self) -> None:
        """Wait until there is a message, or a snapshot is needed."""
        await self._arrived.wait()


class Feed(ABC):
    """A view of one viewer, made of watches. Subclasses say what its content is and what has changed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.revision = 0
        self.is_over = False
        """Whether nothing will change any more; the next viewer begins anew."""
        self.problem: GanglineError | None = None
        self._ready, self._changed = asyncio.Event(), asyncio.Event()
        self._subscriptions: set[Subscription] = set()
        self._snapshot: tuple[int, bytes] | None = None

    @property
    def subscriber_count(self) -> int:
        return len(self._subscriptions)

    @abstractmethod
    async def run(self) -> None:
        """Hold the watches, and call `mark_changed` when one of them changes something; until cancelled."""

    async def wait_until_ready(self) -> None:
        """Return when the first snapshot has what the view is for. Raises what has ended the feed."""
        await self._ready.wait()
        if self.problem is not None:
            raise self.problem

    def is_outdated(self) -> bool:
        """Whether a new viewer would see more than this feed has: it begins anew then."""
        return self.is_over

    def end(self, problem: GanglineError) -> None:
        """The view cannot be shown, or not any more: connections end, and the next viewer begins anew."""
        self.problem, self.is_over = problem, True
        self._ready.set()
        for subscription in self._subscriptions:
            subscription.restart()

    def guarded(self, subscriber: Callable[[T], None]) -> Callable[[T], None]:
        """A subscriber whose unexpected error ends this view, and not the watch: others use it too."""

        def call(change: T) -> None:
            try:
                subscriber(change)
            except Exception:
                log.exception("a change cannot be shown")
                self.end(ViewFailed())

        return call

    def _has_ended(self) -> bool:
        return self.problem is not None

    @abstractmethod
    def watch_problem(self) -> str:
        """Why what is shown may be out of date; empty if it is not."""

    async def rights_have_changed(self) -> bool:
        """Whether the viewer may now read more or less than when the feed began."""
        return False

    async def check_rights(self) -> None:
        """End the feed if the rights of the viewer have changed: the next one shows what may be read now."""
        try:
            if await self.rights_have_changed():
                self.end(RightsChanged("what you may read has changed; look again"))
        except Unauthorized as error:
            self.end(error)
        except (KubeError, ExceptionGroup):
            pass  # Nobody can say; the watches have the same problem, which is reported.

    @abstractmethod
    def content(self) -> Any:
        """The whole view."""

    @abstractmethod
    def take_patch(self) -> Any | None:
        """What has changed since the last call; None if nothing has that a viewer sees."""

    def mark_changed(self) -> None:
        """Something has changed: a patch follows soon."""
        self._changed.set()

    async def publish(self) -> None:
        """Send patches to all connections, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.publish_now()
            await self.clock.sleep(PATCH_INTERVAL)

    def publish_now(self) -> None:
        """Send what has changed, if anything has."""
        patch = self.take_patch()
        if patch is None:
            return
        self.revision += 1
        message = sse_message("patch", self.revision, patch) if self._subscriptions else b""
        for subscription in self._subscriptions:
            subscription.put(message)

    def snapshot_message(self) -> bytes:
        """The snapshot as a message; encoded once per revision."""
        self.publish_now()
        if self._snapshot is None or self._snapshot[0] != self.revision:
            self._snapshot = (self.revision, sse_message("snapshot", self.revision, self.content()))
        return self._snapshot[1]

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """A connection, until the block ends."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._snapshot = None  # as large as the view

    async def messages(self, subscription: Subscription, heartbeat: timedelta) -> AsyncIterator[bytes]:
        """What to send over one connection: a snapshot, then patches; after a silence a comment, or why nothing comes."""
        reported = ""
        while not self._has_ended():
            try:
                async with asyncio.timeout(heartbeat.total_seconds()):
                    await subscription.wait()
            except TimeoutError:
                problem = self.watch_problem()
                if problem:
                    await self.check_rights()
                yield (
                    b": still here\n\n"
                    if problem == reported
                    else sse_message("problem", self.revision, {"message": problem})
                )
                reported = problem
                continue
            if self._has_ended():
                return
            if subscription.needs_snapshot:
                message = self.snapshot_message()
                subscription.take()
                subscription.needs_snapshot = False
                yield message
            else:
                yield subscription.take()
