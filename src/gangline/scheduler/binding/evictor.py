"""Asks pods to leave, through the eviction API: disruption budgets are asked first, and the uid must fit."""

import asyncio
import logging
from collections import deque
from datetime import timedelta
from typing import Never, Protocol

import msgspec

from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from gangline.kube.pods import Pods

log = logging.getLogger(__name__)

AT_ONCE = 8
TRIES, PAUSE = 5, timedelta(milliseconds=200)


class Notice(msgspec.Struct, frozen=True):
    """Who is to leave."""

    key: Key
    uid: str


class Notices(Protocol):
    """Who gave notice, and is told what became of it."""

    def stays(self, notice: Notice, why: str) -> None:
        """It does not leave: its budget forbids it now, or the server did not answer."""
        ...


class Evictor:
    """Notices in, evictions out. Inert until `run`."""

    def __init__(self, client: Client, clock: Clock, tell: Notices) -> None:
        self._pods, self._clock, self._tell = Pods(client), clock, tell
        self._ready: deque[Notice] = deque()
        self._wake = asyncio.Event()

    def give(self, notice: Notice) -> None:
        """To be served at once. One who is gone by then, or is another pod, is no business of ours."""
        self._ready.append(notice)
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> Never:
        while True:
            while not self._ready:
                self._wake.clear()
                await self._wake.wait()
            await self._serve(self._ready.popleft())

    async def _serve(self, notice: Notice) -> None:
        for left in reversed(range(TRIES)):
            try:
                await self._pods.evict(notice.key, uid=notice.uid)
            except (NotFound, Conflict):
                return
            except TooManyRequests as error:
                self._tell.stays(notice, str(error))
                return
            except KubeError as error:
                passing = not isinstance(error, ApiError) or isinstance(error, ServerError)
                log.warning("eviction failed", extra={"pod": notice.key, "error": str(error)})
                if not left or not passing:
                    self._tell.stays(notice, str(error))
                    return
                await self._clock.sleep(PAUSE * (TRIES - left))
            else:
                return
