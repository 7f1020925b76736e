"""Serves the made-up cluster of `team` with the pages and the headers of the real dashboard.

PYTHONPATH=tests python -m support.example_dashboard.server [PORT]    for looking at pages while they are written
"""

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from aiohttp import web

from gangline.dashboard.settings import STATIC_FOLDER
from gangline.dashboard.web.guard import add_security_headers
from gangline.dashboard.web.pages import StaticPages
from support.example_dashboard import team
from support.waiting import wait_until_blocking

SESSION = {
    "version": "0.1.0",
    "user": "maria",
    "local": True,
    "namespaces": ["default", "team-a", "team-b", "team-c"],
    "canSeeAllNamespaces": True,
    "namespace": "",
    "history": True,
    "tools": ["submit", "fit"],
    "refused": [],
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ExampleServer:
    """The answers are plain attributes: a test changes them before it opens a page, or sends patches after."""

    def __init__(self) -> None:
        self.session: dict[str, Any] = dict(SESSION)
        self.rows: list[dict[str, Any]] = team.board_rows()
        self.refused: list[dict[str, Any]] = []
        self.detail: dict[str, Any] = team.job_detail(self.rows[0])
        self.why: dict[str, Any] = team.WHY
        self.lines: list[dict[str, Any]] = team.log_lines()
        self.cluster: dict[str, Any] = team.cluster()
        self.requests: list[tuple[str, str, Any]] = []
        self.url = ""
        self._queues: dict[str, list[asyncio.Queue[str | None]]] = {"board": [], "job": [], "cluster": []}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = True

    def publish(self, view: str, patch: dict[str, Any]) -> None:
        """Send a patch to every page that follows a view."""
        self.run_in_loop(lambda: self._put(_message("patch", patch), view))

    def report_problem(self, message: str) -> None:
        """Say to every page why the API server is not followed; empty: it is again."""
        self.run_in_loop(lambda: self._put(_message("problem", {"message": message}), *self._queues))

    def cut(self) -> None:
        """End all streams and answer nothing until `mend`."""
        self._open = False
        self.run_in_loop(lambda: self._put(None, *self._queues))

    def _put(self, message: str | None, *views: str) -> None:
        for queue in [queue for view in views for queue in self._queues[view]]:
            queue.put_nowait(message)

    def wait_for_followers(self, counts: dict[str, int]) -> None:
        """Wait until so many pages follow each view."""
        wait_until_blocking(lambda: {view: len(queues) for view, queues in self._queues.items()} == counts)

    def mend(self) -> None:
        self._open = True

    def run_in_loop(self, run: Callable[[], object]) -> None:
        """Run something in the thread of the server."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(run)

    def application(self) -> web.Application:
        pages = StaticPages(STATIC_FOLDER)

        async def page(request: web.Request) -> web.StreamResponse:
            return pages.response(request)

        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self._open and request.path.startswith("/api/"):
                return _json({"error": {"code": 503, "message": "the server is being restarted"}}, 503)
            if request.method == "POST":
                self.requests.append(
                    (request.path, request.headers.get("X-Gangline-Request", ""), await request.json())
                )
            return await handler(request)

        app = web.Application(middlewares=[gate])
        job = "/api/jobs/{namespace}/{plural}/{name}"
        app.add_routes(
            [
                web.get("/api/session", self._answer(lambda _: self.session)),
                web.get("/api/stream", self._stream),
                web.get("/api/jobs", self._answer(lambda _: {"total": len(self.rows), "rows": self.rows})),
                web.get(job, self._job),
                web.get(f"{job}/why", self._answer(lambda _: self.why)),
                web.get(f"{job}/logs", self._answer(self._logs)),
                web.get(f"{job}/curves", self._answer(self._curves)),
                web.post(job + "/actions/{action}", self._answer(lambda _: {})),
                web.get("/api/cluster", self._answer(lambda _: self.cluster)),
                web.post(
                    "/api/cluster/fit", self._answer(lambda _: {"text": FIT, "results": [{"fits": False}], "notes": []})
                ),
                web.get("/api/sweeps", self._answer(lambda _: {"sweeps": [team.sweep()]})),
                web.get("/api/sweeps/{name}", self._answer(lambda _: team.sweep())),
                web.post("/api/submit", self._submit),
                web.get("/{path:.*}", page),
            ]
        )
        app.on_response_prepare.append(add_security_headers)
        return app

    def _answer(self, data: Callable[[web.Request], Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return _json(data(request))

        return handle

    async def _job(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["name"] == "gone":
            return _json(GONE, 404)
        return _json(self._detail("/".join(request.match_info[part] for part in ("namespace", "plural", "name"))))

    def _detail(self, name: str) -> Any:
        row = next((row for row in self.rows if row["id"] == name), self.detail["row"])
        return self.detail | {"row": row}

    def _logs(self, request: web.Request) -> Any:
        query = request.query
        low, high = _moment(query.get("from")), _moment(query.get("to"))
        lines = [
            line
            for line in self.lines
            if (low is None or line["at"] >= low)
            and (high is None or line["at"] <= high)
            and query.get("replica", "") in ("", line["replica"])
            and query.get("search", "").lower() in line["text"].lower()
        ]
        start = int(query.get("cursor") or 0)
        return {"lines": lines[start:], "cursor": str(len(lines)), "more": False, "notRead": []}

    def _curves(self, request: web.Request) -> Any:
        shift = 0.0 if request.match_info["name"] == "bert-large" else 0.15
        return team.curves(request.query.get("over", "step"), shift)

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if "kind:" not in body["yaml"]:
            problem = {"line": 1, "text": "kind: missing; write for example kind: PyTorchJob"}
            return _json({"objects": [], "problems": [problem]})
        result = "would be created" if body["dryRun"] else "created"
        found = {"kind": "PyTorchJob", "name": "bert", "namespace": "default", "result": result}
        return _json({"objects": [found], "problems": []})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        view = request.query.get("view", "board")
        if view == "job" and request.query.get("id", "").endswith("/gone"):
            return _json(GONE, 404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        content = {
            "board": {"rows": self.rows, "queues": team.QUEUES, "refused": self.refused},
            "job": self._detail(request.query.get("id", "")),
            "cluster": self.cluster,
        }[view]
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._queues[view].append(queue)
        try:
            await response.write(_message("snapshot", content).encode())
            while (message := await queue.get()) is not None:
                await response.write(message.encode())
        except ConnectionError:
            pass  # The page was closed.
        finally:
            self._queues[view].remove(queue)
        return response

    async def serve(self, port: int, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        self._loop = asyncio.get_running_loop()
        runner = web.AppRunner(self.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


GONE = {"error": {"code": 404, "message": "pytorchjobs gone: there is no such job"}}
FIT = """PyTorchJob team-a/vit needs 16 nvidia.com/gpu for 2 pods of 8.
gpu-0 has 8 free, no other node has.
It would fit after llama-sft ends (about 7 h), or with 4 pods of 4."""


def _moment(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None


def _message(event: str, data: Any) -> str:
    return f"event: {event}\nid: 1\ndata: {json.dumps(data)}\n\n"


def _json(data: Any, status: int = 200) -> web.Response:
    return web.json_response(data, status=status)


@contextmanager
def example_server(port: int = 0) -> Iterator[ExampleServer]:
    """A server in a thread of its own."""
    server, ready = ExampleServer(), threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        with suppress(asyncio.CancelledError):
            await server.serve(port, ready.set)

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        server.run_in_loop(tasks[0].cancel)
        thread.join(10)


if __name__ == "__main__":
    with example_server(int(sys.argv[1]) if len(sys.argv) > 1 else 8765) as running:
        print(running.url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
