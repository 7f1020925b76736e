"""One viewer: a distinct set of credentials with its client, its rights, its watches and its feeds.

All sessions with the same credentials share it. It does nothing that nobody looks at: a feed runs as long as someone is
connected to it, and a watch as long as a feed needs it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import supervise, unwrap_exception_group
from gangline.dashboard.live.board import BoardFeed
from gangline.dashboard.live.cluster import ClusterFeed
from gangline.dashboard.live.feed import Feed, ViewFailed
from gangline.dashboard.live.job import JobFeed
from gangline.dashboard.live.log_follower import SavedPositions
from gangline.dashboard.live.log_points import LogPointReader
from gangline.dashboard.live.past import Past
from gangline.dashboard.live.rights import ViewerRights
from gangline.dashboard.live.usage import UsageReader
from gangline.dashboard.live.watches import WatchPool
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport

FIELD_MANAGER = "gangline-dashboard"
REQUEST_TIMEOUT = timedelta(seconds=20)
FEED_LINGER = timedelta(seconds=5)
"""How long a feed goes on after its last connection: a page that is loaded again continues with it."""


MAX_VIEWS = 64
"""The most views of one viewer that run at the same time: each has watches of its own."""


class TooManyViews(GanglineError):
    """A viewer asks for more views at once than are served."""


class _RunningFeed:
    def __init__(self, feed: Feed, group: asyncio.TaskGroup) -> None:
        self.feed = feed
        self.users = 0
        self.tasks = [
            group.create_task(supervise(_run(feed), "dashboard view")),
            group.create_task(supervise(_publish(feed), "dashboard patches")),
        ]

    def cancel(self) -> None:
        for task in self.tasks:
            task.cancel()


async def _run(feed: Feed) -> None:
    """Run a feed. If the server refuses or does not answer, the feed ends with that problem."""
    try:
        with unwrap_exception_group():
            await feed.run()
    except GanglineError as error:
        feed.end(error)
    except ExceptionGroup as errors:
        # Several questions that a server did not answer at the same moment: one of them is enough.
        answers, others = errors.split(GanglineError)
        if answers is None or others is not None:
            feed.end(ViewFailed())
            raise
        feed.end(_first_error(answers))
    except Exception:
        # Whoever waits for it gets an answer; `supervise` logs the error.
        feed.end(ViewFailed())
        raise


async def _publish(feed: Feed) -> None:
    try:
        await feed.publish()
    except Exception:
        feed.end(ViewFailed())
        raise


def _first_error(errors: ExceptionGroup[GanglineError]) -> GanglineError:
    first = errors.exceptions[0]
    return _first_error(first) if isinstance(first, ExceptionGroup) else first


class Viewer:
    """An async context manager: the connection is open inside the block."""

    def __init__(
        self, connection: Connection, clock: Clock, group: asyncio.TaskGroup, history: Path | None = None
    ) -> None:
        """`group` runs its watches and feeds; `history` is the folder of the recorded past."""
        self.connection, self.clock, self._group = connection, clock, group
        self._transport = HttpTransport(connection, agent="gangline-dashboard", warn=lambda _: None)
        self.client = Client(self._transport, options=WriteOptions(FIELD_MANAGER), clock=clock, timeout=REQUEST_TIMEOUT)
        self.rights = ViewerRights(self.client, clock, [connection.namespace])
        self.watches = WatchPool(self.client, clock, group)
        self.log_positions, self.log_streams = SavedPositions(), 0
        self.log_points = LogPointReader(self.client)
        self.usage = UsageReader(self.client, self.rights, clock)
        self.past = Past(history, self.rights) if history is not None else None
        # The feeds that a new connection joins, and all that run: one that is over may still have connections.
        self._feeds: dict[tuple[str, ...], _RunningFeed] = {}
        self._running: set[_RunningFeed] = set()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feeds = {}
        tasks = [task for running in self._running for task in running.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.watches.close()
        await self._transport.__aexit__(kind, error, trace)

    @property
    def is_used(self) -> bool:
        """Whether someone is connected to a view."""
        return bool(self._running)

    @asynccontextmanager
    async def board(self, namespace: str) -> AsyncIterator[BoardFeed]:
        """The board of a namespace, or of all if that is empty."""
        async with self._join(
            ("board", namespace), lambda: BoardFeed(namespace, self.rights, self.watches, self.clock)
        ) as feed:
            assert isinstance(feed, BoardFeed)
            yield feed

    @asynccontextmanager
    async def job(self, kind: Resource[JSON], key: Key) -> AsyncIterator[JobFeed]:
        """The page of a job."""
        name = ("job", kind.plural, *key)
        async with self._join(
            name, lambda: JobFeed(kind, key, self.rights, self.watches, self.clock, self.past)
        ) as feed:
            assert isinstance(feed, JobFeed)
            yield feed

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[ClusterFeed]:
        """The nodes."""
        async with self._join(("cluster",), lambda: ClusterFeed(self.rights, self.watches, self.clock)) as feed:
            assert isinstance(feed, ClusterFeed)
            yield feed

    @asynccontextmanager
    async def _join(self, name: tuple[str, ...], make: Callable[[], Feed]) -> AsyncIterator[Feed]:
        if (joined := self._feeds.get(name)) is not None and not joined.feed.is_over:
            await joined.feed.check_rights()
        running = self._feeds.get(name)
        if running is None or running.feed.is_over:
            if len(self._running) >= MAX_VIEWS:
                raise TooManyViews(f"more than {MAX_VIEWS} views at once; wait some seconds")
            running = self._feeds[name] = _RunningFeed(make(), self._group)
            self._running.add(running)
        running.users += 1
        try:
            yield running.feed
        finally:
            running.users -= 1
            if not running.users:
                self.clock.call_later(FEED_LINGER, lambda: self._end_unused(name, running))

    def _end_unused(self, name: tuple[str, ...], running: _RunningFeed) -> None:
        if not running.users:
            running.cancel()
            self._running.discard(running)
            if self._feeds.get(name) is running:
                del self._feeds[name]
