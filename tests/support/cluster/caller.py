"""Requests to one namespace of a server, real or ours, with the warnings of each answer."""

import json
from typing import Any, NamedTuple

from gangline.kube.config.connection import Connection
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from support.waiting import wait_until

JSON = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"


class Answer(NamedTuple):
    """Status, decoded body, and the texts of the warnings."""

    status: int
    body: JSON
    warnings: list[str]

    @property
    def message(self) -> str:
        """The error, without the name of the object."""
        text: str = self.body["message"]
        return text.partition(" is forbidden: ")[2] or text


class Caller:
    """Sends requests to one namespace of a server."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self._connection, self.namespace = connection, namespace

    async def call(self, method: str, path: str, body: JSON | None = None, media: str = "application/json") -> Answer:
        path, _, query = path.partition("?")
        pairs = tuple((name, value) for name, _, value in (item.partition("=") for item in query.split("&") if item))
        content = json.dumps(body).encode() if body is not None else b""
        told: list[str] = []
        # A transport of its own: it passes a warning on only once.
        async with HttpTransport(self._connection, warn=told.append) as transport:
            response = await transport.send(Request(method, path, pairs, content, media if content else ""))
        # Ours says that nothing acts on a Job.
        warnings = [text for text in told if not text.startswith("gangline stores")]
        is_json = response.body.startswith(b"{")
        return Answer(response.status, json.loads(response.body) if is_json else {}, warnings)

    async def create(self, plural: str, body: JSON, api: str = "/api/v1", *, dry: bool = False) -> Answer:
        query = "?dryRun=All" if dry else ""
        return await self.call("POST", f"{api}/namespaces/{self.namespace}/{plural}{query}", body)

    async def pod(self, name: str, resources: JSON | None = None, *, dry: bool = False, **spec: Any) -> Answer:
        spec = {"containers": [{"name": "c", "image": "x", "resources": resources or {}}], **spec}
        return await self.create("pods", {"metadata": {"name": name}, "spec": spec}, dry=dry)

    async def quota(self, hard: JSON, used: JSON | None = None, name: str = "q", **spec: Any) -> None:
        """A quota whose status says what is used, as a controller writes it."""
        body = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
        assert (await self.create("resourcequotas", body)).status == 201
        status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
        path = f"/api/v1/namespaces/{self.namespace}/resourcequotas/{name}/status"
        assert (await self.call("PATCH", path, {"status": status}, MERGE_PATCH)).status == 200

    async def used(self, name: str = "q") -> JSON:
        answer = await self.call("GET", f"/api/v1/namespaces/{self.namespace}/resourcequotas/{name}")
        used: JSON = answer.body["status"]["used"]
        return used

    async def refused_pod(self, resources: JSON, **spec: Any) -> Answer:
        """The answer to a pod that must be refused; a real server learns of a new quota or limit range after a while."""

        async def refused() -> Answer | None:
            answer = await self.pod("refused", resources, dry=True, **spec)
            return answer if answer.status == 403 else None

        return await wait_until(refused)

    async def label_namespace(self, labels: JSON) -> Answer:
        return await self.call(
            "PATCH", f"/api/v1/namespaces/{self.namespace}", {"metadata": {"labels": labels}}, MERGE_PATCH
        )
