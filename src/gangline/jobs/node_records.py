"""Remembers on which nodes jobs failed, so that others avoid these nodes for a while.

In memory, and made anew from the statuses of jobs when the operator starts.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from gangline.api.kubeflow.training import TrainingJob
from gangline.api.meta import Key
from gangline.jobs.framework import Framework
from gangline.jobs.plan.recovery.affinity import NO_AVOIDANCE, NodeAvoidance
from gangline.jobs.plan.recovery.bad_nodes import (
    BadNode,
    BadNodeLimits,
    NodeIncident,
    bad_nodes,
    job_incidents,
    node_avoidance,
)
from gangline.runtime.informer import Delta, Informer

log = logging.getLogger(__name__)

MAX_INCIDENTS = 10_000
REFRESH_INTERVAL = timedelta(seconds=5)
"""How old the answer may be: every reconcile asks."""


class NodeRecords:
    """All failures of jobs by node, and the nodes to avoid because of them."""

    def __init__(self, limits: BadNodeLimits, nodes: Callable[[], Iterable[str]]) -> None:
        """`nodes` returns the names of the nodes that are known."""
        self._limits, self._nodes = limits, nodes
        # In the order in which they became known; the values are not used.
        self._incidents: dict[NodeIncident, None] = {}
        self._answer: tuple[datetime, tuple[BadNode, ...]] | None = None

    def add(self, incidents: Iterable[NodeIncident]) -> None:
        """Remember failures. The same one may be added many times."""
        for incident in incidents:
            if incident not in self._incidents:
                self._incidents[incident] = None
                self._answer = None
        while len(self._incidents) > MAX_INCIDENTS:
            del self._incidents[next(iter(self._incidents))]

    def bad_nodes(self, now: datetime) -> tuple[BadNode, ...]:
        """The nodes to avoid at a time."""
        if not self._incidents:
            return ()
        if self._answer is not None and timedelta() <= now - self._answer[0] < REFRESH_INTERVAL:
            return self._answer[1]
        self._incidents = {one: None for one in self._incidents if now - one.time < self._limits.forgive_after}
        before = self._answer[1] if self._answer is not None else ()
        owners = {incident.owner for incident in self._incidents}
        enough = len(owners) >= self._limits.soft_owners
        found = bad_nodes(self._incidents, frozenset(self._nodes()), now, self._limits) if enough else ()
        for node in found:
            if node not in before:
                log.warning("node is avoided", extra={"node": node.name, "reason": node.reason})
        self._answer = (now, found)
        return found

    def avoidance(self, now: datetime) -> NodeAvoidance:
        """How new pods avoid the bad nodes of a time."""
        found = self.bad_nodes(now)
        return node_avoidance(found) if found else NO_AVOIDANCE


class NodeRecordSource:
    """A source that adds no keys: it passes the failures in the statuses of jobs to the records."""

    def __init__(self, jobs: Informer[Any], framework: Framework[Any], records: NodeRecords) -> None:
        self._jobs, self._framework, self._records = jobs, framework, records

    @contextmanager
    def attach(self, add: Callable[[Key], None]) -> Iterator[None]:
        with self._jobs.subscribe(self._observe_delta):
            yield

    async def wait_for_sync(self) -> None:
        await self._jobs.wait_for_sync()

    def _observe_delta(self, delta: Delta[Any]) -> None:
        job: TrainingJob = delta.newest
        if job.status.recovery is not None and job.is_of_this_api:
            self._records.add(job_incidents(job, self._framework.replicas(job)))
