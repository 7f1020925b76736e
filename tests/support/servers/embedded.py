"""The embedded API server and its node beside a test of blocking code, with users and an audit log."""

import asyncio
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from gangline.api.scheme import CORE_SCHEME
from gangline.apiserver.audit.log import AuditSettings
from gangline.apiserver.audit.policy import METADATA_OF_ALL
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo, service_account_groups
from gangline.base.clock import SystemClock
from gangline.kube.config.access import PlaneAccess
from gangline.local.cluster import LocalSettings, local_cluster
from gangline.local.plane import PlaneSettings
from support.servers.real import RealAnswer


class EmbeddedServer:
    """A running API server with a node. Its kubeconfig has a context `admin` and one for each user."""

    def __init__(self, access: PlaneAccess, folder: Path, users: Sequence[str]) -> None:
        self._url, self._token, self._ca = access.server, access.token, access.ca
        self.kubeconfig, self.audit_log = folder / "kubeconfig", folder / "audit.log"
        config = access.kubeconfig()
        cluster = config["clusters"][0]["name"]
        tokens = {"admin": self._token, **{user: _token(user) for user in users}}
        config["users"] = [{"name": user, "user": {"token": token}} for user, token in tokens.items()]
        config["contexts"] = [{"name": user, "context": {"cluster": cluster, "user": user}} for user in tokens]
        config["current-context"] = "admin"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> RealAnswer:
        """One request, whatever its status."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, method=method, data=data, headers=headers)
        context = ssl.create_default_context(cafile=self._ca)
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=context) as response:
                return RealAnswer(response.status, json.loads(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return RealAnswer(error.code, json.loads(error.read()))


@contextmanager
def embedded_server(folder: Path, users: Sequence[str] = ()) -> Iterator[EmbeddedServer]:
    """An API server in a thread, until the block ends."""
    plane = PlaneSettings(
        certificates=folder / "certificates",
        users={_token(user): _user(user) for user in users},
        audit=AuditSettings(folder / "audit.log", METADATA_OF_ALL),
    )
    settings = LocalSettings(folder=folder, logs=folder / "pods", plane=plane)
    started, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    running: list[PlaneAccess] = []

    async def serve() -> None:
        async with local_cluster(settings, CORE_SCHEME, SystemClock()) as cluster:
            running.append(cluster.access)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(60), "the API server does not start"
        yield EmbeddedServer(running[0], folder, users)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def _token(user: str) -> str:
    return f"token-of-{user}"


def _user(name: str) -> UserInfo:
    account = UserInfo(name).service_account
    return UserInfo(name, (*(service_account_groups(account[0]) if account else ()), AUTHENTICATED_GROUP))
