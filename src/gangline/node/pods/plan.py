"""What the node should do about one pod, given what it knows of the pod's processes. Pure.

The order of a pod's life, as the kubelet has it: init containers one after the other; among them sidecars (restart
policy Always), which count as done once started and then stay; then all others at once. A container that ends is
started again as the pod's restart policy says, after a back-off. Once the main containers have ended for good the
sidecars are stopped, last first, and the pod is over.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec


class Role(Enum):
    """What a container is to its pod."""

    INIT = auto()
    # An init container that stays.
    SIDECAR = auto()
    MAIN = auto()


class Activity(Enum):
    """What the node is doing about a container right now."""

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

    # 0 for the first: what Kubernetes calls the restart count.
    attempt: int
    id: str = ""
    # How many restarts came before it in a row, without a long run in between.
    streak: int = 0
    # None: it could not be started, or was not yet.
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
    """All that is known of a container."""

    name: str
    role: Role = Role.MAIN
    image: str = ""
    # Newest last.
    runs: tuple[ContainerRun, ...] = ()
    activity: Activity = Activity.IDLE
    # The newest run has passed its startup probe and its postStart hook; has passed its readiness probe.
    started: bool = False
    ready: bool = False
    # Some run of it was started in that sense: containers after it may run, for good.
    init_done: bool = False
    # Why the newest run must be ended: a probe or hook failed.
    unhealthy_reason: str = ""
    waiting: ContainerWaiting | None = None

    @property
    def latest_run(self) -> ContainerRun | None:
        return self.runs[-1] if self.runs else None

    @property
    def is_running(self) -> bool:
        return self.latest_run is not None and self.latest_run.is_running

    @property
    def succeeded(self) -> bool:
        newest = self.latest_run
        return newest is not None and newest.exit is not None and newest.exit.exit_code == 0

    @property
    def is_busy(self) -> bool:
        return self.is_running or self.activity is not Activity.IDLE


class Backoff(msgspec.Struct, frozen=True):
    """How long a container that ended waits before it is started again. The first restart is at once."""

    initial: timedelta = timedelta(seconds=10)
    maximum: timedelta = timedelta(minutes=5)
    # A run that lasted so long was a success: the next restart counts as the first.
    reset_after: timedelta = timedelta(minutes=10)

    def scaled(self, factor: float) -> "Backoff":
        return Backoff(self.initial * factor, self.maximum * factor, self.reset_after * factor)

    def next_streak(self, run: ContainerRun) -> int:
        """Of the run that follows this one."""
        if (
            run.started_at is not None
            and run.exit is not None
            and run.exit.finished_at - run.started_at >= self.reset_after
        ):
            return 1
        return run.streak + 1

    def delay(self, run: ContainerRun) -> timedelta:
        """From the end of this run to the next."""
        restarts = self.next_streak(run) - 1
        return min(self.maximum, self.initial * (1 << min(restarts - 1, 20))) if restarts else timedelta()


class Termination(msgspec.Struct, frozen=True):
    """Why the node ends a pod by itself."""

    reason: str
    message: str


class PodObservation(msgspec.Struct, frozen=True):
    """One pod, as a value."""

    containers: tuple[ContainerObservation, ...]
    now: datetime
    restart_policy: str = "Always"
    # Since when the node has the pod, and how long it may take.
    start_time: datetime | None = None
    deadline: timedelta | None = None
    # Volumes are there, addresses are known.
    prepared: bool = True
    # The API says that it is over: nothing is started any more.
    is_finished: bool = False
    # The API wants it gone; everything must have ended by then.
    stop_by: datetime | None = None
    grace: timedelta = timedelta(seconds=30)
    termination: Termination | None = None
    # Somebody makes it anew when it fails.
    has_controller: bool = False
    backoff: Backoff = Backoff()

    def with_role(self, *roles: Role) -> tuple[ContainerObservation, ...]:
        return tuple(each for each in self.containers if each.role in roles)


class StartContainer(msgspec.Struct, frozen=True, tag=True):
    """Run a container."""

    container: str
    attempt: int
    streak: int


class StopContainer(msgspec.Struct, frozen=True, tag=True):
    """Ask a container to end, and kill it after the grace."""

    container: str
    grace: timedelta
    reason: str = ""


class ReleasePod(msgspec.Struct, frozen=True, tag=True):
    """Everything has ended and the API wants the pod gone: let it go."""


Step = StartContainer | StopContainer | ReleasePod


class PodPlan(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...] = ()
    wake_after: timedelta | None = None
    termination: Termination | None = None


PORT_CLASH = "PortClash"
DEADLINE_EXCEEDED = Termination("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


def plan(seen: PodObservation) -> PodPlan:
    """Decide. The same pod may be asked about any number of times; what is under way is not asked for again."""
    doom = pod_termination(seen)
    if seen.stop_by is not None:
        return PodPlan(_shutdown_steps(seen) or _release_steps(seen), termination=doom)
    if seen.is_finished or doom is not None or pod_has_finished(seen):
        return PodPlan(_shutdown_steps(seen), termination=doom)
    if not seen.prepared:
        return PodPlan(wake_after=_until_deadline(seen))
    steps, wakes = [], [_until_deadline(seen)]
    for container in runnable_containers(seen):
        step, wake = _next_step(seen, container)
        steps += [step] if step is not None else []
        wakes.append(wake)
    return PodPlan(tuple(steps), min((wake for wake in wakes if wake is not None), default=None))


def pod_termination(seen: PodObservation) -> Termination | None:
    """Why the node itself ends the pod, if it does."""
    left = _until_deadline(seen)
    return (
        seen.termination
        or (DEADLINE_EXCEEDED if left is not None and left <= timedelta() else None)
        or _port_clash(seen)
    )


def _port_clash(seen: PodObservation) -> Termination | None:
    """A port of a team's pod is gone: to start it again would not help, for its peers were told that port."""
    ends = [each.latest_run.exit for each in seen.with_role(Role.MAIN) if each.latest_run is not None]
    lost = next((end for end in ends if end is not None and end.reason == PORT_CLASH), None)
    return Termination(PORT_CLASH, lost.message) if lost is not None and seen.has_controller else None


