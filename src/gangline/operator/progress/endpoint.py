"""The HTTP endpoint to which training programs report progress, as Kubeflow Trainer has it.

    POST /apis/training.gangline.dev/v1/namespaces/NAMESPACE/PLURAL/NAME/status

with a token of the pod and a body of at most 64 KiB (`gangline.progress.trainer_status`). A report that is accepted is
answered with 200 and what was understood, everything else with a Status whose message is one sentence.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
from aiohttp import web

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.apiserver.serving.connections import ConnectionLimits
from gangline.apiserver.serving.server import ConnectionGuard, GuardedServer, GuardedSite, mark_authenticated
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.tasks import time_limit
from gangline.jobs.bounded import BoundedDict
from gangline.kube.client import Client
from gangline.operator.progress.reporters import ReportedJob, ReporterCheck, ReportRefused
from gangline.operator.progress.writer import ProgressWriter
from gangline.progress.line import bounded_progress
from gangline.progress.trainer_status import BadReport, decode_trainer_status, progress_of
from gangline.runtime.health import BindAddress
from gangline.runtime.rate_limits import TokenBucket

MAX_BODY_BYTES = 64 * 1024
MAX_HEADER_BYTES = 16 * 1024
"""The longest header. A token has one to two kilobytes."""
BODY_LIMIT = timedelta(seconds=5)
"""How long a body may take to arrive."""
REPORTS_PER_SECOND, REPORT_BURST = 2.0, 20
"""What one pod may send. Known clients send one report in 5 seconds."""
MAX_PODS = 10_000
CONNECTIONS = ConnectionLimits(
    unauthenticated=512,
    unauthenticated_per_address=64,
    authenticated=2048,
    authenticated_per_address=256,
    header_seconds=5.0,
    idle_seconds=30.0,
)
SHUTDOWN_SECONDS = 1.0
LINGERING_SECONDS = 1.0
"""How long the rest of a body is read that nobody needs, so that its sender reads the answer."""
FLAG = "--progress-bind-address"
_PATH = re.compile(r"/apis/training\.gangline\.dev/v1/namespaces/([^/]{1,63})/([^/]{1,63})/([^/]{1,253})/status")
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class ReportHandler:
    """Handles one report after the other: who sends it, what it says, and on to the writer."""

    def __init__(
        self,
        reporters: ReporterCheck,
        writer: ProgressWriter,
        clock: Clock,
        count: Callable[[int], object] = lambda status: None,
    ) -> None:
        """`count` is called with the HTTP status of each answer."""
        self._reporters, self._writer, self._clock, self._count = reporters, writer, clock, count
        # By the uid of the pod.
        self._limits: BoundedDict[str, TokenBucket] = BoundedDict(MAX_PODS)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer, status, headers = await self._accept(request), 200, {}
        except ReportRefused as error:
            answer, status = _status_body(error.status, str(error)), error.status
            headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
            if status == 401:
                headers["WWW-Authenticate"] = "Bearer"
        self._count(status)
        return web.Response(
            body=msgspec.json.encode(answer), status=status, headers=headers, content_type="application/json"
        )

    async def _accept(self, request: web.BaseRequest) -> JSON:
        match = _PATH.fullmatch(request.path)
        if match is None:
            raise ReportRefused(404, "progress is reported to the URL in KUBEFLOW_TRAINER_SERVER_URL")
        if request.method != "POST":
            raise ReportRefused(405, "progress is reported by POST")
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise ReportRefused(413, _TOO_LARGE)
        namespace, plural, name = match.groups()
        job = ReportedJob(plural, Key(namespace, name))
        reporter = await self._reporters.reporter(request.headers.get("Authorization", ""), job)
        mark_authenticated(request)
        self._take_turn(reporter.uid)
        try:
            status = decode_trainer_status(await self._body(request))
        except BadReport as error:
            raise ReportRefused(400, str(error)) from None
        progress = bounded_progress(progress_of(status, self._writer.last_progress(reporter)))
        await self._writer.put(reporter, progress, is_last=status.is_last)
        return {"progress": {name: value for name, value in progress._asdict().items() if value not in (None, "")}}

    def _take_turn(self, uid: str) -> None:
        """Count a report of a pod. Raises `ReportRefused` if it sends too many."""
        limit = self._limits.get(uid)
        if limit is None:
            limit = self._limits[uid] = TokenBucket(self._clock, rate=REPORTS_PER_SECOND, burst=REPORT_BURST)
        if limit.ready_in() > timedelta():
            raise ReportRefused(429, "this pod reports too often; one report in 5 seconds is enough", retry_after=1)
        limit.delay()

    async def _body(self, request: web.BaseRequest) -> bytes:
        try:
            async with time_limit(BODY_LIMIT, self._clock):
                return await request.read()
        except TimeoutError:
            raise ReportRefused(408, f"the body did not arrive within {BODY_LIMIT.seconds} seconds") from None
        except web.HTTPRequestEntityTooLarge:
            raise ReportRefused(413, _TOO_LARGE) from None


_TOO_LARGE = f"the body is larger than {MAX_BODY_BYTES // 1024} KiB"


def _status_body(code: int, message: str) -> JSON:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, ""),
        "code": code,
    }


@asynccontextmanager
async def progress_endpoint(
    client: Client,
    kinds: Iterable[JobKind],
    writer: ProgressWriter,
    listener: socket.socket,
    clock: Clock,
    *,
    tls: ssl.SSLContext | None = None,
    count: Callable[[int], object] = lambda status: None,
) -> AsyncIterator[None]:
    """Receive the reports of jobs of these kinds until the block ends. `client` reviews tokens and reads pods."""
    loop = asyncio.get_running_loop()

    def new_request(*parts: object) -> web.BaseRequest:
        return web.BaseRequest(*parts, loop, client_max_size=MAX_BODY_BYTES)  # type: ignore[arg-type,misc]

    guard = ConnectionGuard(CONNECTIONS, clock)
    server = GuardedServer(
        ReportHandler(ReporterCheck(client, kinds, clock), writer, clock, count),
        guard,
        request_factory=new_request,
        access_log=None,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        lingering_time=LINGERING_SECONDS,
        auto_decompress=False,
    )
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await GuardedSite(runner, guard, "", 0, tls, listener).start()
        yield
    finally:
        await runner.cleanup()


def listening_socket(address: BindAddress) -> socket.socket:
    """A socket that listens on an address, all interfaces if it names none. Raises `InputError`."""
    families = [socket.AF_INET6 if ":" in (address.host or "") else socket.AF_INET]
    if address.host is None and socket.has_dualstack_ipv6():
        families.insert(0, socket.AF_INET6)
    problem: OSError | None = None
    for family in families:
        both = family is socket.AF_INET6 and address.host is None
        try:
            return socket.create_server((address.host or "", address.port), family=family, dualstack_ipv6=both)
        except OSError as error:
            problem = error
    reason = (problem.strerror or str(problem)).partition(" (while")[0] if problem is not None else ""
    raise InputError(f"cannot listen on {address}: {reason}; choose another with {FLAG}") from problem
