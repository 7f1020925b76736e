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


class Ended(msgspec.Struct, frozen=True):
    """How a process ended."""

    code: int
    at: datetime
    signal: int = 0
    reason: str = ""
    message: str = ""


class Run(msgspec.Struct, frozen=True):
    """One process of a container."""

    # 0 for the first: what Kubernetes calls the restart count.
    attempt: int
    id: str = ""
    # How many restarts came before it in a row, without a long run in between.
    streak: int = 0
    # None: it could not be started, or was not yet.
    started: datetime | None = None
    ended: Ended | None = None

    @property
    def alive(self) -> bool:
        return self.started is not None and self.ended is None


class Waiting(msgspec.Struct, frozen=True):
    """Why a container cannot be started, and when to try again."""

    reason: str
    message: str
    until: datetime


class Seen(msgspec.Struct, frozen=True):
    """All that is known of a container."""

    name: str
    role: Role = Role.MAIN
    image: str = ""
    # Newest last.
    runs: tuple[Run, ...] = ()
    activity: Activity = Activity.IDLE
    # The newest run has passed its startup probe and its postStart hook; has passed its readiness probe.
    started: bool = False
    ready: bool = False
    # Some run of it was started in that sense: containers after it may run, for good.
    passed: bool = False
    # Why the newest run must be ended: a probe or hook failed.
    unhealthy: str = ""
    waiting: Waiting | None = None

    @property
    def newest(self) -> Run | None:
        return self.runs[-1] if self.runs else None

    @property
    def alive(self) -> bool:
        return self.newest is not None and self.newest.alive

    @property
    def succeeded(self) -> bool:
        newest = self.newest
        return newest is not None and newest.ended is not None and newest.ended.code == 0

    @property
    def busy(self) -> bool:
        return self.alive or self.activity is not Activity.IDLE


class Backoff(msgspec.Struct, frozen=True):
    """How long a container that ended waits before it is started again. The first restart is at once."""

    first: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(minutes=5)
    # A run that lasted so long was a success: the next restart counts as the first.
    reset: timedelta = timedelta(minutes=10)

    def scaled(self, factor: float) -> "Backoff":
        return Backoff(self.first * factor, self.longest * factor, self.reset * factor)

    def streak(self, run: Run) -> int:
        """Of the run that follows this one."""
        if run.started is not None and run.ended is not None and run.ended.at - run.started >= self.reset:
            return 1
        return run.streak + 1

    def delay(self, run: Run) -> timedelta:
        """From the end of this run to the next."""
        restarts = self.streak(run) - 1
        return min(self.longest, self.first * (1 << min(restarts - 1, 20))) if restarts else timedelta()


class Doom(msgspec.Struct, frozen=True):
    """Why the node ends a pod by itself."""

    reason: str
    message: str


class Observed(msgspec.Struct, frozen=True):
    """One pod, as a value."""

    containers: tuple[Seen, ...]
    now: datetime
    restart_policy: str = "Always"
    # Since when the node has the pod, and how long it may take.
    since: datetime | None = None
    deadline: timedelta | None = None
    # Volumes are there, addresses are known.
    prepared: bool = True
    # The API says that it is over: nothing is started any more.
    over: bool = False
    # The API wants it gone; everything must have ended by then.
    stop_by: datetime | None = None
    grace: timedelta = timedelta(seconds=30)
    doom: Doom | None = None
    # Somebody makes it anew when it fails.
    owned: bool = False
    backoff: Backoff = Backoff()

    def of(self, *roles: Role) -> tuple[Seen, ...]:
        return tuple(each for each in self.containers if each.role in roles)