def runnable_containers(seen: PodObservation) -> Iterator[ContainerObservation]:
    """Those whose turn it is, or was: they should run, or have run."""
    for container in seen.with_role(Role.INIT, Role.SIDECAR):
        if container.role is Role.SIDECAR or not container.succeeded:
            yield container
        if not is_initialized(container):
            return
    yield from seen.with_role(Role.MAIN)


def is_initialized(container: ContainerObservation) -> bool:
    """Whether the containers after this init container may start."""
    return container.init_done if container.role is Role.SIDECAR else container.succeeded


def should_restart(container: ContainerObservation, policy: str) -> bool:
    """Whether a container that has ended is started again."""
    if container.role is Role.SIDECAR:
        return True
    if container.role is Role.INIT:
        return not container.succeeded and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and not container.succeeded)


def has_finished(container: ContainerObservation, policy: str) -> bool:
    """Whether a container has ended for good."""
    newest = container.latest_run
    return (
        newest is not None
        and newest.exit is not None
        and container.activity is Activity.IDLE
        and not should_restart(container, policy)
    )


def pod_has_finished(seen: PodObservation) -> bool:
    """Whether the pod's work is done, well or not: only sidecars may still run."""
    policy = seen.restart_policy
    if any(has_finished(each, policy) and not each.succeeded for each in seen.with_role(Role.INIT)):
        return True
    mains = seen.with_role(Role.MAIN)
    return bool(mains) and all(has_finished(each, policy) for each in mains)


def restart_at(container: ContainerObservation, backoff: Backoff) -> datetime | None:
    """When a container that ended may start again; None when it never ran."""
    newest = container.latest_run
    if newest is None or newest.exit is None:
        return None
    return newest.exit.finished_at + backoff.delay(newest)


def _next_step(seen: PodObservation, container: ContainerObservation) -> tuple[Step | None, timedelta | None]:
    """The next step of a container whose turn it is, or how long until there is one."""
    if container.activity is not Activity.IDLE:
        return None, None
    if container.is_running:
        return (
            StopContainer(container.name, seen.grace, container.unhealthy_reason)
            if container.unhealthy_reason
            else None
        ), None
    if has_finished(container, seen.restart_policy):
        return None, None
    held = container.waiting.retry_at if container.waiting is not None else None
    due = (seen.now, restart_at(container, seen.backoff), held)
    left = max(moment for moment in due if moment is not None) - seen.now
    if left > timedelta():
        return None, left
    newest = container.latest_run
    if newest is None:
        return StartContainer(container.name, 0, 0), None
    return StartContainer(container.name, newest.attempt + 1, seen.backoff.next_streak(newest)), None


def _shutdown_steps(seen: PodObservation) -> tuple[Step, ...]:
    """Main and init containers together, then sidecars one by one, last first."""
    grace = seen.grace
    if seen.stop_by is not None:
        grace = max(seen.stop_by - seen.now, timedelta())
    working = [each for each in seen.with_role(Role.INIT, Role.MAIN) if each.is_busy]
    if working:
        return _stop_steps(working, grace)
    return _stop_steps([each for each in seen.with_role(Role.SIDECAR) if each.is_busy][-1:], grace)


def _stop_steps(containers: Sequence[ContainerObservation], grace: timedelta) -> tuple[Step, ...]:
    return tuple(
        StopContainer(each.name, grace) for each in containers if each.is_running and each.activity is Activity.IDLE
    )


def _release_steps(seen: PodObservation) -> tuple[Step, ...]:
    return () if any(each.is_busy for each in seen.containers) else (ReleasePod(),)


def _until_deadline(seen: PodObservation) -> timedelta | None:
    if seen.start_time is None or seen.deadline is None:
        return None
    return seen.start_time + seen.deadline - seen.now
