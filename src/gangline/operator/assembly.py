"""The embedded plane: joins operator, gang scheduler and local plane in one process. The only place that does."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.core import SchedulingGate
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import ApiStruct, Object
from gangline.api.scheduling import GANG_GATE, SCHEDULER_NAME
from gangline.api.scheme import Resource
from gangline.apiserver.admission.service_account import ServiceAccountAdmission
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first
from gangline.jobs.framework import Framework
from gangline.jobs.pods.progress_reporting import ProgressEndpoint
from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.node.ports import LOOPBACK
from gangline.node.settings import ISOLATED_NETWORK
from gangline.operator.definitions import apply_job_roles, create_crds
from gangline.operator.engine import JobEngine, enabled_frameworks, scheme_of
from gangline.operator.progress.endpoint import progress_endpoint
from gangline.operator.progress.writer import ProgressWriter
from gangline.operator.settings import LOCAL_SETTINGS, OperatorSettings
from gangline.runtime.health import BindAddress
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.manager import Manager


@asynccontextmanager
async def embedded_plane(
    settings: LocalSettings,
    clock: Clock,
    operator: OperatorSettings = LOCAL_SETTINGS,
    custom: Sequence[Framework[Any]] = (),
) -> AsyncIterator[LocalCluster]:
    """A local plane with an operator and a gang scheduler. The server has the definitions of the operator's kinds.

    `custom` are frameworks in addition to the built-in ones.
    """
    frameworks = (*enabled_frameworks(operator), *custom)
    scheme = scheme_of(frameworks, operator.site.gang_schedulers)
    async with local_cluster(settings, scheme, clock) as plane, asyncio.TaskGroup() as group:
        kinds = await create_crds(plane.client, clock, [framework.facts for framework in frameworks])
        frameworks = tuple(framework for framework in frameworks if framework.facts in kinds)
        if settings.state is not None:  # the plane of a single run has no other users
            await apply_job_roles(plane.client, kinds)
        async with _with_progress(plane, settings, operator, kinds, clock) as informed:
            tasks = [
                group.create_task(run_engine(plane.client, informed, frameworks, clock)),
                group.create_task(run_scheduler_when_needed(plane.client, clock)),
            ]
            try:
                yield plane
            finally:
                for task in tasks:
                    task.cancel()


@asynccontextmanager
async def _with_progress(
    plane: LocalCluster, settings: LocalSettings, operator: OperatorSettings, kinds: Iterable[JobKind], clock: Clock
) -> AsyncIterator[OperatorSettings]:
    """Receive progress on loopback until the block ends. Yields the operator's settings, with the address for pods.

    Not where pods have no tokens, or a network of their own.
    """
    has_tokens = ServiceAccountAdmission.name not in settings.plane.disabled_admission_plugins
    if not operator.receives_progress or not has_tokens or settings.node.network == ISOLATED_NETWORK:
        yield operator
        return
    writer = ProgressWriter(plane.client, clock)
    loopback = BindAddress(LOOPBACK, 0)
    async with writer.running(), progress_endpoint(plane.client, kinds, writer, loopback, clock) as address:
        endpoint = ProgressEndpoint(f"http://{address}", every_job=True)
        yield msgspec.structs.replace(operator, site=msgspec.structs.replace(operator.site, progress=endpoint))


async def run_engine(
    client: Client, settings: OperatorSettings, frameworks: Sequence[Framework[Any]], clock: Clock
) -> None:
    """Run the job engine until cancelled."""
    manager = Manager(client, clock)
    engine = JobEngine(manager, client, settings, socket.gethostname(), clock)
    engine.add_frameworks(frameworks)
    await manager.run(signals=False)


async def run_scheduler_when_needed(client: Client, clock: Clock) -> None:
    """Run the gang scheduler until cancelled, from the moment on when the first pod names it."""
    await _wait_for_gang_pod(client, clock)
    # Imported here because numpy takes a tenth of a second, and most runs have no gang.
    from gangline.kube.options import WriteOptions
    from gangline.runtime.events import EventRecorder
    from gangline.scheduler.scheduler import CONTROLLER, SCHEME, Scheduler
    from gangline.scheduler.settings import FIELD_MANAGER, Intervals, SchedulerSettings

    options = WriteOptions(field_manager=FIELD_MANAGER)
    scheduler_client = Client(client.transport, scheme=SCHEME, clock=clock, options=options)
    recorder = EventRecorder(scheduler_client, CONTROLLER, socket.gethostname(), clock, scheme=SCHEME)
    # Shorter than in a cluster: a person is watching.
    intervals = Intervals(report=timedelta(milliseconds=10), status_write=timedelta(milliseconds=200))
    scheduler = Scheduler(scheduler_client, clock, recorder, SchedulerSettings(intervals=intervals))
    await run_until_first(scheduler.run(), recorder.run())


async def _wait_for_gang_pod(client: Client, clock: Clock) -> None:
    """Return when a pod exists that the gang scheduler must place."""
    pods = Informer(client, _PODS, clock=clock)
    exists = asyncio.Event()

    def check(delta: Delta[_PlacementPod]) -> None:
        spec = delta.newest.spec
        if spec.scheduler_name == SCHEDULER_NAME or any(gate.name == GANG_GATE for gate in spec.scheduling_gates):
            exists.set()

    with pods.subscribe(check):
        await run_until_first(pods.run(), exists.wait())


class _PlacementSpec(ApiStruct, frozen=True):
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class _PlacementPod(Object, frozen=True):
    """The part of a pod that tells which scheduler places it."""

    spec: _PlacementSpec = _PlacementSpec()


_PODS = Resource("", "v1", "Pod", "pods", _PlacementPod)
