"""What the node should do about one pod, given the state of the pod's processes. Pure.

The order is the kubelet's: init containers one after the other; among them sidecars (restart policy Always), which
count as initialized once started and keep running; then all main containers at once. A container that ends is started
again as the pod's restart policy says, after a back-off. When all main containers have ended for good the sidecars are
stopped, last first, and the pod has finished.

A pod that restarts in place has not finished when its main containers fail: it waits for the operator, which asks for
their next run or withdraws the annotation. Init containers do not run again, and sidecars keep running.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec

from gangline.api.core import ResourceRequirements
from gangline.api.in_place import InPlaceOrder
from gangline.node.settings import Backoff


class Role(Enum):
    """The part that a container has in its pod."""

    INIT = auto()
    # An init container that keeps running beside the main containers.
    SIDECAR = auto()
    MAIN = auto()
    # Added to a pod that runs, for somebody who looks into it. It never restarts, and the pod does not depend on it.
    EPHEMERAL = auto()


class Activity(Enum):
    """What the node is doing with a container at the moment."""

    IDLE = auto()
    STARTING = auto()
    STOPPING = auto()


class ContainerExit(msgspec.Struct, frozen=True):
    """How a process ended."""

    exit_code: int
    finished_at: datetime
    signal: int = 0
    reason: str = ""
    message: str = ""


class ContainerRun(msgspec.Struct, frozen=True):
    """One process of a container."""

    # 0 for the first: Kubernetes' restart count.
    attempt: int
    id: str = ""
    # Restarts in a row before this run, without a long run between them.
    streak: int = 0
    # None while the process is not started, and if it could not be started.
    started_at: datetime | None = None
    exit: ContainerExit | None = None

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.exit is None


class ContainerWaiting(msgspec.Struct, frozen=True):
    """Why a container cannot be started, and when to try again."""

    reason: str
    message: str
    retry_at: datetime


class ContainerObservation(msgspec.Struct, frozen=True):
    """The state of a container."""

    name: str
    role: Role = Role.MAIN
    image: str = ""
    # Newest last.
    runs: tuple[ContainerRun, ...] = ()
    activity: Activity = Activity.IDLE
    # The newest run has passed its postStart hook and its startup probe; has passed its readiness probe.
    started: bool = False
    ready: bool = False
    # Some run of the container was `started`: containers after it may run, for good.
    init_done: bool = False
    # Why the newest run must be stopped: a probe or hook failed.
    unhealthy_reason: str = ""
    waiting: ContainerWaiting | None = None
    resources: ResourceRequirements = ResourceRequirements()

    @property
    def latest_run(self) -> ContainerRun | None:
        return self.runs[-1] if self.runs else None

    @property
    def is_running(self) -> bool:
        return self.latest_run is not None and self.latest_run.is_running

    @property
    def succeeded(self) -> bool:
        latest = self.latest_run
        return latest is not None and latest.exit is not None and latest.exit.exit_code == 0

    @property
    def is_busy(self) -> bool:
        return self.is_running or self.activity is not Activity.IDLE


class Termination(msgspec.Struct, frozen=True):
    """Why the node itself ends a pod."""

    reason: str
    message: str


class PodObservation(msgspec.Struct, frozen=True):
    """The state of a pod."""

    containers: tuple[ContainerObservation, ...]
    now: datetime
    restart_policy: str = "Always"
    # When the node took the pod, and how long the pod may be active.
    start_time: datetime | None = None
    deadline: timedelta | None = None
    # Volumes and addresses are ready.
    prepared: bool = True
    # The API has a terminal phase for the pod: nothing is started any more.
    is_finished: bool = False
    # The pod is being deleted; all containers must have ended by then.
    stop_by: datetime | None = None
    grace: timedelta = timedelta(seconds=30)
    termination: Termination | None = None
    # A controller replaces the pod when it fails.
    has_controller: bool = False
    # The restart in place that is asked for; None: the pod does not restart in place.
    order: InPlaceOrder | None = None
    backoff: Backoff = Backoff()

    def with_role(self, *roles: Role) -> tuple[ContainerObservation, ...]:
        return tuple(container for container in self.containers if container.role in roles)


class StartContainer(msgspec.Struct, frozen=True, tag=True):
    """Start a run of a container."""

    container: str
    attempt: int
    streak: int


class StopContainer(msgspec.Struct, frozen=True, tag=True):
    """Ask a container to end, and kill it after the grace period."""

    container: str
    grace: timedelta
    reason: str = ""
    # Another run follows because somebody asked for it: this one has not failed.
    in_place: bool = False


class ReleasePod(msgspec.Struct, frozen=True, tag=True):
    """Confirm the deletion of the pod: all its containers have ended."""


Step = StartContainer | StopContainer | ReleasePod


class PodPlan(msgspec.Struct, frozen=True):
    """The steps to take now, and when to plan again at the latest."""

    steps: tuple[Step, ...] = ()
    wake_after: timedelta | None = None
    termination: Termination | None = None


PORT_CLASH = "PortClash"
DEADLINE_EXCEEDED = Termination("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


def plan(pod: PodObservation) -> PodPlan:
    """The next steps for a pod. Idempotent: a step that is under way is not planned again."""
    termination = pod_termination(pod)
    if pod.stop_by is not None:
        return PodPlan(_shutdown_steps(pod) or _release_steps(pod), termination=termination)
    if pod.is_finished or termination is not None or pod_has_finished(pod):
        return PodPlan(_shutdown_steps(pod), termination=termination)
    if not pod.prepared:
        return PodPlan(wake_after=_until_deadline(pod))
    steps, delays = [], [_until_deadline(pod)]
    for container in runnable_containers(pod):
        step, delay = _next_step(pod, container)
        steps += [step] if step is not None else []
        delays.append(delay)
    return PodPlan(tuple(steps), min((delay for delay in delays if delay is not None), default=None))


def pod_termination(pod: PodObservation) -> Termination | None:
    """Why the node itself ends the pod; None if it does not."""
    remaining = _until_deadline(pod)
    return (
        pod.termination
        or (DEADLINE_EXCEEDED if remaining is not None and remaining <= timedelta() else None)
        or _port_clash(pod)
    )


def _port_clash(pod: PodObservation) -> Termination | None:
    """The pod has lost a port. A restart of the pod would not help, because its peers know the old port."""
    exits = [container.latest_run.exit for container in pod.with_role(Role.MAIN) if container.latest_run is not None]
    clash = next((exit_ for exit_ in exits if exit_ is not None and exit_.reason == PORT_CLASH), None)
    return Termination(PORT_CLASH, clash.message) if clash is not None and pod.has_controller else None


def runnable_containers(pod: PodObservation) -> Iterator[ContainerObservation]:
    """The containers that should run now or have run; not those that wait for an init container."""
    yield from pod.with_role(Role.EPHEMERAL)
    for container in pod.with_role(Role.INIT, Role.SIDECAR):
        if container.role is Role.SIDECAR or not container.succeeded:
            yield container
        if not is_initialized(container):
            return
    yield from pod.with_role(Role.MAIN)


def is_initialized(container: ContainerObservation) -> bool:
    """Whether the containers after this init container may start."""
    return container.init_done if container.role is Role.SIDECAR else container.succeeded


def should_restart(container: ContainerObservation, policy: str) -> bool:
    """Whether a container that has ended is started again."""
    if container.role is Role.SIDECAR:
        return True
    if container.role is Role.EPHEMERAL:
        return False
    if container.role is Role.INIT:
        return not container.succeeded and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and not container.succeeded)


def has_finished(container: ContainerObservation, policy: str) -> bool:
    """Whether a container has ended for good."""
    latest = container.latest_run
    return (
        latest is not None
        and latest.exit is not None
        and container.activity is Activity.IDLE
        and not should_restart(container, policy)
    )


def pod_has_finished(pod: PodObservation) -> bool:
    """Whether the pod's work has ended, successfully or not: only sidecars may still run."""
    policy = pod.restart_policy
    if any(has_finished(init, policy) and not init.succeeded for init in pod.with_role(Role.INIT)):
        return True
    mains = pod.with_role(Role.MAIN)
    return bool(mains) and all(has_finished(main, policy) for main in mains) and not _awaits_restart(pod)


