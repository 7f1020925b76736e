"""Asserts that a controller of any kind comes to the same result whatever fails, on a server in this process."""

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
"""Writes to these paths do not show that the controller is busy: leaders renew Leases, recorders write Events."""


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
    """Run a story twice, without faults and with requests that fail and crashes: `look` must return the same.

    `controller` runs until cancelled and makes all its requests with the client it is given; after a crash it is called
    again. `story` is what users do. `look` returns what is compared, without uids, versions and times. The controller
    is done when it has written nothing for the time `quiet`; then `look` is called, and its result returned. Faults are
    random by `seed` and `rate`, or those of `plan`; they cease when the story is over and the controller is done. Raises
    `AssertionError` with the faults that occurred if the results differ. The same seed gives the same faults as long as
    the controller makes the same requests in the same order.
    """
    calm = _ControllerRun(controller, Faults(), scheme, quiet)
    expected = await calm.run_story(story, look, lambda result: True, within)
    faults = Faults(plan) if plan is not None else Faults.seeded(seed, rate)
    rough = _ControllerRun(controller, faults, scheme, quiet)
    result = await rough.run_story(story, look, lambda result: result == expected, within)
    met = "\n  ".join(rough.faults.met)
    origin = f"seed {seed}" if plan is None else "the plan"
    assert result == expected, f"{origin}: in the calm world {expected!r}, in the rough one {result!r} after\n  {met}"
    return result


class _ControllerRun:
    """One server, and a controller that is started again after every crash."""

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
        is_expected: Callable[[T], bool],
        within: timedelta,
    ) -> T:
        """The result of `look` when the story is over, faults have ceased and the controller is done.

        Waits up to `within` for an expected result.
        """
        with unwrap_exception_group():
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
                    result = await look(cluster.client)
                    if is_expected(result) or self._clock.monotonic() > deadline:
                        return result

    async def _keep_running(self, transport: Transport) -> None:
        while True:
            faulty = FaultyTransport(transport, self.faults, clock=self._clock)
            self._transports.append(faulty)
            try:
                await self._controller(Client(faulty, scheme=self._scheme, clock=self._clock))
            except (SimulatedCrash, GanglineError, BaseExceptionGroup) as error:
                # Started again, as a Deployment does. An error in the controller's own code is raised.
                if not _is_crash(error):
                    raise
            else:
                raise AssertionError("the controller ended by itself")
            await self._clock.sleep(POLL_INTERVAL)

    async def _wait_until_quiet(self, within: timedelta) -> None:
        deadline = self._clock.monotonic() + within.total_seconds()
        activity, quiet_polls = self._activity(), 0
        # Counted in polls, not in seconds: on a busy machine server and controller run no more often than this does.
        while quiet_polls < self._quiet / POLL_INTERVAL:
            await self._clock.sleep(POLL_INTERVAL)
            before, activity = activity, self._activity()
            quiet_polls = quiet_polls + 1 if activity == before and not self._transports[-1].unanswered else 0
            assert self._clock.monotonic() < deadline, f"the controller is never done: {self._last_writes()}"

    def _activity(self) -> tuple[int, int]:
        return len(self._transports), len(self._writes())

    def _writes(self) -> list[str]:
        return [
            str(request)
            for transport in self._transports
            for request in transport.requests
            if request.method != "GET" and not any(path in request.path for path in IGNORED_PATHS)
        ]

    def _last_writes(self) -> str:
        return ", ".join(self._writes()[-3:]) or "it does not stay alive"


def _is_crash(error: BaseException) -> bool:
    """Whether the error is a planned crash, or one that a controller may end with when requests fail."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_crash, error.exceptions))
    return isinstance(error, SimulatedCrash | GanglineError)
