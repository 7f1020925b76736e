"""Carries decisions out: members are bound, or pinned, many at a time, until each is there or was refused.

Knows how, never whether. A call that failed is made again with growing pauses, for as long as nobody takes the order
back: the place stays reserved meanwhile. A server that says "bound already" is asked where: if it is where we wanted
it, an earlier call of ours got through and its answer did not. Every call carries the uid, so a pod that was deleted
and made again under its name is never touched.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import msgspec

from gangline.api.meta import JSON, Key
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GATE, PINNED_TO
from gangline.base.clock import Clock, Timer
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, Invalid, KubeError, NotFound
from gangline.kube.options import PatchForm
from gangline.kube.pods import Pods
from gangline.scheduler.gangs.member import PIN

log = logging.getLogger(__name__)

AT_ONCE = 32
FIRST, LONGEST = timedelta(milliseconds=50), timedelta(seconds=5)
"""Pauses between tries of one call: they double."""
GRACE_SECONDS = 3.0
"""How long calls under way may take when the term ends. Less than a lease has left after its last renewal."""
HOSTNAME = "kubernetes.io/hostname"
"""The label of a node by which a pod is pinned to it."""


class Order(msgspec.Struct, frozen=True):
    """One pod, one node."""

    key: Key
    uid: str
    node: str
    mode: str
    # What the node calls itself in its label, where pods are pinned.
    hostname: str = ""


class Orders(Protocol):
    """Who gives the orders, and is told what became of them."""

    def done(self, order: Order) -> None:
        """It is there, or told to go there."""
        ...

    def refused(self, order: Order, why: str) -> None:
        """It cannot be: the pod is gone, is another one, or has another place."""
        ...

    def failed(self, order: Order, error: KubeError) -> None:
        """A try failed; it will be tried again."""
        ...


class Committer:
    """Orders in, calls out. Inert until `run`."""

    def __init__(self, client: Client, clock: Clock, tell: Orders, *, at_once: int = AT_ONCE) -> None:
        self._client, self._clock, self._tell, self._at_once = client, clock, tell, at_once
        self._pods = Pods(client)
        self._ready: deque[Order] = deque()
        # By uid. An order that is not here any more was taken back.
        self._open: dict[str, Order] = {}
        # Whose call is under way.
        self._trying: set[str] = set()
        self._tries: dict[str, int] = {}
        self._timers: dict[str, Timer] = {}
        self._wake = asyncio.Event()
        self._closing = False

    @property
    def busy(self) -> bool:
        """Whether there are orders that have not been tried yet, or are being tried right now."""
        return len(self._open) > len(self._timers)

    def waits(self, uid: str) -> bool:
        """Whether its order is open and no call for it is under way."""
        return uid in self._open and uid not in self._trying

    def tries(self, uid: str) -> bool:
        """Whether a call for it is under way: nobody knows yet what comes of it."""
        return uid in self._trying

    def give(self, order: Order) -> None:
        """To be carried out as soon as there is a hand free."""
        self._open[order.uid] = order
        self._ready.append(order)
        self._wake.set()

    def take_back(self, uid: str) -> None:
        """No more tries. A call under way is not undone."""
        self._open.pop(uid, None)
        self._tries.pop(uid, None)
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()

    async def run(self) -> None:
        """Work until cancelled. Calls under way are then waited for, a moment: whoever leads next must find them done."""
        try:
            async with asyncio.TaskGroup() as group:
                hands = [group.create_task(self._work()) for _ in range(self._at_once)]
                try:
                    await asyncio.Event().wait()
                finally:
                    self._closing = True
                    self._wake.set()
                    await asyncio.wait(hands, timeout=GRACE_SECONDS)
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _work(self) -> None:
        while not self._closing:
            if not self._ready:
                self._wake.clear()
                await self._wake.wait()
                continue
            order = self._ready.popleft()
            if self._open.get(order.uid) is order:
                self._trying.add(order.uid)
                try:
                    await self._try(order)
                finally:
                    self._trying.discard(order.uid)

    async def _try(self, order: Order) -> None:
        try:
            await self._call(order)
        except (Conflict, Invalid) as error:
            await self._look(order, error)
        except NotFound as error:
            self._refuse(order, str(error))
        except KubeError as error:
            self._again(order, error)
        else:
            self._finish(order)

    async def _call(self, order: Order) -> None:
        if order.mode == PIN:
            body = pinned(order)
            await self._client.patch(Pod, order.key, body, form=PatchForm.STRATEGIC)
        else:
            await self._pods.bind(order.key, order.node, uid=order.uid)

    async def _look(self, order: Order, refusal: ApiError) -> None:
        """Whether the pod is where we wanted it after all."""
        try:
            found = await self._client.get(Pod, order.key)
        except NotFound as error:
            self._refuse(order, str(error))
            return
        except KubeError as error:
            self._again(order, error)
            return
        same = found.metadata.uid == order.uid
        if same and order.node == found.spec.node_name:
            self._finish(order)
        elif same and _open_to(order, found):
            # The conflict was about something that has passed.
            self._again(order, refusal)
        else:
            self._refuse(order, str(refusal))

    def _finish(self, order: Order) -> None:
        if self._open.get(order.uid) is order:
            self.take_back(order.uid)
            self._tell.done(order)

    def _refuse(self, order: Order, why: str) -> None:
        if self._open.get(order.uid) is order:
            self.take_back(order.uid)
            self._tell.refused(order, why)

    def _again(self, order: Order, error: KubeError) -> None:
        if self._open.get(order.uid) is not order:
            return
        tries = self._tries[order.uid] = self._tries.get(order.uid, 0) + 1
        delay = min(FIRST * (1 << min(tries - 1, 16)), LONGEST)
        asked = error.retry_after if isinstance(error, ApiError) else None
        log.warning(
            "placing failed, will retry",
            extra={"pod": order.key, "node": order.node, "error": str(error), "delay": delay},
        )
        self._timers[order.uid] = self._clock.call_later(max(delay, asked or delay), self._retry(order))
        self._tell.failed(order, error)

    def _retry(self, order: Order) -> Callable[[], None]:
        def ready() -> None:
            self._timers.pop(order.uid, None)
            self._ready.append(order)
            self._wake.set()

        return ready


def _open_to(order: Order, pod: Pod) -> bool:
    """Whether it still has no place: neither bound nor leaving, nor told by somebody else where to go."""
    told = order.mode == PIN and all(gate.name != GATE for gate in pod.spec.scheduling_gates)
    return not told and not pod.spec.node_name and pod.metadata.deletion_timestamp is None


def pinned(order: Order) -> JSON:
    """The patch that takes the gate off and says where: one step, so that nobody places it elsewhere in between."""
    return {
        "metadata": {"uid": order.uid, "annotations": {PINNED_TO: order.node}},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": GATE}],
            "nodeSelector": {HOSTNAME: order.hostname},
        },
    }
