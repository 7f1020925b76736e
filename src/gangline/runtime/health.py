"""Probes and metrics over HTTP: `/healthz`, `/livez`, `/readyz` and `/metrics`.

Probes are answered from a thread of their own: a loop that is busy for some seconds is alive, and one that is stuck can be
told apart, with the reason (`gangline.base.watchdog`). Ready means that every check passes; the manager adds one for its
caches. As on Kubernetes' own components, `?verbose` lists the checks and `?exclude=name` leaves one out.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from aiohttp import web

from gangline.base.errors import InputError
from gangline.base.watchdog import Activities, SecondLoop, Watchdog, stack_of_this_thread
from gangline.runtime.metrics_guard import MetricsGuard

HealthCheck = Callable[[], str]
"""Returns the problem in a few words, or an empty text. Called at every probe, from another thread: must be fast, and
only read."""


class MetricsRenderer(Protocol):
    """The content of `/metrics`, as `PrometheusMetrics` renders it."""

    def render(self, accept: str = ...) -> tuple[bytes, str]: ...


class BindAddress(NamedTuple):
    """An address to listen on. Without a host: all interfaces. Port 0: any free port."""

    host: str | None
    port: int

    @classmethod
    def parse(cls, text: str, flag: str = "address") -> Self | None:
        """Parse `:8080`, `127.0.0.1:0` or `[::1]:9000`; None (do not listen) for `0` or an empty text. Raises `InputError`."""
        if text in ("", "0"):
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise InputError(f"{flag}: {text!r} is not an address; write :8080, 127.0.0.1:8080, or 0 for none")
        return cls(host.strip("[]") or None, int(port))

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class HealthServer:
    """The HTTP server of a manager. An async context manager: listens inside the block.

    Format and defaults of the addresses are those of the v1 training operator's flags. If both addresses are the same, one
    server serves everything, and probes are answered by the event loop itself. `addresses` has the actual addresses.
    """

    def __init__(
        self,
        *,
        metrics: MetricsRenderer | None = None,
        metrics_address: str = ":8080",
        probe_address: str = ":8081",
    ) -> None:
        self._metrics = metrics
        self._bind_addresses = {
            "metrics-bind-address": BindAddress.parse(metrics_address, "--metrics-bind-address"),
            "health-probe-bind-address": BindAddress.parse(probe_address, "--health-probe-bind-address"),
        }
        self._guard: MetricsGuard | None = None
        self._readiness_checks: dict[str, HealthCheck] = {}
        self._liveness_checks: dict[str, HealthCheck] = {"ping": lambda: ""}
        self._running_servers = AsyncExitStack()
        self._activities: list[Activities] = []
        self._watchdog: Watchdog | None = None
        self.addresses: Mapping[str, BindAddress] = {}

    def protect_metrics(self, guard: MetricsGuard) -> None:
        """Serve metrics by TLS, and only to those whom the guard allows. Raises `InputError` if probes share the address."""
        metrics, probes = self._bind_addresses.values()
        if metrics is not None and metrics == probes and metrics.port:
            raise InputError("--metrics-secure: probes have no token; give them another --health-probe-bind-address")
        self._guard = guard

    def add_readyz_check(self, name: str, check: HealthCheck) -> None:
        """Add a readiness check."""
        self._readiness_checks[name] = check

    def add_livez_check(self, name: str, check: HealthCheck) -> None:
        """Add a liveness check: while it fails, the kubelet restarts the container."""
        self._liveness_checks[name] = check

    def watch_work(self, activities: Activities) -> None:
        """Fail the liveness check `workers` while a piece of this work makes no progress."""
        self._activities.append(activities)
        if self._watchdog is not None:
            self._watchdog.watch(activities)

    async def __aenter__(self) -> Self:
        """Listen. Raises `InputError` if an address cannot be used."""
        async with AsyncExitStack() as opening:
            self.addresses = await self._listen(opening)
            self._running_servers = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running_servers.aclose()

    async def _listen(self, opening: AsyncExitStack) -> Mapping[str, BindAddress]:
        routes = {
            "metrics-bind-address": self._metrics_routes(),
            "health-probe-bind-address": self._probe_routes(),
        }
        addresses = {flag: address for flag, address in self._bind_addresses.items() if address is not None}
        # Port 0 twice is two different ports.
        if len(set(addresses.values())) < len(addresses) and all(address.port for address in addresses.values()):
            flag, other = addresses
            shared = await _start_server(addresses[flag], [*routes[flag], *routes[other]], flag, opening)
            return {flag: shared, other: shared}
        tls = self._guard.tls if self._guard is not None else None
        return {
            flag: await (
                self._start_probes(address, opening)
                if flag == "health-probe-bind-address"
                else _start_server(address, routes[flag], flag, opening, tls)
            )
            for flag, address in addresses.items()
        }

    async def _start_probes(self, address: BindAddress, opening: AsyncExitStack) -> BindAddress:
        """Answer probes from another thread, which watches this one."""
        thread = await opening.enter_async_context(SecondLoop("probes"))
        servers = AsyncExitStack()

        async def close() -> None:
            await thread.run(servers.aclose())

        opening.push_async_callback(close)
        bound = await thread.run(_start_server(address, self._probe_routes(), "health-probe-bind-address", servers))
        self._watchdog = watchdog = Watchdog(asyncio.get_running_loop().call_soon_threadsafe, stack_of_this_thread())
        for activities in self._activities:
            watchdog.watch(activities)
        self.add_livez_check("event-loop", watchdog.loop_problem)
        self.add_livez_check("workers", watchdog.work_problem)
        thread.call_every_second(watchdog.tick)
        return bound

    def _metrics_routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._serve_metrics)]

    def _probe_routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self._serve_livez),
            web.get("/livez", self._serve_livez),
            web.get("/readyz", self._serve_readyz),
        ]

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        if self._metrics is None:
            raise web.HTTPNotFound
        if self._guard is not None:
            decision = await self._guard.decide(request.headers.get("Authorization", ""))
            if decision.status != 200:
                headers = {"WWW-Authenticate": "Bearer"} if decision.status == 401 else {}
                return web.Response(text=f"{decision.reason}\n", status=decision.status, headers=headers)
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _serve_livez(self, request: web.Request) -> web.Response:
        return _check_response(request, self._liveness_checks)

    async def _serve_readyz(self, request: web.Request) -> web.Response:
        return _check_response(request, {**self._liveness_checks, **self._readiness_checks})


def _check_response(request: web.Request, checks: Mapping[str, HealthCheck]) -> web.Response:
    endpoint = request.path.strip("/")
    excluded = set(request.query.getall("exclude", []))
    # A copy: checks are added in another thread.
    problems = {name: check() for name, check in list(checks.items()) if name not in excluded}
    healthy = not any(problems.values())
    if healthy and "verbose" not in request.query:
        return web.Response(text="ok")
    lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in problems.items()]
    lines.append(f"{endpoint} check {'passed' if healthy else 'failed'}")
    return web.Response(text="\n".join(lines) + "\n", status=200 if healthy else 503)


async def _start_server(
    address: BindAddress,
    routes: list[web.RouteDef],
    flag: str,
    opening: AsyncExitStack,
    tls: ssl.SSLContext | None = None,
) -> BindAddress:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    opening.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, address.host, address.port, ssl_context=tls).start()
    except OSError as error:
        reason = (error.strerror or str(error)).rpartition(": ")[2]
        raise InputError(f"cannot listen on {address}: {reason}; choose another with --{flag}") from error
    return BindAddress(address.host, runner.addresses[0][1])