def _awaits_restart(pod: PodObservation) -> bool:
    """Whether a pod whose main containers have ended may get new runs of them: one failed, or a restart is asked for."""
    mains = pod.with_role(Role.MAIN)
    return pod.order is not None and any(is_outdated(main, pod) or not main.succeeded for main in mains)


def is_outdated(container: ContainerObservation, pod: PodObservation) -> bool:
    """Whether the newest run of a container is older than the restart in place that is asked for."""
    latest = container.latest_run
    if pod.order is None or container.role is not Role.MAIN or latest is None:
        return False
    return latest.attempt < pod.order.number


def next_streak(run: ContainerRun, backoff: Backoff) -> int:
    """The streak of the run that follows this one."""
    if run.started_at is None or run.exit is None:
        return run.streak + 1
    return 1 if run.exit.finished_at - run.started_at >= backoff.reset_after else run.streak + 1


def restart_delay(run: ContainerRun, backoff: Backoff) -> timedelta:
    """The time from the end of this run to the next."""
    return backoff.delay(next_streak(run, backoff) - 1)


def restart_at(container: ContainerObservation, backoff: Backoff) -> datetime | None:
    """When a container that has ended may start again; None when it never ran."""
    latest = container.latest_run
    if latest is None or latest.exit is None:
        return None
    return latest.exit.finished_at + restart_delay(latest, backoff)


