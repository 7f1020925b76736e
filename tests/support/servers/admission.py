"""An admission webhook on loopback: it keeps the requests it gets, and answers as the test wants."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trustme
from aiohttp import web

JSON = dict[str, Any]
Answer = Callable[[JSON], JSON]
"""The response, without its uid, to the request of an AdmissionReview."""


def allow(request: JSON) -> JSON:
    return {"allowed": True}


def patch(*operations: JSON) -> Answer:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def deny(**status: Any) -> Answer:
    return lambda request: {"allowed": False, "status": status}


class AdmissionServer:
    """A webhook for every path."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, JSON]] = []
        self.port = 0

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.ca.cert_pem.bytes()).decode()

    def asked(self, path: str) -> list[JSON]:
        """The requests that came to a path."""
        return [request for where, request in self.requests if where == path]

    def webhook(self, path: str, answer: Answer = allow, **fields: Any) -> JSON:
        """A webhook of this server, for pods that are created unless `rules` say otherwise."""
        self.answers[path] = answer
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        return {
            "name": f"{path.strip('/')}.hooks.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.bundle},
            "rules": [rule],
            **fields,
        }

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await http.read())
        self.requests.append((http.path, review["request"]))
        response = {"uid": review["request"]["uid"], **self.answers[http.path](review["request"])}
        return web.json_response({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response})


@asynccontextmanager
async def admission_server(*names: str) -> AsyncIterator[AdmissionServer]:
    """A webhook server with a certificate for 127.0.0.1 and these names, until the block ends."""
    server = AdmissionServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.ca.issue_cert("127.0.0.1", *names).configure_cert(context)
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()
