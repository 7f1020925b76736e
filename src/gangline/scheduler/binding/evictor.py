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
from gangline.kube.pods import PodSubresources

log = logging.getLogger(__name__)

MAX_CONCURRENT_EVICTIONS = 8
MAX_ATTEMPTS, RETRY_DELAY = 5, timedelta(milliseconds=200)


class EvictRequest(msgspec.Struct, frozen=True):
    """Who is to leave."""

    key: Key
    uid: str


class EvictionObserver(Protocol):
    """Who gave notice, and is told what became of it."""

    def eviction_refused(self, request: EvictRequest, reason: str) -> None:
        """It does not leave: its budget forbids it now, or the server did not answer."""
        ...


class Evictor:
    """Notices in, evictions out. Inert until `run`."""

    def __init__(self, client: Client, clock: Clock, observer: EvictionObserver) -> None:
        self._pods, self._clock, self._observer = PodSubresources(client), clock, observer
        self._queue: deque[EvictRequest] = deque()
        self._wake = asyncio.Event()

    def submit(self, request: EvictRequest) -> None:
        """To be served at once. One who is gone by then, or is another pod, is no business of ours."""
        self._queue.append(request)
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_EVICTIONS):
                group.create_task(self._run_worker())

    async def _run_worker(self) -> Never:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            await self._evict(self._queue.popleft())

    async def _evict(self, request: EvictRequest) -> None:
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            try:
                await self._pods.evict(request.key, uid=request.uid)
            except (NotFound, Conflict):
                return
            except TooManyRequests as error:
                self._observer.eviction_refused(request, str(error))
                return
            except KubeError as error:
                is_transient = not isinstance(error, ApiError) or isinstance(error, ServerError)
                log.warning("eviction failed", extra={"pod": request.key, "error": str(error)})
                if not attempts_left or not is_transient:
                    self._observer.eviction_refused(request, str(error))
                    return
                await self._clock.sleep(RETRY_DELAY * (MAX_ATTEMPTS - attempts_left))
            else:
                return
