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
from gangline.node.pods.status import OWN_CONDITIONS, condition_body

log = logging.getLogger(__name__)

FIRST_RETRY_DELAY, MAX_RETRY_DELAY = timedelta(milliseconds=200), timedelta(seconds=10)


class PodStatusWriter:
    """Holds the newest status of one pod and writes it.

    A status that is replaced before it was written is skipped; one that says nothing new is not written.
    """

    def __init__(self, client: Client, pod: Pod, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._key, self._uid = pod.metadata.key, pod.metadata.uid
        self._resource_version = pod.metadata.resource_version
        self._foreign_conditions: tuple[Condition, ...] = ()
        self._pending: JSON | None = None
        self._last_written: JSON | None = None
        # Annotations that are not written yet.
        self._annotations: dict[str, str] = {}
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.pod_deleted = False
        self.observe(pod)

    def observe(self, pod: Pod) -> None:
        """The pod as the API has it: its version guards the next write, conditions of others are kept in it."""
        if not _is_older(pod.metadata.resource_version, self._resource_version):
            self._resource_version = pod.metadata.resource_version
            self._foreign_conditions = tuple(each for each in pod.status.conditions if each.type not in OWN_CONDITIONS)

    def set_status(self, status: JSON) -> None:
        """This is the status now."""
        if status != (self._pending or self._last_written):
            self._pending = status
            self._idle.clear()
            self._changed.set()

    def set_annotation(self, name: str, value: str) -> None:
        """This annotation is to be on the pod before the next status is written."""
        self._annotations[name] = value
        self._idle.clear()
        self._changed.set()

    async def wait_written(self) -> None:
        """Wait until the API has what is wanted, or the pod is gone."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled, or until the pod is gone."""
        while not self.pod_deleted:
            await self._changed.wait()
            self._changed.clear()
            if self._pending is not None or self._annotations:
                await self._write(self._pending)
                self._update_idle()
        self._idle.set()

    def _update_idle(self) -> None:
        if self._pending == self._last_written:
            self._pending = None
        if (self._pending is None and not self._annotations) or self.pod_deleted:
            self._idle.set()

    async def _write(self, status: JSON | None) -> None:
        """The marks, and then the status, if there is one to write."""
        delay = FIRST_RETRY_DELAY
        while not self.pod_deleted:
            try:
                await self._annotate()
                if status is None:
                    return
                await self._patch(status)
            except NotFound:
                self.pod_deleted = True
            except Conflict:
                await self._reread()
            except (Invalid, BadRequest):
                # A person is needed, and the next status may be better.
                log.exception("the API refuses a pod's status", extra={"pod": str(self._key)})
                self._last_written = status
                return
            except KubeError as error:
                log.warning("status not written, will retry", extra={"pod": str(self._key), "error": str(error)})
                await self._clock.sleep(delay)
                delay = min(MAX_RETRY_DELAY, delay * 2)
                status = self._pending or status
            else:
                self._last_written = status
                return

    async def _annotate(self) -> None:
        marks = dict(self._annotations)
        if not marks:
            return
        body = {"metadata": {"uid": self._uid, "annotations": marks}}
        try:
            self.observe(await self._client.patch(Pod, self._key, body))
        except (Conflict, NotFound, ServerError, TooManyRequests):
            raise
        except ApiError as error:
            # It is not for us to write here. The status matters more.
            log.warning("pod not annotated", extra={"pod": str(self._key), "error": str(error)})
        self._annotations = {name: value for name, value in self._annotations.items() if marks.get(name) != value}

    async def _patch(self, status: JSON) -> None:
        body = {**status, "conditions": [*status["conditions"], *_condition_bodies(self._foreign_conditions)]}
        self.observe(
            await self._client.patch(
                Pod,
                self._key,
                {"status": body},
                subresource="status",
                resource_version=self._resource_version,
            )
        )

    async def _reread(self) -> None:
        """Somebody else changed it: read it again. The version is taken as it is, newer or not."""
        try:
            pod = await self._client.get(Pod, self._key)
        except NotFound:
            self.pod_deleted = True
            return
        except KubeError:
            await self._clock.sleep(FIRST_RETRY_DELAY)
            return
        self.pod_deleted = pod.metadata.uid != self._uid
        self._resource_version = ""
        self.observe(pod)


def _condition_bodies(conditions: Iterable[Condition]) -> list[JSON]:
    return [condition_body(each) for each in conditions]


def _is_older(one: str, other: str) -> bool:
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)


async def confirm_deleted(client: Client, key: Key, uid: str, clock: Clock) -> None:
    """Tell the API that nothing of the pod is left, until it has heard. Idempotent."""
    delay = FIRST_RETRY_DELAY
    while True:
        try:
            await client.delete(Pod, key, uid=uid, grace=timedelta())
        except (NotFound, Conflict):
            return
        except KubeError as error:
            log.warning("pod not released, will retry", extra={"pod": str(key), "error": str(error)})
            await clock.sleep(delay)
            delay = min(MAX_RETRY_DELAY, delay * 2)
        else:
            return
