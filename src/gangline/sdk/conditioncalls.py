"""How jobs stand, and waiting for them to stand otherwise: calls of the training client."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any, TypeVar

from gangline.api.kubeflow.training import ConditionType
from gangline.api.meta import JSON, Selector
from gangline.base.tasks import background_tasks
from gangline.runtime.informer import Delta, Informer
from gangline.sdk.build.bodies import job_body
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS, LazyConnection, type_meta
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job

T = TypeVar("T")

WAIT_TIMEOUT_SECONDS = 600
DEFAULT_EXPECTED_CONDITIONS: Collection[str] = frozenset({ConditionType.SUCCEEDED.value})
CONDITION_TYPES = tuple(str(kind) for kind in ConditionType)

JobCallback = Callable[[Job], object]


class ConditionCalls(LazyConnection):
    """`get_job_conditions`, `is_job_...`, `wait_for_job_conditions`, `watch_job`."""

    async def get_job_conditions(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> list[Any]:
        """The conditions of a job, given or named."""
        found = await self._given_or_named_job(name, namespace, job_kind, job, timeout)
        return list(found.status.conditions)

    async def is_job_created(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return await self._has_condition(ConditionType.CREATED, name, namespace, job_kind, job, timeout)

    async def is_job_running(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return await self._has_condition(ConditionType.RUNNING, name, namespace, job_kind, job, timeout)

    async def is_job_restarting(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return await self._has_condition(ConditionType.RESTARTING, name, namespace, job_kind, job, timeout)

    async def is_job_suspended(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return await self._has_condition(ConditionType.SUSPENDED, name, namespace, job_kind, job, timeout)

    async def is_job_succeeded(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return await self._has_condition(ConditionType.SUCCEEDED, name, namespace, job_kind, job, timeout)

    async def is_job_failed(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return await self._has_condition(ConditionType.FAILED, name, namespace, job_kind, job, timeout)

    async def wait_for_job_conditions(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        expected_conditions: Collection[str] = DEFAULT_EXPECTED_CONDITIONS,
        wait_timeout: float = WAIT_TIMEOUT_SECONDS,
        polling_interval: float = 15,
        callback: JobCallback | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Job:
        """Wait until one of the conditions is True, and give the job. The callback is told of every change.

        Nothing is polled: `polling_interval` is taken for compatibility and has no effect. Raises `JobFailed` if the
        job failed and that was not expected, and `TimeoutError`.
        """
        unknown = set(expected_conditions) - set(CONDITION_TYPES)
        if unknown:
            raise ValueError(f"expected_conditions: {sorted(unknown)}; write some of {', '.join(CONDITION_TYPES)}")

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
        facts, key = self._resolved_kind(job_kind), self._job_key(name, namespace)
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            await self._read_job(client, name, namespace, job_kind)
        changes: asyncio.Queue[JSON | None] = asyncio.Queue()

        def tell(delta: Delta[JSON]) -> None:
            changes.put_nowait(delta.after)

        where = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
        informer: Informer[JSON] = Informer(client, client.unstructured(facts.resource), where, clock=self._clock)
        deadline = None if wait_timeout is None else self._clock.monotonic() + wait_timeout
        async with background_tasks(informer.run()):
            with informer.subscribe(tell):
                while (body := await self._await_until(deadline, changes.get())) is not None:
                    yield Job({**type_meta(facts), **body})

    async def _await_until(self, deadline: float | None, work: Awaitable[T]) -> T:
        async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self._clock.monotonic())):
            return await work

    async def _given_or_named_job(
        self, name: str | None, namespace: str | None, job_kind: str | None, job: Any, timeout: float
    ) -> Job:
        if job is not None:
            return Job(job_body(job))
        if name is None:
            raise ValueError("write the name of a job, or give one")
        return await self.get_job(name, namespace, job_kind, timeout)

    async def _has_condition(
        self,
        condition: ConditionType,
        name: str | None,
        namespace: str | None,
        job_kind: str | None,
        job: Any,
        timeout: float,
    ) -> bool:
        return (await self._given_or_named_job(name, namespace, job_kind, job, timeout)).status.holds(condition)
