"""What a person sees of a running job: one line per change, logs with the member's name before them."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gangline.api.core import Namespace, Pod
from gangline.api.meta import Key, Selector
from gangline.api.training import JOB_NAME, ConditionType, JobKind, TrainingJob
from gangline.base.clock import Clock
from gangline.base.tasks import every
from gangline.jobs.status import newest
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists
from gangline.local.node.logs import Tail
from gangline.runtime.informer import Delta, Informer

LOOK = timedelta(milliseconds=100)


class Follower:
    """Submits a job and prints what becomes of it."""

    def __init__(self, client: Client, facts: JobKind, logs: Path, clock: Clock) -> None:
        self._facts = facts
        self._client, self._logs, self._clock = client, Tail(logs), clock
        self._key = Key("default", "")

    async def follow(self, body: dict[str, Any]) -> TrainingJob:
        """Create the job, tell everything until it has ended, give it as it ended.

        Its namespace is made where it is missing: files for a cluster name one.
        """
        started = self._clock.monotonic()
        namespace = body["metadata"].get("namespace", "default")
        with suppress(AlreadyExists):
            await self._client.create(Namespace, {"metadata": {"name": namespace}})
        job = await self._client.create(self._facts.model, body, namespace=namespace)
        self._key = job.metadata.key
        try:
            job = await self._finished(Selector(namespace=namespace))
            self._tell_logs()
        finally:
            self._logs.close()
        took = self._clock.monotonic() - started
        click.echo(f"{newest(job.status)} in {took:.1f} s: {job.status.conditions[-1].message}")
        self._tell_failure(job)
        return job

    def _tell_failure(self, job: TrainingJob) -> None:
        first = job.status.first_failure
        if not job.status.holds(ConditionType.FAILED) or first is None:
            return
        code = "" if first.exit_code is None else f" with exit code {first.exit_code}"
        reason = f" ({first.reason})" if first.reason else ""
        click.echo(f"first to fail: {first.replica}{code}{reason}")

    async def _finished(self, where: Selector) -> TrainingJob:
        jobs = Informer(self._client, self._facts.model, where, clock=self._clock)
        pods = Informer(self._client, Pod, where, clock=self._clock)
        done: asyncio.Future[TrainingJob] = asyncio.get_running_loop().create_future()

        def tell_job(delta: Delta[TrainingJob]) -> None:
            self._tell_job(delta)
            if delta.newest.metadata.key == self._key and delta.newest.status.finished and not done.done():
                done.set_result(delta.newest)

        async with asyncio.TaskGroup() as group:
            work = (jobs.run(), pods.run(), every(LOOK, self._look, self._clock))
            tasks = [group.create_task(each) for each in work]
            with jobs.subscribed(tell_job), pods.subscribed(self._tell_pod):
                job = await done
            for task in tasks:
                task.cancel()
        await self._tell_rest(pods, where)
        return job

    async def _tell_rest(self, pods: Informer[Pod], where: Selector) -> None:
        """What the watch of pods had not brought yet when the job ended."""
        for pod in (await self._client.list(Pod, where)).items:
            self._tell_pod(Delta(pods.cache.get(pod.metadata.key), pod))

    async def _look(self) -> None:
        self._tell_logs()

    def _tell_job(self, delta: Delta[TrainingJob]) -> None:
        job = delta.newest
        before = newest(delta.before.status) if delta.before else ""
        if job.metadata.key == self._key and newest(job.status) != before:
            click.echo(f"{self._facts.kind.lower()}/{job.metadata.name}  {newest(job.status)}")

    def _tell_pod(self, delta: Delta[Pod]) -> None:
        pod, before = delta.after, delta.before.status.phase if delta.before else ""
        if pod is None or pod.metadata.labels.get(JOB_NAME) != self._key.name or pod.status.phase == before:
            return
        self._tell_logs()
        click.echo(f"  {self._member(pod.metadata.name):<10} {pod.status.phase.lower()}")

    def _tell_logs(self) -> None:
        for line in self._logs.lines(self._key.namespace):
            click.echo(f"{self._member(line.pod)}| {line.text}")

    def _member(self, name: str) -> str:
        return name.removeprefix(f"{self._key.name}-")
