"""Leader election with a Lease, compatible with client-go, so that both can compete for the same Lease.

Three rules make it safe:

- A candidate takes over a lease only if the record has not changed for its whole duration, measured with the candidate's
  own monotonic clock since it first read that record. The times in the record are for people: wall clocks of different
  machines are never compared.
- A leader counts from the moment *before* it sent its last successful renewal. After `renew_deadline` without another one
  it cancels its work. That moment is earlier than any at which a candidate can start counting, and `renew_deadline` is
  shorter than `lease`, so the work is cancelled before another process may take over. The difference is the time the work
  has to end, and the tolerance for monotonic clocks that do not run equally fast.
- The lease is released only after the work has ended, however it ended.

A process that was suspended for longer than the lease does not know that when it continues. `is_leader` is False at once,
and the work is cancelled a few iterations of the event loop later. Until then `LeadershipFence` refuses its writes. No
fence stops a request that was sent before, and that the network or the server delays: such writes have a resourceVersion
or a uid as precondition, or create an object whose name the next leader gives it too (docs/high-availability.md).
"""

import asyncio
import logging
import math
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
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
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket

log = logging.getLogger(__name__)

T = TypeVar("T")

JITTER_FACTOR = 1.2
MIN_RETRY_DELAY = timedelta(milliseconds=50)
READ_METHODS = ("GET", "HEAD")
_MICROSECOND = timedelta(microseconds=1)


class LostLeadership(GanglineError):
    """The lease could not be renewed, or another process holds it. The work has ended when this is raised."""


class LeaseClient(Protocol):
    """The part of a `Client` that leader election uses."""

    async def get(self, kind: Kind[T], key: Key) -> T: ...
    async def create(self, kind: Kind[T], body: JSON) -> T: ...
    async def patch(self, kind: Kind[T], key: Key, body: JSON, *, resource_version: str | None = ...) -> T: ...


