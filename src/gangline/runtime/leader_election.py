"""One writer at a time: leader election by a Lease, as client-go does it, so both can compete for one Lease.

How it is safe, in three rules:

- A candidate takes a lease over only after the record has not changed for its whole duration, measured with the
  candidate's own steady clock from the moment it first saw that record. The times in the record are for people: no
  machine's wall clock is ever compared with another's.
- A leader counts from the moment *before* it sent its last successful renewal. After `renew_deadline` without
  another one it stops its work. That moment is earlier than any at which a candidate can start counting, and
  `renew_deadline` is shorter than `lease`, so the work is told to stop before anybody may take over. The difference
  is the time the work has to end, and the room for steady clocks that do not run equally fast.
- The lease is released only after the work has ended, however it ended.

What no election can give: a process that was frozen (suspended, starved) for longer than the lease does not know it
when it wakes. `is_leader` says so at once and the work is cancelled a few turns of the loop later, but a request may
leave before that. Writes that must never come from an old leader carry a resourceVersion or a uid.
"""

import asyncio
import logging
import math
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Never, Protocol, TypeVar

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.core import Lease, LeaseSpec
from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import time_limit, unwrap_exception_group
from gangline.kube.client import Kind
from gangline.kube.errors import ConfigError, Conflict, KubeError, NotFound

log = logging.getLogger(__name__)

T = TypeVar("T")

JITTER_FACTOR = 1.2
_MICROSECOND = timedelta(microseconds=1)


class LostLeadership(GanglineError):
    """The lease could not be kept, or another holder was seen. The work has ended when this is raised."""


class LeaseClient(Protocol):
    """What electing needs of a `Client`."""

    async def get(self, kind: Kind[T], key: Key) -> T: ...
    async def create(self, kind: Kind[T], body: JSON) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: JSON, *, resource_version: str | None = ...) -> T: ...


class LeaseSettings(msgspec.Struct, frozen=True):
    """How long a silent leader is believed, and how hard a leader tries. The defaults are client-go's.

    Raises ValueError unless 1 s <= lease and retry * 1.2 < renew_deadline < lease.
    """

    lease: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        ordered = timedelta() < self.retry * JITTER_FACTOR < self.renew_deadline < self.lease
        if not ordered or self.lease < timedelta(seconds=1):
            raise ValueError(f"want 1 s <= lease and 0 < retry * {JITTER_FACTOR} < renew_deadline < lease, got {self}")


DEFAULT_LEASE_SETTINGS = LeaseSettings()


