"""The gang scheduler of a local plane: begun when the first pod asks for it. Until then none of it is imported."""

import asyncio
import socket
from datetime import timedelta

from gangline.api.core import SchedulingGate
from gangline.api.meta import ApiStruct, Object
from gangline.api.scheduling import GANG_GATE, SCHEDULER_NAME
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first
from gangline.kube.client import Client
from gangline.runtime.informer import Delta, Informer


class _PlacementSpec(ApiStruct, frozen=True):
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _PlacementPod(Object, frozen=True):
    """A pod, as far as who is to place it."""

    spec: _PlacementSpec = _PlacementSpec()


_PODS = Resource("", "v1", "Pod", "pods", _PlacementPod)


async def run_scheduler_when_needed(client: Client, clock: Clock) -> None:
    """Place gangs until cancelled, from the moment on in which there is one."""
    await _wait_for_gang_pod(client, clock)
    # Here, because numpy takes a tenth of a second, and most runs have no gang.
    from gangline.kube.options import WriteOptions
    from gangline.runtime.events import EventRecorder
    from gangline.scheduler.scheduler import CONTROLLER, SCHEME, Scheduler
    from gangline.scheduler.settings import FIELD_MANAGER, Intervals, SchedulerSettings

    ours = Client(client.transport, scheme=SCHEME, clock=clock, options=WriteOptions(field_manager=FIELD_MANAGER))
    recorder = EventRecorder(ours, CONTROLLER, socket.gethostname(), clock, scheme=SCHEME)
    # Somebody looks on.
    quick = SchedulerSettings(
        intervals=Intervals(report=timedelta(milliseconds=10), status_write=timedelta(milliseconds=200))
    )
    scheduler = Scheduler(ours, clock, recorder, quick)
    await run_until_first(scheduler.run(), recorder.run())


async def _wait_for_gang_pod(client: Client, clock: Clock) -> None:
    """Return when there is a pod that we are to place."""
    pods = Informer(client, _PODS, clock=clock)
    seen = asyncio.Event()

    def look(delta: Delta[_PlacementPod]) -> None:
        spec = delta.newest.spec
        if spec.scheduler_name == SCHEDULER_NAME or any(gate.name == GANG_GATE for gate in spec.scheduling_gates):
            seen.set()

    with pods.subscribe(look):
        await run_until_first(pods.run(), seen.wait())
