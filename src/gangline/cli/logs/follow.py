"""`gangline logs -f`: prints the logs of current and future replicas until the job has finished."""

import asyncio
from contextlib import aclosing
from datetime import timedelta

from gangline.api.codec.codec import decode_document, to_json
from gangline.api.codec.documents import Document
from gangline.api.core import Pod
from gangline.api.meta import JSON, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.cli.follow.log_sources import ServerLogSource
from gangline.cli.logs.print import LogOptions, LogPrinter
from gangline.cli.resources.exit_code import job_exit_code
from gangline.cli.resources.lookup import find_job
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.summary.job_state import is_finished
from gangline.summary.objects import PODS, ServerJob
from gangline.summary.replicas import container_name, owns_pod, pod_selector

FLUSH_INTERVAL = timedelta(milliseconds=50)


async def follow_logs(client: Client, namespace: str, name: str, options: LogOptions) -> int:
    """Print logs until the job has finished; returns the exit code. Raises `NotFound`."""
    job = await find_job(client, namespace, name)
    body = await LogFollower(client, job, options, SystemClock()).run()
    return job_exit_code(body) if options.exit_code else 0


class LogFollower:
    """Prints the logs of one job's pods. Must be made in a running loop."""

    def __init__(self, client: Client, job: ServerJob, options: LogOptions, clock: Clock) -> None:
        self._client, self._job, self._options, self._clock = client, job, options, clock
        self._print = LogPrinter(options)
        self._logs = ServerLogSource(
            client,
            lambda pod: container_name(to_json(pod), options.container),
            clock,
            tail=options.tail,
            since=options.start,
        )

    async def run(self) -> JSON | None:
        """Print until the job has finished. Returns its final body; None if it was deleted before it had finished."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in (self._logs.run(), self._flush(), self._watch_pods())]
            body = await self._wait_finished()
            # Pods that the watch had not delivered yet when the job finished.
            for pod in (await self._client.list(PODS, pod_selector(self._job))).items:
                self._update_pod(pod)
            await self._logs.drain()
            for task in tasks:
                task.cancel()
        self._print_lines()
        return body

    async def _wait_finished(self) -> JSON | None:
        key = self._job.key
        selector = Selector(key.namespace, fields=f"metadata.name={key.name}")
        async with aclosing(watch_objects(self._client, self._job.resource, selector)) as objects:
            exists = False
            async for change in objects:
                if change.body is None:
                    if not exists:
                        return None
                    continue
                exists = True
                if change.deleted:
                    return change.body if is_finished(change.body) else None
                if is_finished(change.body):
                    return change.body
        return None

    async def _watch_pods(self) -> None:
        async with aclosing(watch_objects(self._client, PODS, pod_selector(self._job))) as objects:
            async for change in objects:
                if change.body is not None:
                    self._update_pod(change.body, deleted=change.deleted)

    def _update_pod(self, pod: JSON, *, deleted: bool = False) -> None:
        selectors = self._options.replicas
        if owns_pod(self._job, pod) and (not selectors or any(selector.matches(pod) for selector in selectors)):
            self._logs.update_pod(decode_document(Document(pod, {}), Pod), deleted=deleted)

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_INTERVAL)
            self._print_lines()

    def _print_lines(self) -> None:
        for line in self._logs.new_timed_lines():
            self._print(line._replace(replica=line.replica.removeprefix(f"{self._job.key.name}-")))
