"""Server-sent events: one connection per open page, which gets a snapshot and then patches; another for its log lines."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from aiohttp import web

from gangline.base.clock import Clock
from gangline.base.tasks import background_tasks
from gangline.dashboard.live.feed import GZIP_HEADER, Feed, sse_message
from gangline.dashboard.live.log_follower import LogFollower
from gangline.dashboard.rows.log_page import AttemptLine, LogLines, line_view
from gangline.dashboard.settings import DashboardLimits

LINES_PER_MESSAGE = 500
LINES_INTERVAL = timedelta(milliseconds=100)
"""The shortest time between two messages: lines in between go together."""


async def send_stream(request: web.Request, feed: Feed, limits: DashboardLimits) -> web.StreamResponse:
    """Send a feed over one connection, until the viewer leaves or does not read for long."""
    await feed.wait_until_ready()
    gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    response = await _prepared(request, gzip=gzip)
    with feed.subscribe(gzip=gzip) as subscription:
        await _send_all(response, feed.messages(subscription, limits.heartbeat), limits)
    return response


async def send_log_lines(
    request: web.Request, follower: LogFollower, clock: Clock, limits: DashboardLimits
) -> web.StreamResponse:
    """Send lines over one connection as they are written, until the viewer leaves or does not read for long."""
    response = await _prepared(request)
    async with background_tasks(follower.run()):
        await _send_all(response, _log_messages(follower, clock, limits), limits)
    return response


async def _log_messages(follower: LogFollower, clock: Clock, limits: DashboardLimits) -> AsyncIterator[bytes]:
    sent, number = 0, 0
    # At once, so that the page knows that it follows.
    yield b": following\n\n"
    while True:
        lines: list[AttemptLine] = []
        try:
            async with asyncio.timeout(limits.heartbeat.total_seconds()):
                lines = await follower.lines(LINES_PER_MESSAGE)
        except TimeoutError:
            if len(follower.notes) == sent:
                yield b": still here\n\n"
                continue
        number, notes = number + 1, list(follower.notes)[sent:]
        sent += len(notes)
        yield sse_message("lines", number, LogLines(lines=[line_view(item) for item in lines], not_read=notes))
        await clock.sleep(LINES_INTERVAL)


async def _prepared(request: web.Request, *, gzip: bool = False) -> web.StreamResponse:
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no", "Vary": "Accept-Encoding"}
    response = web.StreamResponse(headers={**headers, **({"Content-Encoding": "gzip"} if gzip else {})})
    await response.prepare(request)
    if gzip:
        await response.write(GZIP_HEADER)
    return response


async def _send_all(response: web.StreamResponse, messages: AsyncIterator[bytes], limits: DashboardLimits) -> None:
    try:
        async for message in messages:
            async with asyncio.timeout(limits.write_timeout.total_seconds()):
                await response.write(message)
    except (ConnectionError, TimeoutError):
        return  # The viewer left, or takes nothing.
