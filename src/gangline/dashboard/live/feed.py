"""A view that changes: its viewers get one snapshot, then one small patch per change, each encoded once for all of them.

A viewer that reads slowly holds up nobody. Messages wait for it up to a limit; beyond that they are dropped, and the viewer
gets a new snapshot when it reads again.
"""

import asyncio
import logging
import zlib
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
PROBLEM_INTERVAL = timedelta(seconds=1)
"""How often a connection looks whether the watches still follow the server."""
MAX_WAITING_MESSAGES = 32
MAX_WAITING_BYTES = 256 * 1024

_ENCODER = msgspec.json.Encoder(enc_hook=str)


def sse_message(event: str, revision: int, data: Any) -> bytes:
    """A message of a server-sent event stream. JSON has no raw line ends, so one `data` line holds it."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event.encode(), revision, _ENCODER.encode(data))


GZIP_HEADER = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 4, 255))
"""The beginning of a stream in gzip: deflate, no name, no time, fastest, any system."""


class Message:
    """A message for any number of connections: encoded once, and compressed once if any of them wants that.

    What is compressed ends with a full flush and refers to nothing before it. So one after the other, after `GZIP_HEADER`,
    such pieces are one stream in gzip, whichever messages a connection gets.
    """

    __slots__ = ("_packed", "plain")

    def __init__(self, plain: bytes) -> None:
        self.plain = plain
        self._packed: bytes | None = None

    @property
    def packed(self) -> bytes:
        if self._packed is None:
            compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
            self._packed = compressor.compress(self.plain) + compressor.flush(zlib.Z_FULL_FLUSH)
        return self._packed

    def content(self, *, gzip: bool) -> bytes:
        """The bytes for one connection."""
        return self.packed if gzip else self.plain


class ViewFailed(GanglineError):
    """A view ended with an error that nobody expected."""

    def __init__(self) -> None:
        super().__init__("the dashboard failed; its log says why")


class RightsChanged(GanglineError):
    """A view ends because its viewer may read more or less than when it began."""


class Subscription:
    """One connection to a feed: the messages that wait for it, and whether it lost some."""

    def __init__(self, *, gzip: bool = False) -> None:
        self.gzip = gzip
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self.needs_snapshot = True
        self._arrived.set()

    def put(self, message: Message) -> None:
        """Queue a message; beyond the limit drop all of them in favour of a snapshot."""
        if self.needs_snapshot:
            return
        content = message.content(gzip=self.gzip)
        if len(self._waiting) >= MAX_WAITING_MESSAGES or self._size + len(content) > MAX_WAITING_BYTES:
            self.restart()
            return
        self._waiting.append(content)
        self._size += len(content)
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


STILL_HERE = Message(b": still here\n\n")


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
        self._snapshot: tuple[int, Message] | None = None

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

    async def _rights_have_changed(self) -> bool:
        """Whether the viewer may now read more or less than when the feed began."""
        return False

    async def check_rights(self) -> None:
        """End the feed if the rights of the viewer have changed: the next one shows what may be read now."""
        try:
            if await self._rights_have_changed():
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
        if not self._subscriptions:
            return
        message = Message(sse_message("patch", self.revision, patch))
        for subscription in self._subscriptions:
            subscription.put(message)

    def _snapshot_message(self) -> Message:
        """The snapshot as a message; encoded once per revision."""
        self.publish_now()
        if self._snapshot is None or self._snapshot[0] != self.revision:
            self._snapshot = (self.revision, Message(sse_message("snapshot", self.revision, self.content())))
        return self._snapshot[1]

    @contextmanager
    def subscribe(self, *, gzip: bool = False) -> Iterator[Subscription]:
        """A connection, until the block ends. `gzip`: its messages are compressed."""
        subscription = Subscription(gzip=gzip)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._snapshot = None  # as large as the view

    async def messages(self, subscription: Subscription, heartbeat: timedelta) -> AsyncIterator[bytes]:
        """What to send over one connection: a snapshot, then patches; whenever that changes, why nothing new can come.

        After a silence it is a comment.
        """
        reported, silence = "", timedelta()
        while not self._has_ended():
            problem = self.watch_problem()
            if problem != reported:
                if problem:
                    await self.check_rights()
                if self._has_ended():
                    return
                reported = problem
                report = Message(sse_message("problem", self.revision, {"message": problem}))
                yield report.content(gzip=subscription.gzip)
            patience = min(PROBLEM_INTERVAL, heartbeat - silence)
            try:
                async with asyncio.timeout(patience.total_seconds()):
                    await subscription.wait()
            except TimeoutError:
                silence += patience
                if silence < heartbeat:
                    continue
                silence = timedelta()
                if reported:
                    await self.check_rights()
                yield STILL_HERE.content(gzip=subscription.gzip)
                continue
            silence = timedelta()
            if self._has_ended():
                return
            if subscription.needs_snapshot:
                message = self._snapshot_message()
                subscription.take()
                subscription.needs_snapshot = False
                yield message.content(gzip=subscription.gzip)
            else:
                yield subscription.take()
