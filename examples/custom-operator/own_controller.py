"""The job engine inside a controller of your own, which adds a rule: a RelayJob runs when its team lets it.

python own_controller.py [volcano]      with a word, gangs are placed by that scheduler
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.meta import Key, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.gangs.volcano import Volcano
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.operator import JobReconciler, scheme_of
from gangline.runtime.cache import Cache
from gangline.runtime.events import EventRecorder, EventType
from gangline.runtime.manager import Manager
from gangline.runtime.sources import InformerSource, own_key, owner_key
from relay_operator import Relay, RelayJob

TEAM = "example.com/team"
GANGS: dict[str, GangScheduler] = {"volcano": Volcano()}


class MyController:
    """Looks at a job first, and hands it to the engine if it is welcome."""

    def __init__(self, jobs: Cache[RelayJob], engine: JobReconciler[RelayJob], recorder: EventRecorder) -> None:
        self._jobs, self._engine, self._recorder = jobs, engine, recorder

    async def reconcile(self, key: Key) -> timedelta | None:
        job = self._jobs.get(key)
        if job is not None and TEAM not in job.metadata.labels:
            self._recorder.record(job, EventType.WARNING, "NoTeam", f"label the job with {TEAM}, and it runs")
            return None
        return await self._engine.reconcile(key)


async def main(connection: Connection, gang: GangScheduler | None, clock: Clock) -> None:
    framework = Relay()
    async with HttpTransport(connection) as transport:
        client = Client(transport, scheme=scheme_of([framework]), clock=clock)
        recorder = EventRecorder(client, "my-controller", "1", clock, scheme=client.scheme)
        manager = Manager(client, clock, recorder=recorder)
        jobs = manager.informer(RelayJob)
        pods = manager.informer(Pod, Selector(labels="training.kubeflow.org/job-name"))
        engine = JobReconciler(framework, client, recorder, gang=gang, clock=clock)
        sources = [InformerSource(jobs, own_key), InformerSource(pods, owner_key("RelayJob"))]
        manager.new_controller("relay", MyController(jobs.cache, engine, recorder), sources)
        await manager.run()


if __name__ == "__main__":
    named = GANGS[sys.argv[1]] if len(sys.argv) > 1 else None
    asyncio.run(main(load_connection(environ=os.environ, home=Path.home()), named, SystemClock()))
