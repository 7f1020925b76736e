"""Evicts pods through the eviction API, which checks disruption budgets and the uid."""

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
    """A request to evict one pod."""

    key: Key
    uid: str


class EvictionObserver(Protocol):
    """Learns what becomes of evict requests."""

    def eviction_refused(self, request: EvictRequest, reason: str) -> None:
        """The pod stays: its disruption budget forbids the eviction now, or the server did not answer."""
        ...


class Evictor:
    """Executes evict requests. Does nothing until `run`."""

    def __init__(self, client: Client, clock: Clock, observer: EvictionObserver) -> None:
        self._pods, self._clock, self._observer = PodSubresources(client), clock, observer
        self._queue: deque[EvictRequest] = deque()
        self._wake = asyncio.Event()

    def submit(self, request: EvictRequest) -> None:
        """Evict the pod as soon as a worker is free. A pod that is gone by then, or has another uid, is ignored."""
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