def unique_identity() -> str:
    """A name no other process has, now or later: two that share one would both believe they lead."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Runs work while it holds a Lease. Inert until `while_leading`; one call at a time, repeatable."""

    def __init__(
        self,
        client: LeaseClient,
        key: Key,
        identity: str,
        clock: Clock,
        settings: LeaseSettings = DEFAULT_LEASE_SETTINGS,
        *,
        report: Callable[[bool], object] = lambda leading: None,
    ) -> None:
        """`report` is told of every change of leadership, for metrics: `Metrics.leader(name)`."""
        self.key, self.identity = key, identity
        self._client, self._clock, self._settings, self._report = client, clock, settings, report
        # The record as last seen, and since when (steady time) it has looked like that. None: there is no Lease.
        self._observed_lease: Lease | None = None
        self._observed_at = -math.inf
        # Whether `_lease` is what the server has, as far as we know: only then a write may go without a read.
        self._is_current = False
        # A write in our name was sent since the last release. Its answer may be lost, so the lease may be ours.
        self._claimed = False
        self._is_leading = False
        # When the last successful claim was sent. All promises count from here.
        self._renewed_at = -math.inf

    @property
    def is_leader(self) -> bool:
        """Whether the lease is held and fresh enough to act on, by the clock, at this moment."""
        return self._is_leading and self._time_left() > timedelta()

    async def run_while_leading(self, run: Callable[[], Awaitable[None]]) -> None:
        """Acquire the lease, then run the work for as long as it is held. Returns when the work returns.

        Raises `LostLeadership` when the lease is lost: the work is then cancelled *and awaited* first. Cancelling
        this call cancels the work, and renewing goes on until the work has ended. In every case the lease is
        released last; work that takes long to end holds the release back, and may outlive the lease. Errors of
        the work are raised as they are.
        """
        try:
            await self._acquire()
            with unwrap_exception_group():
                await self._lead(run)
        finally:
            await self._release()

    # The term

    async def _acquire(self) -> None:
        log.info("waiting for the lease", extra={"lease": self.key, "identity": self.identity})
        while not await self._try_acquire_or_renew():
            await self._clock.sleep(self._settings.retry * random.uniform(1.0, 1.0 + JITTER_FACTOR))  # noqa: S311

    async def _lead(self, run: Callable[[], Awaitable[None]]) -> None:
        self._set_leading(leading=True)
        try:
            async with asyncio.TaskGroup() as term:
                keeper = term.create_task(self._renew_until_lost())
                try:
                    # Not a task of its own: when we are cancelled, only the work is, and the keeper stays until
                    # it has ended. When the keeper fails, the group cancels us here.
                    await run()
                finally:
                    keeper.cancel()
        finally:
            self._set_leading(leading=False)
            if self._since_renewal() > self._settings.lease:
                log.error("work outlived the lease", extra={"lease": self.key, "identity": self.identity})

    async def _renew_until_lost(self) -> Never:
        while True:
            try:
                async with time_limit(self._time_left(), self._clock):
                    await self._renew()
            except TimeoutError as error:
                limit = self._settings.renew_deadline.total_seconds()
                raise self._lost_leadership(f"not renewed for {limit:g} s") from error

    async def _renew(self) -> None:
        await self._clock.sleep(self._settings.retry)
        while not await self._try_acquire_or_renew():
            await self._clock.sleep(self._settings.retry)

    async def _release(self) -> None:
        """Give the lease up if it is ours. Errors and silence are left to its expiry."""
        if not self._claimed:
            return
        self._claimed = False
        try:
            async with time_limit(self._settings.renew_deadline / 2, self._clock):
                await self._read_lease()
                if self._holder() == self.identity:
                    # One second: also a candidate that looks at the time alone need not wait.
                    await self._write_lease(
                        msgspec.structs.replace(self._claimed_spec(), holder_identity="", lease_duration_seconds=1)
                    )
                    log.info("lease released", extra={"lease": self.key, "identity": self.identity})
        except (KubeError, ConfigError, TimeoutError) as error:
            log.warning("lease not released", extra={"lease": self.key, "error": str(error) or "timed out"})

    # One attempt

    async def _try_acquire_or_renew(self) -> bool:
        """Whether the lease is ours now. Failures are logged, not raised: the next attempt may do better."""
        try:
            # Half of the deadline: a connection that died silently must leave time for another one.
            async with time_limit(self._settings.renew_deadline / 2, self._clock):
                return await self._claim() or (self._is_leading and await self._claim())
        except (KubeError, ConfigError, TimeoutError) as error:
            self._is_current = False
            log.warning("lease attempt failed", extra={"lease": self.key, "error": str(error) or "timed out"})
            return False

    async def _claim(self) -> bool:
        """Take or renew the lease unless another holds it. Raises `LostLeadership` if that ends our term."""
        if not self._is_current:
            await self._read_lease()
        if self._is_leading and self._holder() not in ("", self.identity):
            raise self._lost_leadership(f"{self._holder()} holds it now")
        if not self._is_available():
            self._is_current = False
            return False
        sent = self._clock.monotonic()
        self._claimed = True
        try:
            await self._write_lease(self._claimed_spec())
        except (Conflict, NotFound):
            # Somebody was faster; look again before the next write.
            return False
        self._renewed_at = sent
        return True

    def _is_available(self) -> bool:
        if self._holder() in ("", self.identity):
            return True
        assert self._observed_lease is not None
        # The holder's own promise counts; without one, ours.
        seconds = self._observed_lease.spec.lease_duration_seconds or self._settings.lease.total_seconds()
        return self._clock.monotonic() >= self._observed_at + seconds

    def _holder(self) -> str:
        return self._observed_lease.spec.holder_identity if self._observed_lease is not None else ""

    def _time_left(self) -> timedelta:
        """How much longer the last renewal lets us lead."""
        return self._settings.renew_deadline - self._since_renewal()

    def _since_renewal(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - self._renewed_at)

    # The record

    async def _read_lease(self) -> None:
        try:
            self._observe(await self._client.get(Lease, self.key))
        except NotFound:
            self._observe(None)

    async def _write_lease(self, spec: LeaseSpec) -> None:
        """Create or patch the record, only if it still is what we saw. Raises `Conflict`, `NotFound`."""
        self._is_current = False
        # An empty holder is left out as a default, and must be said.
        content: JSON = {"holderIdentity": "", **to_json(spec)}
        if self._observed_lease is None:
            body = {"metadata": {"name": self.key.name, "namespace": self.key.namespace}, "spec": content}
            written = await self._client.create(Lease, body)
        else:
            version = self._observed_lease.metadata.resource_version
            written = await self._client.patch(Lease, self.key, {"spec": content}, resource_version=version)
        self._observe(written)

    def _observe(self, lease: Lease | None) -> None:
        if lease is None or self._observed_lease is None or lease.spec != self._observed_lease.spec:
            self._observed_at = self._clock.monotonic()
        self._observed_lease = lease
        self._is_current = True

    def _claimed_spec(self) -> LeaseSpec:
        """The record that says we hold the lease from now on."""
        old = self._observed_lease.spec if self._observed_lease is not None else LeaseSpec()
        ours = old.holder_identity == self.identity
        now = self._next_renew_time(old.renew_time)
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._settings.lease.total_seconds()),
            acquire_time=old.acquire_time if ours else now,
            renew_time=now,
            lease_transitions=old.lease_transitions + (self._observed_lease is not None and not ours),
        )

    def _next_renew_time(self, last: datetime | None) -> datetime:
        """Now, but later than the last time: others see that we live only by a record that changes."""
        now = self._clock.now()
        return now if last is None or now > last else last + _MICROSECOND

    def _lost_leadership(self, why: str) -> LostLeadership:
        # At once, not when the work has ended: the work itself may ask.
        self._set_leading(leading=False)
        return LostLeadership(f"lease {self.key}: {why}")

    def _set_leading(self, *, leading: bool) -> None:
        if leading != self._is_leading:
            self._is_leading = leading
            self._report(leading)
            event = "leading" if leading else "no longer leading"
            log.info(event, extra={"lease": self.key, "identity": self.identity})
