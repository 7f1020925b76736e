"""Writes a pod's status until the API has taken it. Never in the way of the pod's life, never lost.

Annotations of the node's own go first: whoever sees the end of a program sees also what it last reported.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta

from gangline.api.core import Pod
from gangline.api.meta import JSON, Condition, Key
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
)
from gangline.node.pods.status import OURS, written

log = logging.getLogger(__name__)

FIRST, LONGEST = timedelta(milliseconds=200), timedelta(seconds=10)


class StatusWriter:
    """Holds the newest status of one pod and writes it.

    A status that is replaced before it was written is skipped; one that says nothing new is not written.
    """

    def __init__(self, client: Client, pod: Pod, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._key, self._uid = pod.metadata.key, pod.metadata.uid
        self._version = pod.metadata.resource_version
        self._others: tuple[Condition, ...] = ()
        self._wanted: JSON | None = None
        self._written: JSON | None = None
        # Annotations that are not written yet.
        self._marks: dict[str, str] = {}
        self._changed, self._settled = asyncio.Event(), asyncio.Event()
        self._settled.set()
        self.gone = False
        self.saw(pod)

    def saw(self, pod: Pod) -> None:
        """The pod as the API has it: its version guards the next write, conditions of others are kept in it."""
        if not _older(pod.metadata.resource_version, self._version):
            self._version = pod.metadata.resource_version
            self._others = tuple(each for each in pod.status.conditions if each.type not in OURS)

    def want(self, status: JSON) -> None:
        """This is the status now."""
        if status != (self._wanted or self._written):
            self._wanted = status
            self._settled.clear()
            self._changed.set()

    def mark(self, name: str, value: str) -> None:
        """This annotation is to be on the pod before the next status is written."""
        self._marks[name] = value
        self._settled.clear()
        self._changed.set()

    async def flushed(self) -> None:
        """Wait until the API has what is wanted, or the pod is gone."""
        await self._settled.wait()

    async def run(self) -> None:
        """Write until cancelled, or until the pod is gone."""
        while not self.gone:
            await self._changed.wait()
            self._changed.clear()
            if self._wanted is not None or self._marks:
                await self._write(self._wanted)
                self._settle()
        self._settled.set()

    def _settle(self) -> None:
        if self._wanted == self._written:
            self._wanted = None
        if (self._wanted is None and not self._marks) or self.gone:
            self._settled.set()

    async def _write(self, status: JSON | None) -> None:
        """The marks, and then the status, if there is one to write."""
        delay = FIRST
        while not self.gone:
            try:
                await self._annotate()
                if status is None:
                    return
                await self._patch(status)
            except NotFound:
                self.gone = True
            except Conflict:
                await self._look()
            except (Invalid, BadRequest):
                # A person is needed, and the next status may be better.
                log.exception("the API refuses a pod's status", extra={"pod": str(self._key)})
                self._written = status
                return
            except KubeError as error:
                log.warning(
                    "status not written, will retry", extra={"pod": str(self._key), "error": str(error)}
                )
                await self._clock.sleep(delay)
                delay = min(LONGEST, delay * 2)
                status = self._wanted or status
            else:
                self._written = status
                return

    async def _annotate(self) -> None:
        marks = dict(self._marks)
        if not marks:
            return
        body = {"metadata": {"uid": self._uid, "annotations": marks}}
        try:
            self.saw(await self._client.patch(Pod, self._key, body))
        except (Conflict, NotFound, ServerError, TooManyRequests):
            raise
        except ApiError as error:
            # It is not for us to write here. The status matters more.
            log.warning("pod not annotated", extra={"pod": str(self._key), "error": str(error)})
        self._marks = {name: value for name, value in self._marks.items() if marks.get(name) != value}

    async def _patch(self, status: JSON) -> None:
        body = {**status, "conditions": [*status["conditions"], *_written(self._others)]}
        self.saw(
            await self._client.patch(
                Pod, self._key, {"status": body}, subresource="status", resource_version=self._version
            )
        )

    async def _look(self) -> None:
        """Somebody else changed it: read it again. The version is taken as it is, newer or not."""
        try:
            pod = await self._client.get(Pod, self._key)
        except NotFound:
            self.gone = True
            return
        except KubeError:
            await self._clock.sleep(FIRST)
            return
        self.gone = pod.metadata.uid != self._uid
        self._version = ""
        self.saw(pod)


def _written(conditions: Iterable[Condition]) -> list[JSON]:
    return [written(each) for each in conditions]


def _older(one: str, other: str) -> bool:
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)


async def let_go(client: Client, key: Key, uid: str, clock: Clock) -> None:
    """Tell the API that nothing of the pod is left, until it has heard. Idempotent."""
    delay = FIRST
    while True:
        try:
            await client.delete(Pod, key, uid=uid, grace=timedelta())
        except (NotFound, Conflict):
            return
        except KubeError as error:
            log.warning("pod not released, will retry", extra={"pod": str(key), "error": str(error)})
            await clock.sleep(delay)
            delay = min(LONGEST, delay * 2)
        else:
            return
