"""Executes bind requests: pods are bound, or pinned, many at a time, until each is placed or refused.

A failed call is retried with growing delays until the request is cancelled; the pod's place stays assumed meanwhile.
After a conflict the pod is read: if it is bound to the requested node, an earlier call of ours succeeded and its
response was lost. Every call carries the uid, so a pod that was deleted and created again under its name is never
touched.
"""

import asyncio
import logging
from collections import deque
from datetime import timedelta
from functools import partial
from typing import Protocol

import msgspec

from gangline.api.meta import JSON, Key
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GANG_GATE, PINNED_NODE_ANNOTATION
from gangline.base.clock import Clock, Timer
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, Invalid, KubeError, NotFound
from gangline.kube.options import PatchType
from gangline.kube.pods import PodSubresources
from gangline.scheduler.gangs.members import PIN
from gangline.scheduler.snapshot.node_info import HOSTNAME_LABEL

log = logging.getLogger(__name__)

MAX_CONCURRENT_BINDS = 32
FIRST_RETRY_DELAY, MAX_RETRY_DELAY = timedelta(milliseconds=50), timedelta(seconds=5)
"""Delays between attempts of one call: they double."""
SHUTDOWN_GRACE_SECONDS = 3.0
"""How long calls in flight may take after the leader's term ends. Shorter than what a lease has left after its last
renewal."""


class BindRequest(msgspec.Struct, frozen=True):
    """A request to place one pod on one node."""

    key: Key
    uid: str
    node: str
    mode: str
    # The node's hostname label, for pods that are pinned.
    hostname: str = ""


class BindObserver(Protocol):
    """Learns what becomes of bind requests."""

    def bind_succeeded(self, request: BindRequest) -> None:
        """The pod is bound or pinned."""
        ...

    def bind_refused(self, request: BindRequest, reason: str) -> None:
        """The pod cannot be placed there: it is gone, is another pod, or has another node."""
        ...

    def bind_failed(self, request: BindRequest, error: KubeError) -> None:
        """An attempt failed; it will be retried."""
        ...


class PodBinder:
    """Executes bind requests. Does nothing until `run`."""

    def __init__(
        self, client: Client, clock: Clock, observer: BindObserver, *, at_once: int = MAX_CONCURRENT_BINDS
    ) -> None:
        self._client, self._clock, self._observer, self._concurrency = client, clock, observer, at_once
        self._pods = PodSubresources(client)
        self._queue: deque[BindRequest] = deque()
        # By uid. A request that is not in here any more was cancelled.
        self._requests: dict[str, BindRequest] = {}
        # Pods with a call in flight.
        self._in_flight: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._timers: dict[str, Timer] = {}
        self._wake = asyncio.Event()
        self._closing = False

    @property
    def is_busy(self) -> bool:
        """Whether there are requests that have not been tried yet, or are being tried now."""
        return len(self._requests) > len(self._timers)

    def is_queued(self, uid: str) -> bool:
        """Whether the pod's request is open and no call for it is in flight."""
        return uid in self._requests and uid not in self._in_flight

    def is_in_flight(self, uid: str) -> bool:
        """Whether a call for the pod is in flight: its result is unknown."""
        return uid in self._in_flight

    def submit(self, request: BindRequest) -> None:
        """Execute the request as soon as a worker is free."""
        self._requests[request.uid] = request
        self._queue.append(request)
        self._wake.set()

    def cancel(self, uid: str) -> None:
        """Make no more attempts. A call in flight is not undone."""
        self._requests.pop(uid, None)
        self._attempts.pop(uid, None)
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()

    async def run(self) -> None:
        """Work until cancelled, then wait briefly for calls in flight: the next leader must see their results."""
        try:
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(self._run_worker()) for _ in range(self._concurrency)]
                try:
                    await asyncio.Event().wait()
                finally:
                    self._closing = True
                    self._wake.set()
                    await asyncio.wait(workers, timeout=SHUTDOWN_GRACE_SECONDS)
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _run_worker(self) -> None:
        while not self._closing:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            request = self._queue.popleft()
            if self._requests.get(request.uid) is request:
                self._in_flight.add(request.uid)
                try:
                    await self._attempt(request)
                finally:
                    self._in_flight.discard(request.uid)

    async def _attempt(self, request: BindRequest) -> None:
        try:
            await self._call(request)
        except (Conflict, Invalid) as error:
            await self._check_pod(request, error)
        except NotFound as error:
            self._refuse(request, str(error))
        except KubeError as error:
            self._retry_later(request, error)
        else:
            self._finish(request)

    async def _call(self, request: BindRequest) -> None:
        if request.mode == PIN:
            body = pin_patch(request)
            await self._client.patch(Pod, request.key, body, form=PatchType.STRATEGIC)
        else:
            await self._pods.bind(request.key, request.node, uid=request.uid)

    async def _check_pod(self, request: BindRequest, refusal: ApiError) -> None:
        """Read the pod after a conflict: it may be on the requested node, still unplaced, or placed otherwise."""
        try:
            pod = await self._client.get(Pod, request.key)
        except NotFound as error:
            self._refuse(request, str(error))
            return
        except KubeError as error:
            self._retry_later(request, error)
            return
        is_same_pod = pod.metadata.uid == request.uid
        if is_same_pod and request.node == pod.spec.node_name:
            self._finish(request)
        elif is_same_pod and _is_unplaced(request, pod):
            # The cause of the conflict has passed.
            self._retry_later(request, refusal)
        else:
            self._refuse(request, str(refusal))

    def _finish(self, request: BindRequest) -> None:
        if self._requests.get(request.uid) is request:
            self.cancel(request.uid)
            self._observer.bind_succeeded(request)

    def _refuse(self, request: BindRequest, reason: str) -> None:
        if self._requests.get(request.uid) is request:
            self.cancel(request.uid)
            self._observer.bind_refused(request, reason)

    def _retry_later(self, request: BindRequest, error: KubeError) -> None:
        if self._requests.get(request.uid) is not request:
            return
        attempts = self._attempts[request.uid] = self._attempts.get(request.uid, 0) + 1
        delay = min(FIRST_RETRY_DELAY * (1 << min(attempts - 1, 16)), MAX_RETRY_DELAY)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        log.warning(
            "bind failed, will retry",
            extra={"pod": request.key, "node": request.node, "error": str(error), "delay": delay},
        )
        delay = max(delay, retry_after or delay)
        self._timers[request.uid] = self._clock.call_later(delay, partial(self._requeue, request))
        self._observer.bind_failed(request, error)

    def _requeue(self, request: BindRequest) -> None:
        self._timers.pop(request.uid, None)
        self._queue.append(request)
        self._wake.set()


def _is_unplaced(request: BindRequest, pod: Pod) -> bool:
    """Whether the pod still has no node: it is neither bound, nor being deleted, nor pinned by another."""
    ungated = request.mode == PIN and all(gate.name != GANG_GATE for gate in pod.spec.scheduling_gates)
    return not ungated and not pod.spec.node_name and pod.metadata.deletion_timestamp is None


def pin_patch(request: BindRequest) -> JSON:
    """The patch that removes the gate and pins the pod, in one step, so that no scheduler places it in between."""
    return {
        "metadata": {"uid": request.uid, "annotations": {PINNED_NODE_ANNOTATION: request.node}},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": GANG_GATE}],
            "nodeSelector": {HOSTNAME_LABEL: request.hostname},
        },
    }