class LeaseSettings(msgspec.Struct, frozen=True):
    """The duration of the lease, and when it is renewed. The defaults are client-go's.

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
    """An identity that no other process ever has: two processes with the same would both believe that they lead."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Runs work while it holds a Lease. Does nothing before `run_while_leading`."""

    def __init__(
        self,
        client: LeaseClient,
        key: Key,
        identity: str,
        clock: Clock,
        settings: LeaseSettings = DEFAULT_LEASE_SETTINGS,
        *,
        report: Callable[[bool], object] = lambda leading: None,
        since_boot: Callable[[], float] | None = None,
    ) -> None:
        """`report` is called with every change of leadership: `PrometheusMetrics.leader_gauge(name)`.

        `since_boot` is a monotonic time that includes the time for which the machine was suspended, if there is one.
        """
        self.key, self.identity = key, identity
        self._client, self._clock, self._settings, self._report = client, clock, settings, report
        # The record as last read, and since when (monotonic time) it is unchanged. None: there is no Lease.
        self._observed_lease: Lease | None = None
        self._observed_at = -math.inf
        # Whether `_observed_lease` is the record on the server, as far as known: only then may we write without reading.
        self._is_current = False
        # Whether a claim was sent since the last release. Its response may be lost, so the lease may be ours.
        self._claimed = False
        self._is_leading = False
        # When the last successful claim was sent.
        self._renewed_at = -math.inf
        self._since_boot = since_boot or clock.monotonic
        self._renewed_since_boot = -math.inf

    @property
    def is_leader(self) -> bool:
        """Whether this process holds the lease and has renewed it recently enough to act on it now."""
        return self._is_leading and self._time_left() > timedelta()

    async def run_while_leading(self, run: Callable[[], Awaitable[None]]) -> None:
        """Acquire the lease, then run the work while holding it. Returns when the work returns.

        When the lease is lost, the work is cancelled *and awaited*, then `LostLeadership` is raised. Cancelling this call
        cancels the work; the lease is renewed until the work has ended, and released last. Work that takes long to end
        delays the release, and may outlive the lease. Errors of the work are raised as they are.
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
                renewal = term.create_task(self._renew_until_lost())
                try:
                    # Not a task: cancelling this call cancels only the work, and the lease is renewed until it has
                    # ended. When the renewal fails, the group cancels the work here.
                    await run()
                finally:
                    renewal.cancel()
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
            # Sooner than after a success: an overloaded server refuses some requests and carries out others.
            delay = max(self._settings.retry * random.uniform(0.05, 0.15), MIN_RETRY_DELAY)  # noqa: S311
            await self._clock.sleep(min(delay, self._settings.retry))

    async def _release(self) -> None:
        """Release the lease if this process holds it. After an error it expires."""
        if not self._claimed:
            return
        self._claimed = False
        try:
            async with time_limit(self._settings.renew_deadline / 2, self._clock):
                await self._read_lease()
                if self._holder() == self.identity:
                    # One second, for candidates that look only at the time.
                    await self._write_lease(
                        msgspec.structs.replace(self._claimed_spec(), holder_identity="", lease_duration_seconds=1)
                    )
                    log.info("lease released", extra={"lease": self.key, "identity": self.identity})
        except (KubeError, ConfigError, TimeoutError) as error:
            log.warning("lease not released", extra={"lease": self.key, "error": str(error) or "timed out"})

    # One attempt

    async def _try_acquire_or_renew(self) -> bool:
        """Whether this process holds the lease now. Failures are logged, not raised: the next attempt may succeed."""
        try:
            # Half of the deadline: a dead connection must leave time for another attempt.
            async with time_limit(self._settings.renew_deadline / 2, self._clock):
                return await self._claim() or (self._is_leading and await self._claim())
        except (KubeError, ConfigError, TimeoutError) as error:
            self._is_current = False
            log.warning("lease attempt failed", extra={"lease": self.key, "error": str(error) or "timed out"})
            return False

    async def _claim(self) -> bool:
        """Acquire or renew the lease unless another process holds it. Raises `LostLeadership` if this process led."""
        if not self._is_current:
            await self._read_lease()
        if self._is_leading and self._holder() not in ("", self.identity):
            raise self._lost_leadership(f"{self._holder()} holds it now")
        if not self._is_available():
            self._is_current = False
            return False
        sent, sent_since_boot = self._clock.monotonic(), self._since_boot()
        self._claimed = True
        try:
            await self._write_lease(self._claimed_spec())
        except (Conflict, NotFound):
            # Another process was faster: read the record before the next write.
            return False
        self._renewed_at, self._renewed_since_boot = sent, sent_since_boot
        return True

    def _is_available(self) -> bool:
        if self._holder() in ("", self.identity):
            return True
        assert self._observed_lease is not None
        # The holder's duration applies; without one, ours.
        seconds = self._observed_lease.spec.lease_duration_seconds or self._settings.lease.total_seconds()
        return self._clock.monotonic() >= self._observed_at + seconds

    def _holder(self) -> str:
        return self._observed_lease.spec.holder_identity if self._observed_lease is not None else ""

    def _time_left(self) -> timedelta:
        """How much longer this process leads without another renewal."""
        return self._settings.renew_deadline - self._since_renewal()

    def _since_renewal(self) -> timedelta:
        passed = max(self._clock.monotonic() - self._renewed_at, self._since_boot() - self._renewed_since_boot)
        return timedelta(seconds=passed)

    # The record

    async def _read_lease(self) -> None:
        try:
            self._observe(await self._client.get(Lease, self.key))
        except NotFound:
            self._observe(None)

    async def _write_lease(self, spec: LeaseSpec) -> None:
        """Create or patch the record if it is unchanged since it was read. Raises `Conflict` and `NotFound`."""
        self._is_current = False
        # `to_json` leaves out an empty holder, but the patch must set it.
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
        """The record with this process as the holder."""
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
        """Now, but always later than the last time: candidates know the holder is alive only if the record changes."""
        now = self._clock.now()
        return now if last is None or now > last else last + _MICROSECOND

    def _lost_leadership(self, reason: str) -> LostLeadership:
        # At once, not when the work has ended, because the work may read `is_leader`.
        self._set_leading(leading=False)
        return LostLeadership(f"lease {self.key}: {reason}")

    def _set_leading(self, *, leading: bool) -> None:
        if leading != self._is_leading:
            self._is_leading = leading
            self._report(leading)
            event = "leading" if leading else "no longer leading"
            log.info(event, extra={"lease": self.key, "identity": self.identity})


class NotLeading(KubeError):
    """A write was not sent, because this process does not lead, or has not renewed its lease in time."""


class LeadershipFence:
    """A transport that sends the writes of a leader, and refuses all others with `NotLeading`. Reads are passed on.

    A write is checked again just before it is sent, because it may wait for a connection.
    """

    def __init__(self, transport: Transport, leader: LeaderElector | None) -> None:
        """Without a leader election everything is passed on."""
        self._transport, self._leader = transport, leader

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self._leader is None or request.method in READ_METHODS:
            return await self._transport.send(request, timeout=timeout)
        self._check()
        return await self._transport.send(msgspec.structs.replace(request, precheck=self._check), timeout=timeout)

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)

    def _check(self) -> None:
        if self._leader is not None and not self._leader.is_leader:
            raise NotLeading(f"lease {self._leader.key}: not leading, so nothing is written")
