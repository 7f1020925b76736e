"""Records a cluster: what a client may read there, through informers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.apiserver.store.paths import ObjectPath, object_path
from gangline.base.clock import Clock
from gangline.base.tasks import run_all, time_limit
from gangline.history.endings import ContainerEnd
from gangline.history.recorder import LOG_LINES, Diagnose, HistoryRecorder
from gangline.history.retention import HistoryLimits
from gangline.history.selection import RECORDED, recorded_body
from gangline.kube.client import Client
from gangline.kube.discovery import server_resources
from gangline.kube.errors import KubeError
from gangline.kube.pod_metrics import POD_METRICS, PodUsage, pod_usage
from gangline.kube.pods import PodSubresources
from gangline.runtime.cache import key_of
from gangline.runtime.informer import Delta, Informer

LOG_TAIL_BYTES = 2**20
"""Bytes that are read of the last lines of a log: more than are recorded, because lines are long."""
LOG_PATIENCE = timedelta(seconds=5)
"""A log that has not come by then is not recorded: nothing is written while logs are read."""
SYNC_TIMEOUT = timedelta(seconds=60)
"""How long kinds that cannot be read yet are waited for: the others are recorded then."""


class ClusterRecorder:
    """Records the objects of a cluster that its client may read. It only reads."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        clock: Clock,
        source: str,
        *,
        namespaces: Sequence[str] = (),
        limits: HistoryLimits | None = None,
        diagnose: Diagnose | None = None,
    ) -> None:
        """`source` names the cluster; `namespaces` are those to record, all if empty."""
        self._client, self._clock, self._namespaces = client, clock, namespaces
        self._pods = PodSubresources(client)
        self._recorder = HistoryRecorder(
            folder,
            clock,
            source,
            limits=limits,
            read_log=self._read_log,
            diagnose=diagnose,
            measure=self._usage,
        )

    async def run(self) -> None:
        """Record until cancelled."""
        kinds = await recorded_kinds(self._client)
        if self._namespaces:
            # Who may read some namespaces only may mostly not read what is in none.
            kinds = [kind for kind in kinds if kind.namespaced]
        informers = [self._informer(kind) for kind in kinds]
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
            with suppress(TimeoutError):
                async with time_limit(SYNC_TIMEOUT, self._clock):
                    await run_all((informer.wait_for_sync() for informer in informers), at_once=len(informers))
            with ExitStack() as subscriptions:
                # Without an await in between, no change is missed.
                states = {
                    (path := _path(kind, body)): recorded_body(path, body)
                    for kind, informer in zip(kinds, informers, strict=True)
                    for body in informer.cache
                }
                self._recorder.begin(self._recorder.now, states)
                for kind, informer in zip(kinds, informers, strict=True):
                    subscriptions.enter_context(informer.subscribe(self._subscriber(kind)))
                try:
                    await self._recorder.run()
                finally:
                    self._recorder.finish()

    def _informer(self, kind: Resource[JSON]) -> Informer[JSON]:
        def trim(body: JSON) -> JSON:
            # The informer needs the version.
            trimmed, version = recorded_body(_path(kind, body), body), body["metadata"].get("resourceVersion", "")
            return {**trimmed, "metadata": {**trimmed["metadata"], "resourceVersion": version}}

        namespaces = self._namespaces if kind.namespaced else ()
        return Informer(self._client, kind, clock=self._clock, namespaces=namespaces, trim=trim)

    def _subscriber(self, kind: Resource[JSON]) -> Callable[[Delta[JSON]], None]:
        def record(delta: Delta[JSON]) -> None:
            path = _path(kind, delta.newest)
            body = recorded_body(path, delta.after) if delta.after is not None else None
            self._recorder.record(self._recorder.now, path, body)

        return record

    async def _usage(self) -> Mapping[str, PodUsage]:
        """What metrics.k8s.io says; nothing where it is not served, or may not be read."""
        used: dict[str, PodUsage] = {}
        for namespace in self._namespaces or ("",):
            try:
                page = await self._client.list(POD_METRICS, Selector(namespace))
                used |= {object_path("", "pods", *key_of(body)): pod_usage(body) for body in page.items}
            except KubeError:
                continue
        return used

    async def _read_log(self, pod: ObjectPath, body: JSON, end: ContainerEnd) -> str:
        # A server that stops after so many bytes sends the beginning of what was asked for, not the end.
        text = ""
        for lines in (LOG_LINES, LOG_LINES // 10, 1):
            text = await self._tail(Key(pod.namespace, pod.name), end, lines)
            if len(text) < LOG_TAIL_BYTES // 2:
                break
        return text

    async def _tail(self, pod: Key, end: ContainerEnd, count: int) -> str:
        logs = self._pods.logs(
            pod,
            container=end.container,
            previous=end.previous,
            tail=count,
            timestamps=True,
            limit_bytes=LOG_TAIL_BYTES,
        )
        try:
            async with time_limit(LOG_PATIENCE, self._clock), aclosing(logs) as lines:
                return "".join([line.decode(errors="replace") + "\n" async for line in lines])
        except (KubeError, TimeoutError):
            # The pod is gone, its node does not answer, or its log may not be read.
            return ""


async def recorded_kinds(client: Client) -> list[Resource[JSON]]:
    """The kinds that are recorded and that the server has, each in one version."""
    kinds: dict[tuple[str, str], Resource[JSON]] = {}
    for item in await server_resources(client):
        resource = item.resource
        if (resource.group, resource.plural) in RECORDED and {"list", "watch"} <= set(item.verbs):
            kinds.setdefault((resource.group, resource.plural), resource)
    return [kinds[key] for key in sorted(kinds)]


def _path(kind: Resource[Any], body: JSON) -> str:
    key = key_of(body)
    return object_path(kind.group, kind.plural, key.namespace, key.name)
