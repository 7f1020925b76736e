"""Observe, plan, apply."""

from datetime import timedelta
from typing import Generic

from gangline.api.meta import Key
from gangline.jobs.execute import Executor
from gangline.jobs.framework import Framework, J
from gangline.jobs.observe import Observe
from gangline.jobs.plan import plan


class JobReconciler(Generic[J]):
    """One pass over one job."""

    def __init__(self, framework: Framework[J], observe: Observe[J], executor: Executor) -> None:
        self._framework, self._observe, self._executor = framework, observe, executor

    async def reconcile(self, key: Key) -> timedelta | None:
        seen = self._observe(key)
        if seen is None:
            return None
        intent = plan(self._framework, seen)
        await self._executor.apply(seen, intent)
        return intent.wake_after
