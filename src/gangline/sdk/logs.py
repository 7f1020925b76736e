"""The lines of all pods of a job as they come: those of pods that start late too."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import JOB_NAME, JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock
from gangline.base.tasks import background_tasks
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.kube.pods import PodSubresources
from gangline.runtime.informer import Delta, Informer
from gangline.sdk.job import Job


class JobLogLine(NamedTuple):
    """What a pod said."""

    pod: str
    text: str


async def follow_job_logs(
    client: Client, facts: JobKind, key: Key, chosen: Callable[[Pod], bool], clock: Clock
) -> AsyncGenerator[JobLogLine, None]:
    """Until the job has ended, or is gone, and everything is told. Each pod is read by a task of its own."""
    await client.get(client.unstructured(facts.resource), key)
    where = Selector(namespace=key.namespace, labels=f"{JOB_NAME}={key.name}")
    only = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
    pods: Informer[Pod] = Informer(client, Pod, where, clock=clock)
    jobs: Informer[JSON] = Informer(client, client.unstructured(facts.resource), only, clock=clock)
    lines: asyncio.Queue[JobLogLine | None] = asyncio.Queue()
    started: asyncio.Queue[Pod | None] = asyncio.Queue()
    known: set[str] = set()

    def tell(delta: Delta[Pod]) -> None:
        pod = delta.after
        if pod is None or pod.metadata.uid in known or not chosen(pod) or pod.status.phase == PodPhase.PENDING:
            return
        known.add(pod.metadata.uid)
        started.put_nowait(pod)

    async def read() -> None:
        async with asyncio.TaskGroup() as group:
            while (pod := await started.get()) is not None:
                group.create_task(_read_pod_log(client, pod, facts.container, lines))
        lines.put_nowait(None)

    async def end() -> None:
        await jobs.wait_for_sync()
        await jobs.wait_until(lambda cache: _has_ended(cache.get(key), facts))
        await pods.wait_for_sync()
        started.put_nowait(None)

    async with background_tasks(pods.run(), jobs.run(), read(), end()):
        with pods.subscribe(tell):
            while (line := await lines.get()) is not None:
                yield line


def _has_ended(body: JSON | None, facts: JobKind) -> bool:
    if body is None:
        return True
    header: dict[str, Any] = {"apiVersion": facts.model.API_VERSION, "kind": facts.kind}
    return Job({**header, **body}).status.finished


async def _read_pod_log(client: Client, pod: Pod, container: str, lines: "asyncio.Queue[JobLogLine | None]") -> None:
    name = training_container_name(pod, container)
    try:
        async with aclosing(PodSubresources(client).logs(pod.metadata.key, container=name, follow=True)) as said:
            async for line in said:
                lines.put_nowait(JobLogLine(pod.metadata.name, line.decode(errors="replace")))
    except NotFound:
        return
    except KubeError as error:
        lines.put_nowait(JobLogLine(pod.metadata.name, f"({error})"))
