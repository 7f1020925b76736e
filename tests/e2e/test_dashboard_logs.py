"""Live logs of the dashboard: a page, then every line that comes after it, as it is written."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gangline.summary.objects import JOB_KINDS
from support.servers.dashboard import Browser, dashboard_plane, job_body
from support.waiting import wait_until

PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
PATH = "/api/jobs/default/pytorchjobs/bert"
COUNT = """
import itertools, pathlib, sys, time
go = pathlib.Path(sys.argv[1])
for number in range(5):
    print("early", number, flush=True)
while not go.exists():
    time.sleep(0.01)
for number in range(2000):
    print("late", number, flush=True)
time.sleep(600)
"""


async def first_page(browser: Browser, count: int) -> Any:
    async def page() -> Any:
        status, found = await browser.call("GET", f"{PATH}/logs?fold=false")
        return found if status == 200 and len(found["lines"]) == count else None

    return await wait_until(page)


async def test_lines_follow_a_page_as_they_are_written(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        body = job_body("bert", [sys.executable, "-c", COUNT, str(go)])
        await plane.client.create(PYTORCHJOBS, body, namespace="default")
        page = await first_page(browser, 10)
        seen: dict[str, list[str]] = {"master-0": [], "worker-0": []}
        async with browser.stream_of(f"{PATH}/logs/stream?follow={page['follow']}") as events:
            go.touch()
            async for event in events:
                assert (event.event, event.data["notRead"]) == ("lines", [])
                for line in event.data["lines"]:
                    seen[line["replica"]].append(line["text"])
                if sum(map(len, seen.values())) >= 4000:
                    break
        wanted = [f"late {number}" for number in range(2000)]
        assert seen == {"master-0": wanted, "worker-0": wanted}
        followed = [line for line in plane.audit_log.read_text().splitlines() if "follow=true" in line]
        assert followed
        # A page is continued once.
        status, answer = await browser.call("GET", f"{PATH}/logs/stream?follow={page['follow']}")
        assert (status, answer["error"]["code"]) == (410, 410)


async def test_one_viewer_follows_no_endless_number_of_logs(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        body = job_body("bert", [sys.executable, "-c", COUNT, str(tmp_path / "go")], workers=0)
        await plane.client.create(PYTORCHJOBS, body, namespace="default")
        limit = plane.dashboard.settings.limits.log_streams_per_viewer
        async with AsyncExitStack() as stack:
            for _ in range(limit):
                page = await first_page(browser, 5)
                await stack.enter_async_context(browser.stream_of(f"{PATH}/logs/stream?follow={page['follow']}"))
            page = await first_page(browser, 5)
            status, answer = await browser.call("GET", f"{PATH}/logs/stream?follow={page['follow']}")
            assert status == 503
            assert "close some" in answer["error"]["message"]

        async def free() -> bool:
            again = await first_page(browser, 5)
            async with browser.http.get(f"{browser.url}{PATH}/logs/stream?follow={again['follow']}") as response:
                return response.status == 200

        await wait_until(free)
