"""The gang scheduler of a local plane: begun when the first pod asks for it. Until then none of it is imported."""

import asyncio
import socket
from datetime import timedelta

from gangline.api.core import SchedulingGate
from gangline.api.meta import Object, Wire
from gangline.api.scheduling import GATE, SCHEDULER
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import first_of
from gangline.kube.client import Client
from gangline.runtime.informer import Delta, Informer


class _Spec(Wire, frozen=True):
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _Pod(Object, frozen=True):
    """A pod, as far as who is to place it."""

    spec: _Spec = _Spec()


_PODS = Resource("", "v1", "Pod", "pods", _Pod)


async def schedule_when_asked(client: Client, clock: Clock) -> None:
    """Place gangs until cancelled, from the moment on in which there is one."""
    await _asked(client, clock)
    # Here, because numpy takes a tenth of a second, and most runs have no gang.
    from gangline.kube.options import WriteOptions
    from gangline.runtime.events import Recorder
    from gangline.scheduler.scheduler import CONTROLLER, SCHEME, Scheduler
    from gangline.scheduler.settings import MANAGER, Pace, SchedulerSettings

    ours = Client(client.transport, scheme=SCHEME, clock=clock, options=WriteOptions(field_manager=MANAGER))
    recorder = Recorder(ours, CONTROLLER, socket.gethostname(), clock, scheme=SCHEME)
    # Somebody looks on.
    quick = SchedulerSettings(pace=Pace(report=timedelta(milliseconds=10), same=timedelta(milliseconds=200)))
    scheduler = Scheduler(ours, clock, recorder, quick)
    await first_of(scheduler.run(), recorder.run())


async def _asked(client: Client, clock: Clock) -> None:
    """Return when there is a pod that we are to place."""
    pods = Informer(client, _PODS, clock=clock)
    seen = asyncio.Event()

    def look(delta: Delta[_Pod]) -> None:
        spec = delta.newest.spec
        if spec.scheduler_name == SCHEDULER or any(gate.name == GATE for gate in spec.scheduling_gates):
            seen.set()

    with pods.subscribed(look):
        await first_of(pods.run(), seen.wait())
