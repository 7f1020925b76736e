"""The embedded plane: joins operator, gang scheduler and local plane in one process. The only place that does."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.core import SchedulingGate
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import ApiStruct, Key, Object
from gangline.api.scheduling import GANG_GATE, SCHEDULER_NAME
from gangline.api.scheme import Resource
from gangline.apiserver.admission.service_account import ServiceAccountAdmission
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first
from gangline.health.settings import WatchSettings
from gangline.health.watch_list import Watcher, WatchList
from gangline.jobs.framework import Framework
from gangline.jobs.pods.progress_reporting import ProgressEndpoint
from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.node.network.namespaces import SERVER_NAME
from gangline.node.ports import LOOPBACK
from gangline.node.settings import ISOLATED_NETWORK
from gangline.operator.definitions import apply_job_roles, create_crds
from gangline.operator.engine import JobEngine, enabled_frameworks, scheme_of
from gangline.operator.settings import LOCAL_SETTINGS, OperatorSettings
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.manager import Manager

if TYPE_CHECKING:
    from gangline.notify.plan.routes import NotificationSettings

MAX_PORT = 65535
LOCAL_PROGRESS_INTERVAL = timedelta(seconds=1)
"""How often the progress of a pod is written: a person is watching."""
NOTIFICATIONS_KEY = Key("kube-system", "gangline-notifications")
"""The ConfigMap of a lasting plane that says which notifications were delivered."""
LAST_DELIVERIES = timedelta(seconds=5)
"""How long a plane that ends for good waits until its last notifications are delivered."""


@asynccontextmanager
async def embedded_plane(
    settings: LocalSettings,
    clock: Clock,
    operator: OperatorSettings = LOCAL_SETTINGS,
    custom: Sequence[Framework[Any]] = (),
    *,
    notifications: "NotificationSettings | None" = None,
    report_undelivered: Callable[[str], None] | None = None,
) -> AsyncIterator[LocalCluster]:
    """A local plane with an operator and a gang scheduler. The server has the definitions of the operator's kinds.

    `custom` are frameworks in addition to the built-in ones. A plane without a state folder delivers its last
    notifications before it ends, as far as time allows, and calls `report_undelivered` if some are left.
    """
    frameworks = (*enabled_frameworks(operator), *custom)
    scheme = scheme_of(frameworks, operator.site.gang_schedulers)
    async with (
        _progress_listener(settings, operator) as listener,
        local_cluster(_reachable(listener, settings), scheme, clock) as plane,
        asyncio.TaskGroup() as group,
    ):
        kinds = await create_crds(plane.client, clock, [framework.facts for framework in frameworks])
        frameworks = tuple(framework for framework in frameworks if framework.facts in kinds)
        if settings.state is not None:  # the plane of a single run has no other users
            await apply_job_roles(plane.client, kinds)

        def add_notifier(manager: Manager) -> None:
            if notifications is not None:
                kinds = [framework.facts.model for framework in frameworks]
                lasting = settings.state is not None
                _add_notifier(
                    manager, plane.client, notifications, kinds, clock, lasting=lasting, report=report_undelivered
                )

        tasks = [
            group.create_task(
                run_engine(
                    plane.client,
                    _reporting_to(listener, settings, operator),
                    frameworks,
                    clock,
                    add_notifier,
                    partial(local_watcher, settings.logs, operator, clock),
                )
            ),
            group.create_task(run_scheduler_when_needed(plane.client, clock)),
        ]
        if listener is not None:
            tasks.append(group.create_task(run_progress_endpoint_when_needed(listener, plane.client, kinds, clock)))
        try:
            yield plane
        finally:
            for task in tasks:
                task.cancel()


@asynccontextmanager
async def _progress_listener(
    settings: LocalSettings, operator: OperatorSettings
) -> AsyncIterator[socket.socket | None]:
    """A socket on loopback for progress reports; None where pods have no tokens."""
    has_tokens = ServiceAccountAdmission.name not in settings.plane.disabled_admission_plugins
    if not operator.receives_progress or not has_tokens:
        yield None
        return
    # After a restart of the plane, pods that went on running find it again.
    preferred = settings.plane.port + 1 if 0 < settings.plane.port < MAX_PORT else 0
    try:
        listener = socket.create_server((LOOPBACK, preferred))
    except OSError:
        listener = socket.create_server((LOOPBACK, 0))
    with listener:
        yield listener


def _reachable(listener: socket.socket | None, settings: LocalSettings) -> LocalSettings:
    """The settings of a plane whose pods reach the socket."""
    if listener is None:
        return settings
    node = msgspec.structs.replace(settings.node, shared_ports=(listener.getsockname()[1],))
    return msgspec.structs.replace(settings, node=node)


def _reporting_to(
    listener: socket.socket | None, settings: LocalSettings, operator: OperatorSettings
) -> OperatorSettings:
    """The settings of an operator whose pods know where to report progress."""
    if listener is None:
        return operator
    host = SERVER_NAME if settings.node.network == ISOLATED_NETWORK else LOOPBACK
    endpoint = ProgressEndpoint(f"http://{host}:{listener.getsockname()[1]}", every_job=True)
    return msgspec.structs.replace(operator, site=msgspec.structs.replace(operator.site, progress=endpoint))


async def run_progress_endpoint_when_needed(
    listener: socket.socket, client: Client, kinds: Sequence[JobKind], clock: Clock
) -> None:
    """Receive progress until cancelled, from the moment on when the first program connects."""
    await _wait_for_connection(listener)
    # Imported here: most programs print their progress, or report none.
    from gangline.operator.progress.endpoint import progress_endpoint
    from gangline.operator.progress.writer import ProgressWriter

    writer = ProgressWriter(client, clock, interval=LOCAL_PROGRESS_INTERVAL)
    async with writer.running(), progress_endpoint(client, kinds, writer, listener, clock):
        await asyncio.get_running_loop().create_future()


async def _wait_for_connection(listener: socket.socket) -> None:
    loop, connected = asyncio.get_running_loop(), asyncio.Event()
    listener.settimeout(0)
    loop.add_reader(listener, connected.set)
    try:
        await connected.wait()
    finally:
        loop.remove_reader(listener)


async def run_engine(
    client: Client,
    settings: OperatorSettings,
    frameworks: Sequence[Framework[Any]],
    clock: Clock,
    add_parts: Callable[[Manager], None] = lambda manager: None,
    new_watcher: Callable[[WatchList], Watcher] | None = None,
) -> None:
    """Run the job engine until cancelled. `add_parts` adds what else the manager runs.

    With `new_watcher` and settings for it, hangs are watched for.
    """
    manager = Manager(client, clock)
    watch_list = WatchList() if settings.hang_watch is not None and new_watcher is not None else None
    engine = JobEngine(manager, client, settings, socket.gethostname(), clock, watch_list=watch_list)
    engine.add_frameworks(frameworks)
    if watch_list is not None and new_watcher is not None:
        manager.add_runnable(partial(watch_list.run, partial(new_watcher, watch_list), clock))
    add_parts(manager)
    await manager.run(signals=False)


def local_watcher(state: Path, operator: OperatorSettings, clock: Clock, watch_list: WatchList) -> Watcher:
    """A hang watcher for the pods of a node whose records are in `state`."""
    # Imported here: it takes a tenth of a second, and the first job is more urgent.
    from gangline.health.local_signs import LocalSignReader
    from gangline.health.watcher import HangWatcher
    from gangline.local.stack_sampling import LocalStackSampler

    settings = operator.hang_watch or WatchSettings()
    return HangWatcher(watch_list, LocalSignReader(state, clock), LocalStackSampler(state), clock, settings)


def _add_notifier(
    manager: Manager,
    client: Client,
    notifications: "NotificationSettings",
    kinds: Sequence[type[Any]],
    clock: Clock,
    *,
    lasting: bool,
    report: Callable[[str], None] | None,
) -> None:
    # Imported here: most planes notify nobody.
    from gangline.notify.notifier import DEFAULT_OPTIONS, NotifierOptions
    from gangline.notify.setup import new_notifier

    informers = [manager.informer(kind) for kind in kinds]
    options = NotifierOptions(finish_within=LAST_DELIVERIES, report_undelivered=report)
    if lasting:
        notifier = new_notifier(notifications, client, NOTIFICATIONS_KEY, informers, clock, DEFAULT_OPTIONS)
    else:
        notifier = new_notifier(notifications, client, None, informers, clock, options)
    manager.add_runnable(notifier.run)


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
