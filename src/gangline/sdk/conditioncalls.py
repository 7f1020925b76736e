"""How jobs stand, and waiting for them to stand otherwise: calls of the training client."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any, TypeVar

from gangline.api.kubeflow.training import ConditionType
from gangline.api.meta import JSON, Selector
from gangline.base.tasks import beside
from gangline.runtime.informer import Delta, Informer
from gangline.sdk.build.bodies import body_of
from gangline.sdk.connection import TIMEOUT, Opened, header
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job

T = TypeVar("T")

WAIT = 600
SUCCEEDED: Collection[str] = frozenset({ConditionType.SUCCEEDED.value})
CONDITIONS = tuple(str(kind) for kind in ConditionType)

Callback = Callable[[Job], object]


class ConditionCalls(Opened):
    """`get_job_conditions`, `is_job_...`, `wait_for_job_conditions`, `watch_job`."""

    async def get_job_conditions(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> list[Any]:
        """The conditions of a job, given or named."""
        found = await self._given(name, namespace, job_kind, job, timeout)
        return list(found.status.conditions)

    async def is_job_created(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.CREATED, name, namespace, job_kind, job, timeout)

    async def is_job_running(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.RUNNING, name, namespace, job_kind, job, timeout)

    async def is_job_restarting(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.RESTARTING, name, namespace, job_kind, job, timeout)

    async def is_job_suspended(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.SUSPENDED, name, namespace, job_kind, job, timeout)

    async def is_job_succeeded(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.SUCCEEDED, name, namespace, job_kind, job, timeout)

    async def is_job_failed(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.FAILED, name, namespace, job_kind, job, timeout)

    async def wait_for_job_conditions(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        expected_conditions: Collection[str] = SUCCEEDED,
        wait_timeout: float = WAIT,
        polling_interval: float = 15,
        callback: Callback | None = None,
        timeout: float = TIMEOUT,
    ) -> Job:
        """Wait until one of the conditions is True, and give the job. The callback is told of every change.

        Nothing is polled: `polling_interval` is taken for compatibility and has no effect. Raises `JobFailed` if the
        job failed and that was not expected, and `TimeoutError`.
        """
        unknown = set(expected_conditions) - set(CONDITIONS)
        if unknown:
            raise ValueError(f"expected_conditions: {sorted(unknown)}; write some of {', '.join(CONDITIONS)}")

        def done(found: Job) -> bool:
            if callback is not None:
                callback(found)
            if any(found.status.holds(ConditionType(each)) for each in expected_conditions):
                return True
            if found.status.holds(ConditionType.FAILED):
                raise JobFailed(found)
            if found.status.holds(ConditionType.SUCCEEDED):
                raise TrainingError(f"{found!r} ended without {' or '.join(sorted(expected_conditions))}")
            return False

        try:
            async with aclosing(self.watch_job(name, namespace, job_kind, wait_timeout)) as changes:
                async for found in changes:
                    if done(found):
                        return found
        except TimeoutError:
            wanted = " or ".join(sorted(expected_conditions))
            raise TimeoutError(f"job {name}: not {wanted} within {wait_timeout:g} seconds") from None
        raise TrainingError(f"job {name} was deleted")

    async def watch_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        wait_timeout: float | None = None,
    ) -> AsyncGenerator[Job, None]:
        """The job as it is, then every change of it, until it is deleted. Raises `TimeoutError` after so long."""
        facts, key = self._kind(job_kind), self._key(name, namespace)
        async with self._told(TIMEOUT) as client:
            await self._job(client, name, namespace, job_kind)
        changes: asyncio.Queue[JSON | None] = asyncio.Queue()

        def tell(delta: Delta[JSON]) -> None:
            changes.put_nowait(delta.after)

        where = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
        informer: Informer[JSON] = Informer(client, client.plain(facts.resource), where, clock=self._clock)
        deadline = None if wait_timeout is None else self._clock.monotonic() + wait_timeout
        async with beside(informer.run()):
            with informer.subscribed(tell):
                while (body := await self._before(deadline, changes.get())) is not None:
                    yield Job({**header(facts), **body})

    async def _before(self, deadline: float | None, work: Awaitable[T]) -> T:
        async with asyncio.timeout(
            None if deadline is None else max(0.0, deadline - self._clock.monotonic())
        ):
            return await work

    async def _given(
        self, name: str | None, namespace: str | None, job_kind: str | None, job: Any, timeout: float
    ) -> Job:
        if job is not None:
            return Job(body_of(job))
        if name is None:
            raise ValueError("write the name of a job, or give one")
        return await self.get_job(name, namespace, job_kind, timeout)

    async def _holds(
        self,
        condition: ConditionType,
        name: str | None,
        namespace: str | None,
        job_kind: str | None,
        job: Any,
        timeout: float,
    ) -> bool:
        return (await self._given(name, namespace, job_kind, job, timeout)).status.holds(condition)
