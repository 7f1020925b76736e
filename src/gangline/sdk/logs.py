"""Follows the logs of all pods of a job, also of pods that start later."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NamedTuple

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
from gangline.sdk.job import Job, type_meta


class JobLogLine(NamedTuple):
    """A line of the log of a pod."""

    pod: str
    text: str


async def follow_job_logs(
    client: Client, kind: JobKind, key: Key, is_selected: Callable[[Pod], bool], clock: Clock
) -> AsyncGenerator[JobLogLine, None]:
    """The lines of the selected pods as they arrive, until the job has ended or was deleted, and all logs were read.

    Each pod is read by a task of its own. Raises `NotFound` if there is no such job.
    """
    await client.get(client.unstructured(kind.resource), key)
    pod_selector = Selector(namespace=key.namespace, labels=f"{JOB_NAME}={key.name}")
    job_selector = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
    pods: Informer[Pod] = Informer(client, Pod, pod_selector, clock=clock)
    jobs: Informer[JSON] = Informer(client, client.unstructured(kind.resource), job_selector, clock=clock)
    lines: asyncio.Queue[JobLogLine | None] = asyncio.Queue()
    started_pods: asyncio.Queue[Pod | None] = asyncio.Queue()
    followed_uids: set[str] = set()

    def on_pod_change(delta: Delta[Pod]) -> None:
        pod = delta.after
        if pod is None or pod.metadata.uid in followed_uids or not is_selected(pod):
            return
        if pod.status.phase != PodPhase.PENDING:
            followed_uids.add(pod.metadata.uid)
            started_pods.put_nowait(pod)

    async def read_logs() -> None:
        async with asyncio.TaskGroup() as group:
            while (pod := await started_pods.get()) is not None:
                group.create_task(_read_pod_log(client, pod, kind.container, lines))
        lines.put_nowait(None)

    async def wait_for_end() -> None:
        await jobs.wait_for_sync()
        await jobs.wait_until(lambda cache: _has_ended(cache.get(key), kind))
        await pods.wait_for_sync()
        started_pods.put_nowait(None)

    async with background_tasks(pods.run(), jobs.run(), read_logs(), wait_for_end()):
        with pods.subscribe(on_pod_change):
            while (line := await lines.get()) is not None:
                yield line


def _has_ended(body: JSON | None, kind: JobKind) -> bool:
    return body is None or Job({**type_meta(kind), **body}).status.finished


async def _read_pod_log(client: Client, pod: Pod, container: str, lines: "asyncio.Queue[JobLogLine | None]") -> None:
    name = training_container_name(pod, container)
    try:
        async with aclosing(PodSubresources(client).logs(pod.metadata.key, container=name, follow=True)) as log_lines:
            async for line in log_lines:
                lines.put_nowait(JobLogLine(pod.metadata.name, line.decode(errors="replace")))
    except NotFound:
        return
    except KubeError as error:
        lines.put_nowait(JobLogLine(pod.metadata.name, f"({error})"))