class Start(msgspec.Struct, frozen=True, tag=True):
    """Run a container."""

    container: str
    attempt: int
    streak: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Ask a container to end, and kill it after the grace."""

    container: str
    grace: timedelta
    why: str = ""


class Release(msgspec.Struct, frozen=True, tag=True):
    """Everything has ended and the API wants the pod gone: let it go."""


Step = Start | Stop | Release


class Plan(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...] = ()
    wake_after: timedelta | None = None
    doom: Doom | None = None


CLASH = "PortClash"
DEADLINE = Doom("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


def plan(seen: Observed) -> Plan:
    """Decide. The same pod may be asked about any number of times; what is under way is not asked for again."""
    doom = doomed(seen)
    if seen.stop_by is not None:
        return Plan(_ending(seen) or _released(seen), doom=doom)
    if seen.over or doom is not None or finished(seen):
        return Plan(_ending(seen), doom=doom)
    if not seen.prepared:
        return Plan(wake_after=_until_deadline(seen))
    steps, wakes = [], [_until_deadline(seen)]
    for container in runnable(seen):
        step, wake = _advance(seen, container)
        steps += [step] if step is not None else []
        wakes.append(wake)
    return Plan(tuple(steps), min((wake for wake in wakes if wake is not None), default=None))


def doomed(seen: Observed) -> Doom | None:
    """Why the node itself ends the pod, if it does."""
    left = _until_deadline(seen)
    return seen.doom or (DEADLINE if left is not None and left <= timedelta() else None) or _clash(seen)


def _clash(seen: Observed) -> Doom | None:
    """A port of a team's pod is gone: to start it again would not help, for its peers were told that port."""
    ends = [each.newest.ended for each in seen.of(Role.MAIN) if each.newest is not None]
    lost = next((end for end in ends if end is not None and end.reason == CLASH), None)
    return Doom(CLASH, lost.message) if lost is not None and seen.owned else None


def runnable(seen: Observed) -> Iterator[Seen]:
    """Those whose turn it is, or was: they should run, or have run."""
    for container in seen.of(Role.INIT, Role.SIDECAR):
        if container.role is Role.SIDECAR or not container.succeeded:
            yield container
        if not initialized(container):
            return
    yield from seen.of(Role.MAIN)


def initialized(container: Seen) -> bool:
    """Whether the containers after this init container may start."""
    return container.passed if container.role is Role.SIDECAR else container.succeeded


def restarts(container: Seen, policy: str) -> bool:
    """Whether a container that has ended is started again."""
    if container.role is Role.SIDECAR:
        return True
    if container.role is Role.INIT:
        return not container.succeeded and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and not container.succeeded)


def over(container: Seen, policy: str) -> bool:
    """Whether a container has ended for good."""
    newest = container.newest
    return (
        newest is not None
        and newest.ended is not None
        and container.activity is Activity.IDLE
        and not restarts(container, policy)
    )


def finished(seen: Observed) -> bool:
    """Whether the pod's work is done, well or not: only sidecars may still run."""
    policy = seen.restart_policy
    if any(over(each, policy) and not each.succeeded for each in seen.of(Role.INIT)):
        return True
    mains = seen.of(Role.MAIN)
    return bool(mains) and all(over(each, policy) for each in mains)


def ready_at(container: Seen, backoff: Backoff) -> datetime | None:
    """When a container that ended may start again; None when it never ran."""
    newest = container.newest
    if newest is None or newest.ended is None:
        return None
    return newest.ended.at + backoff.delay(newest)


def _advance(seen: Observed, container: Seen) -> tuple[Step | None, timedelta | None]:
    """The next step of a container whose turn it is, or how long until there is one."""
    if container.activity is not Activity.IDLE:
        return None, None
    if container.alive:
        return (Stop(container.name, seen.grace, container.unhealthy) if container.unhealthy else None), None
    if over(container, seen.restart_policy):
        return None, None
    held = container.waiting.until if container.waiting is not None else None
    due = (seen.now, ready_at(container, seen.backoff), held)
    left = max(moment for moment in due if moment is not None) - seen.now
    if left > timedelta():
        return None, left
    newest = container.newest
    if newest is None:
        return Start(container.name, 0, 0), None
    return Start(container.name, newest.attempt + 1, seen.backoff.streak(newest)), None


def _ending(seen: Observed) -> tuple[Step, ...]:
    """Main and init containers together, then sidecars one by one, last first."""
    grace = seen.grace
    if seen.stop_by is not None:
        grace = max(seen.stop_by - seen.now, timedelta())
    working = [each for each in seen.of(Role.INIT, Role.MAIN) if each.busy]
    if working:
        return _stops(working, grace)
    return _stops([each for each in seen.of(Role.SIDECAR) if each.busy][-1:], grace)


def _stops(containers: Sequence[Seen], grace: timedelta) -> tuple[Step, ...]:
    return tuple(
        Stop(each.name, grace) for each in containers if each.alive and each.activity is Activity.IDLE
    )


def _released(seen: Observed) -> tuple[Step, ...]:
    return () if any(each.busy for each in seen.containers) else (Release(),)


def _until_deadline(seen: Observed) -> timedelta | None:
    if seen.since is None or seen.deadline is None:
        return None
    return seen.since + seen.deadline - seen.now
