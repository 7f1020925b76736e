"""Server-sent events: one connection per open page, which gets a snapshot and then patches."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from gangline.dashboard.live.feed import Feed
from gangline.dashboard.settings import DashboardLimits


async def send_stream(request: web.Request, feed: Feed, limits: DashboardLimits) -> web.StreamResponse:
    """Send a feed over one connection, until the viewer leaves or does not read for long."""
    await feed.wait_until_ready()
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    with feed.subscribe() as subscription:
        await _send_all(response, feed.messages(subscription, limits.heartbeat), limits)
    return response


async def _send_all(response: web.StreamResponse, messages: AsyncIterator[bytes], limits: DashboardLimits) -> None:
    try:
        async for message in messages:
            async with asyncio.timeout(limits.write_timeout.total_seconds()):
                await response.write(message)
    except (ConnectionError, TimeoutError):
        return  # The viewer left, or takes nothing.
