"""Whatever happens to a controller, it ends with the same: for controllers of any kind, on a server in this process."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from gangline.api.scheme import CORE_SCHEME, Scheme
from gangline.base.clock import SystemClock
from gangline.base.errors import GanglineError
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.kube.client import Client
from gangline.kube.transport.api import Transport
from gangline.testing.cluster import local_cluster
from gangline.testing.faults import Fault, Faults, FaultyTransport, SimulatedCrash

T = TypeVar("T")

POLL_INTERVAL = timedelta(milliseconds=20)
IGNORED_PATHS = ("/leases", "/events")
"""Leaders renew and recorders tell, whether there is work or not."""


async def assert_controller_converges(
    controller: Callable[[Client], Coroutine[Any, Any, object]],
    story: Callable[[Client], Awaitable[object]],
    look: Callable[[Client], Awaitable[T]],
    *,
    seed: int = 0,
    rate: float = 0.2,
    plan: Sequence[Fault] | None = None,
    scheme: Scheme = CORE_SCHEME,
    quiet: timedelta = timedelta(seconds=0.3),
    within: timedelta = timedelta(seconds=30),
) -> T:
    """Play a story twice, on a calm server and on one where the controller's requests fail and it dies: `look` is the same.

    `controller` runs until cancelled and makes all its requests with the client it is given; when it dies it is called
    again. `story` is what people do. `look` gives what is compared: leave out uids, versions and times. The controller
    is done when it has written nothing for so long as `quiet`; then what it wrote is looked at, and that is returned.
    Faults come by a seed, at a rate, or as a `plan`; they cease when the story is over and the controller is done with
    it. Raises `AssertionError` if the rough end is another one, with the faults that were met; the same seed gives the
    same ones as far as the controller makes the same requests in the same order.
    """
    calm = _ControllerRun(controller, Faults(), scheme, quiet)
    wanted = await calm.run_story(story, look, lambda found: True, within)
    faults = Faults(plan) if plan is not None else Faults.seeded(seed, rate)
    rough = _ControllerRun(controller, faults, scheme, quiet)
    found = await rough.run_story(story, look, lambda found: found == wanted, within)
    met = "\n  ".join(rough.faults.met)
    named = f"seed {seed}" if plan is None else "the plan"
    assert found == wanted, f"{named}: in the calm world {wanted!r}, in the rough one {found!r} after\n  {met}"
    return found


class _ControllerRun:
    """One server, and a controller that lives on it as often as it takes."""

    def __init__(
        self,
        controller: Callable[[Client], Coroutine[Any, Any, object]],
        faults: Faults,
        scheme: Scheme,
        quiet: timedelta,
    ) -> None:
        self._controller, self.faults, self._scheme, self._quiet = controller, faults, scheme, quiet
        self._clock = SystemClock()
        self._transports: list[FaultyTransport] = []

    async def run_story(
        self,
        story: Callable[[Client], Awaitable[object]],
        look: Callable[[Client], Awaitable[T]],
        right: Callable[[T], bool],
        within: timedelta,
    ) -> T:
        """How it stands when the story is over, faults have ceased and the controller is done."""
        with unwrap_exception_group():
            return await self._run_story(story, look, right, within)

    async def _run_story(
        self,
        story: Callable[[Client], Awaitable[object]],
        look: Callable[[Client], Awaitable[T]],
        right: Callable[[T], bool],
        within: timedelta,
    ) -> T:
        async with (
            local_cluster(scheme=self._scheme, clock=self._clock) as cluster,
            background_tasks(self._keep_running(cluster.client.transport)),
        ):
            await story(cluster.client)
            await self._wait_until_quiet(within)
            self.faults.clear()
            deadline = self._clock.monotonic() + within.total_seconds()
            while True:
                await self._wait_until_quiet(within)
                found = await look(cluster.client)
                if right(found) or self._clock.monotonic() > deadline:
                    return found

    async def _keep_running(self, transport: Transport) -> None:
        while True:
            life = FaultyTransport(transport, self.faults, clock=self._clock)
            self._transports.append(life)
            try:
                await self._controller(Client(life, scheme=self._scheme, clock=self._clock))
            except (SimulatedCrash, GanglineError, BaseExceptionGroup) as error:
                # Whoever runs it starts it again, as a Deployment does. A mistake of its own is no death.
                if not _is_expected(error):
                    raise
            else:
                raise AssertionError("the controller ended by itself")
            await self._clock.sleep(POLL_INTERVAL)

    async def _wait_until_quiet(self, within: timedelta) -> None:
        deadline = self._clock.monotonic() + within.total_seconds()
        seen, calm = self._activity(), 0
        # Counted in looks and not in seconds: on a busy machine server and controller get no more turns than this does.
        while calm < self._quiet / POLL_INTERVAL:
            await self._clock.sleep(POLL_INTERVAL)
            before, seen = seen, self._activity()
            calm = calm + 1 if seen == before and not self._transports[-1].unanswered else 0
            assert self._clock.monotonic() < deadline, f"the controller is never done: {self._last_writes()}"

    def _activity(self) -> tuple[int, int]:
        return len(self._transports), len(self._writes())

    def _writes(self) -> list[str]:
        return [
            str(request)
            for life in self._transports
            for request in life.requests
            if request.method != "GET" and not any(each in request.path for each in IGNORED_PATHS)
        ]

    def _last_writes(self) -> str:
        return ", ".join(self._writes()[-3:]) or "it does not stay alive"


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, SimulatedCrash | GanglineError)
