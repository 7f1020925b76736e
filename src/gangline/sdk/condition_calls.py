"""Calls of the training client that read, wait for and watch the conditions of a job."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from gangline.api.kubeflow.training import ConditionType, JobStatus
from gangline.api.meta import JSON, Selector
from gangline.base.tasks import background_tasks
from gangline.jobs.plan.failures.records import PROVISIONAL_TIME, is_provisional
from gangline.runtime.informer import Delta, Informer
from gangline.sdk.build.bodies import job_body
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS, LazyConnection
from gangline.sdk.derived_calls import derived_call
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job, type_meta

T = TypeVar("T")
C = TypeVar("C")
P = ParamSpec("P")

WAIT_TIMEOUT_SECONDS = 600
DEFAULT_EXPECTED_CONDITIONS: Collection[str] = frozenset({ConditionType.SUCCEEDED.value})
CONDITION_TYPES = tuple(str(condition) for condition in ConditionType)

JobCallback = Callable[[Job], object]


def _is_true(
    condition: ConditionType, get_conditions: Callable[Concatenate[C, P], Coroutine[Any, Any, list[Any]]]
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, bool]]:
    """A method with the parameters of `get_job_conditions` that tells whether one condition is True."""
    return derived_call(
        get_conditions,
        lambda conditions: JobStatus(conditions=tuple(conditions)).holds(condition),
        name=f"is_job_{condition.lower()}",
        doc=f"Whether the condition {condition} of a job is True.",
        returns=bool,
    )


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
        """The conditions of `job`, or of the job with this name."""
        if job is not None:
            return list(Job(job_body(job)).status.conditions)
        if name is None:
            raise ValueError("write the name of a job, or give one")
        return list((await self.get_job(name, namespace, job_kind, timeout)).status.conditions)

    is_job_created = _is_true(ConditionType.CREATED, get_job_conditions)
    is_job_running = _is_true(ConditionType.RUNNING, get_job_conditions)
    is_job_restarting = _is_true(ConditionType.RESTARTING, get_job_conditions)
    is_job_suspended = _is_true(ConditionType.SUSPENDED, get_job_conditions)
    is_job_succeeded = _is_true(ConditionType.SUCCEEDED, get_job_conditions)
    is_job_failed = _is_true(ConditionType.FAILED, get_job_conditions)

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
        """Wait until one of the conditions is True, and return the job. `callback` is called with every change.

        The job is watched, not polled: `polling_interval` exists for compatibility and has no effect. Raises
        `JobFailed` if the job failed and Failed was not expected, and `TimeoutError`.
        """
        unknown = set(expected_conditions) - set(CONDITION_TYPES)
        if unknown:
            raise ValueError(f"expected_conditions: {sorted(unknown)}; write some of {', '.join(CONDITION_TYPES)}")

        expected_text = " or ".join(sorted(expected_conditions))

        def is_expected(job: Job) -> bool:
            return any(job.status.holds(ConditionType(condition)) for condition in expected_conditions)

        def is_done(job: Job) -> bool:
            if callback is not None:
                callback(job)
            if is_expected(job):
                return True
            if job.status.holds(ConditionType.FAILED):
                return True
            if job.status.holds(ConditionType.SUCCEEDED):
                raise TrainingError(f"{job!r} ended without {expected_text}")
            return False

        try:
            async with aclosing(self.watch_job(name, namespace, job_kind, wait_timeout)) as changes:
                async for job in changes:
                    if is_done(job):
                        break
                else:
                    raise TrainingError(f"job {name} was deleted")
        except TimeoutError:
            raise TimeoutError(f"job {name}: not {expected_text} within {wait_timeout:g} seconds") from None
        if is_expected(job):
            return job
        raise JobFailed(await self._with_final_failure(job, namespace, job_kind))

    async def _with_final_failure(self, job: Job, namespace: str | None, job_kind: str | None) -> Job:
        """The job, after a moment in which its operator may correct which replica failed first."""
        if not is_provisional(job.status):
            return job
        seconds = PROVISIONAL_TIME.total_seconds()
        with suppress(TimeoutError):
            async with aclosing(self.watch_job(job.metadata.name, namespace, job_kind, seconds)) as changes:
                async for job in changes:
                    if not is_provisional(job.status):
                        break
        return job

    async def watch_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        wait_timeout: float | None = None,
    ) -> AsyncGenerator[Job, None]:
        """The job as it is, then every change, until it is deleted. Raises `TimeoutError` after `wait_timeout` seconds."""
        kind, key = self._resolved_kind(job_kind), self._job_key(name, namespace)
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            await self._read_job(client, name, namespace, job_kind)
        changes: asyncio.Queue[JSON | None] = asyncio.Queue()

        def on_change(delta: Delta[JSON]) -> None:
            changes.put_nowait(delta.after)

        selector = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
        informer: Informer[JSON] = Informer(client, client.unstructured(kind.resource), selector, clock=self._clock)
        deadline = None if wait_timeout is None else self._clock.monotonic() + wait_timeout
        async with background_tasks(informer.run()):
            with informer.subscribe(on_change):
                while (body := await self._await_until(deadline, changes.get())) is not None:
                    yield Job({**type_meta(kind), **body})

    async def _await_until(self, deadline: float | None, work: Awaitable[T]) -> T:
        async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self._clock.monotonic())):
            return await work
