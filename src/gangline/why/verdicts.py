"""Verdicts for the history: what `why` says of a job at the moment it fails, starts again, or has waited for long."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import ObjectPath
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.kube.client import Client


def verdict_maker(client: Client, clock: Clock) -> Callable[[ObjectPath], Awaitable[JSON | None]]:
    """A function that explains the job at a path, as JSON; None if nothing is wrong, or not all could be read."""

    async def explain(job: ObjectPath) -> JSON | None:
        # Loaded here: most planes have no failed job.
        from gangline.why.collect import collect
        from gangline.why.diagnosis.diagnose import diagnose

        kind = f"{job.plural}.{job.group}" if job.group else job.plural
        try:
            case = await collect(client, f"{kind}/{job.name}", job.namespace, clock)
            # In a thread: it takes tenths of a second, and whoever records also serves.
            report = await asyncio.to_thread(diagnose, case)
        except GanglineError:
            # It was deleted meanwhile, or is of a kind that cannot be explained.
            return None
        body: JSON = msgspec.to_builtins(report)
        return None if report.healthy else body

    return explain