def _next_step(pod: PodObservation, container: ContainerObservation) -> tuple[Step | None, timedelta | None]:
    """The next step of a runnable container, or the time until there is one."""
    if container.activity is not Activity.IDLE:
        return None, None
    outdated = is_outdated(container, pod)
    if container.is_running:
        if outdated:
            reason = f"Container {container.name} restarts in place"
            return StopContainer(container.name, pod.grace, reason, in_place=True), None
        reason = container.unhealthy_reason
        return (StopContainer(container.name, pod.grace, reason) if reason else None), None
    if not outdated and has_finished(container, pod.restart_policy):
        return None, None
    if pod.order is not None and not pod.order.starts:
        return None, None
    retry_at = container.waiting.retry_at if container.waiting is not None else None
    times = (pod.now, None if outdated else restart_at(container, pod.backoff), retry_at)
    delay = max(moment for moment in times if moment is not None) - pod.now
    if delay > timedelta():
        return None, delay
    latest = container.latest_run
    if latest is None:
        return StartContainer(container.name, 0, 0), None
    if outdated and pod.order is not None:
        return StartContainer(container.name, pod.order.number, 0), None
    return StartContainer(container.name, latest.attempt + 1, next_streak(latest, pod.backoff)), None


def _shutdown_steps(pod: PodObservation) -> tuple[Step, ...]:
    """Stop main and init containers together, then sidecars one by one, last first."""
    grace = pod.grace
    if pod.stop_by is not None:
        grace = max(pod.stop_by - pod.now, timedelta())
    working = [container for container in pod.with_role(Role.INIT, Role.MAIN, Role.EPHEMERAL) if container.is_busy]
    if working:
        return _stop_steps(working, grace)
    return _stop_steps([sidecar for sidecar in pod.with_role(Role.SIDECAR) if sidecar.is_busy][-1:], grace)


def _stop_steps(containers: Sequence[ContainerObservation], grace: timedelta) -> tuple[Step, ...]:
    return tuple(
        StopContainer(container.name, grace)
        for container in containers
        if container.is_running and container.activity is Activity.IDLE
    )


def _release_steps(pod: PodObservation) -> tuple[Step, ...]:
    return () if any(container.is_busy for container in pod.containers) else (ReleasePod(),)


def _until_deadline(pod: PodObservation) -> timedelta | None:
    if pod.start_time is None or pod.deadline is None:
        return None
    return pod.start_time + pod.deadline - pod.now
