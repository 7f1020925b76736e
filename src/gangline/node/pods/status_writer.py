"""Writes the status of a pod, with retries, without delaying the pod.

Annotations of the node are written first: a client that sees the end of a program also sees its last progress report.
"""

import asyncio
import logging
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

    A status that is replaced before it was written is skipped; an unchanged status is not written.
    """

    def __init__(self, client: Client, pod: Pod, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._key, self._uid = pod.metadata.key, pod.metadata.uid
        self._resource_version = pod.metadata.resource_version
        self._foreign_conditions: tuple[Condition, ...] = ()
        self._pending: JSON | None = None
        self._last_written: JSON | None = None
        # Annotations that are still to be written.
        self._annotations: dict[str, str] = {}
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.pod_deleted = False
        self.observe(pod)

    def observe(self, pod: Pod) -> None:
        """Take the pod as the API has it. The next write is guarded by its version and keeps others' conditions."""
        if not _is_older(pod.metadata.resource_version, self._resource_version):
            self._resource_version = pod.metadata.resource_version
            self._foreign_conditions = tuple(
                condition for condition in pod.status.conditions if condition.type not in OWN_CONDITIONS
            )

    def set_status(self, status: JSON) -> None:
        """Replace the status to be written."""
        if status != (self._pending or self._last_written):
            self._pending = status
            self._idle.clear()
            self._changed.set()

    def set_annotation(self, name: str, value: str) -> None:
        """Write this annotation before the next status."""
        self._annotations[name] = value
        self._idle.clear()
        self._changed.set()

    async def wait_written(self) -> None:
        """Wait until all is written, or the pod is deleted."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled, or until the pod is deleted."""
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
        """Write the annotations, then the status if there is one. Retries until the API accepts or refuses them."""
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
                # A retry would not help; the next status may be accepted.
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
        annotations = dict(self._annotations)
        if not annotations:
            return
        body = {"metadata": {"uid": self._uid, "annotations": annotations}}
        try:
            self.observe(await self._client.patch(Pod, self._key, body))
        except (Conflict, NotFound, ServerError, TooManyRequests):
            raise
        except ApiError as error:
            # The node may not annotate pods here. The status matters more.
            log.warning("pod not annotated", extra={"pod": str(self._key), "error": str(error)})
        self._annotations = {name: value for name, value in self._annotations.items() if annotations.get(name) != value}

    async def _patch(self, status: JSON) -> None:
        foreign = map(condition_body, self._foreign_conditions)
        body = {**status, "conditions": [*status["conditions"], *foreign]}
        self.observe(
            await self._client.patch(
                Pod, self._key, {"status": body}, subresource="status", resource_version=self._resource_version
            )
        )

    async def _reread(self) -> None:
        """Read the pod after a conflict. Its version is taken even if it is not newer than the last one."""
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


def _is_older(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


async def confirm_deleted(client: Client, key: Key, uid: str, clock: Clock) -> None:
    """Delete the pod from the API, now that none of its processes is left. Retries until that is done. Idempotent."""
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
