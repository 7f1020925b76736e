"""A receiver of webhooks on loopback, in a thread: it keeps what it gets and answers what the test wants."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from support.waiting import wait_until_blocking


class ReceivedRequest(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def label(self) -> str:
        """The job and its state: `bert failed`."""
        return f"{self.json['name']} {self.json['state']}"


class WebhookReceiver:
    """What was received, and how requests are answered."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[ReceivedRequest] = []
        self.status = 204
        self.before_answer: Callable[[ReceivedRequest], None] = lambda request: None

    def labels(self, path: str = "/") -> list[str]:
        return [request.label for request in self.requests if request.path == path]

    def wait_for(self, label: str, count: int = 1, path: str = "/") -> None:
        wait_until_blocking(
            lambda: self.labels(path).count(label) >= count,
            f"no {label!r} among what was received: {self.labels(path)}",
        )


@contextmanager
def webhook_receiver() -> Iterator[WebhookReceiver]:
    """A receiver, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            request = ReceivedRequest(self.path, headers, body)
            receiver.requests.append(request)
            receiver.before_answer(request)
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = WebhookReceiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
