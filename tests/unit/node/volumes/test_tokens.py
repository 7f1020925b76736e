"""Tokens in volumes: requested for the pod, written at once with the other files, renewed before they expire."""

import asyncio
import stat
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gangline.api.meta import JSON, Key
from gangline.kube.errors import ApiError, Status
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.environment import ConfigRefs
from gangline.node.pod_types import RunPod
from gangline.node.volumes.manager import VolumeManager
from gangline.node.volumes.refresh import VolumeRefresher
from gangline.node.volumes.tokens import LONGEST_JITTER, TokenManager
from gangline.testing.clock import FakeClock
from support.servers.node_api import NodeApi

SOURCES: list[JSON] = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
]


def pod_with_token(sources: list[JSON]) -> RunPod:
    spec = {"serviceAccountName": "bot", "volumes": [{"name": "v", "projected": {"sources": sources}}]}
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, RunPod)


class Server:
    """Issues numbered tokens, or refuses."""

    def __init__(self) -> None:
        self.requests: list[tuple[Key, JSON]] = []
        self.is_down = False

    async def request_token(self, account: Key, spec: JSON) -> JSON:
        if self.is_down:
            raise ApiError(Status(code=503, message="down"))
        self.requests.append((account, spec))
        return {"spec": spec, "status": {"token": f"token-{len(self.requests)}"}}


class TokenVolume:
    """A pod with a projected volume on a node."""

    def __init__(self, tmp_path: Path, sources: list[JSON] = SOURCES) -> None:
        self.server, self.clock = Server(), FakeClock()
        self.tokens = TokenManager(self.server, self.clock)
        self.pod, state = pod_with_token(sources), StateFolder(tmp_path)
        self.api = NodeApi()
        self.volumes = VolumeManager(self.api.client(), state, {}, self.tokens, lambda: "the CA")
        self.folder: PodFolder = state.pod(Key("ns", "p"), "u")
        self.path = self.folder.volumes_folder / "v"

    def token(self) -> str:
        return (self.path / "token").read_text()


async def test_volume_has_token_ca_and_namespace(tmp_path: Path) -> None:
    made = TokenVolume(tmp_path)
    await made.volumes.prepare(made.pod, made.folder)
    contents = {name: (made.path / name).read_text() for name in ("token", "ca.crt", "namespace")}
    assert contents == {"token": "token-1", "ca.crt": "the CA", "namespace": "ns"}
    assert stat.S_IMODE((made.path / "token").stat().st_mode) == 0o644
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    expected = {"audiences": [], "expirationSeconds": 3607, "boundObjectRef": reference}
    assert made.server.requests == [(Key("ns", "bot"), expected)]


async def test_token_of_an_audience_is_requested_for_it(tmp_path: Path) -> None:
    made = TokenVolume(tmp_path, [{"serviceAccountToken": {"path": "vault", "audience": "vault"}}])
    await made.volumes.prepare(made.pod, made.folder)
    ((_, spec),) = made.server.requests
    assert (spec["audiences"], spec["expirationSeconds"]) == (["vault"], 3600)


async def test_token_is_renewed_when_four_fifths_of_its_life_are_over(tmp_path: Path) -> None:
    made = TokenVolume(tmp_path)
    await made.volumes.prepare(made.pod, made.folder)
    await made.clock.advance(timedelta(seconds=3607 * 0.8) - LONGEST_JITTER - timedelta(seconds=1))
    await made.volumes.prepare(made.pod, made.folder)
    assert made.token() == "token-1"
    await made.clock.advance(LONGEST_JITTER + timedelta(seconds=1))
    await made.volumes.prepare(made.pod, made.folder)
    assert made.token() == "token-2"


async def test_long_token_is_renewed_after_a_day(tmp_path: Path) -> None:
    made = TokenVolume(tmp_path, [{"serviceAccountToken": {"path": "token", "expirationSeconds": 10**6}}])
    await made.volumes.prepare(made.pod, made.folder)
    delay = made.tokens.renewal_delay(made.pod)
    assert delay is not None
    assert timedelta(hours=24) - LONGEST_JITTER <= delay <= timedelta(hours=24)
    made.tokens.forget("u")
    assert made.tokens.renewal_delay(made.pod) is None


@pytest.mark.parametrize("was_down", [False, True])
async def test_running_pod_gets_the_new_token_also_after_the_server_was_away(tmp_path: Path, was_down: bool) -> None:
    made = TokenVolume(tmp_path)
    await made.volumes.prepare(made.pod, made.folder)
    refresher = VolumeRefresher(made.api.client(), made.volumes, lambda: made.pod, made.folder, made.clock)
    running = asyncio.create_task(refresher.run())
    made.server.is_down = was_down
    await made.clock.advance(timedelta(seconds=3607 * 0.8))
    if was_down:
        assert made.token() == "token-1"
        made.server.is_down = False
        await made.clock.advance(timedelta(seconds=20))
    assert made.token() == "token-2"
    running.cancel()


async def test_ca_that_the_node_knows_is_neither_read_nor_watched(tmp_path: Path) -> None:
    made = TokenVolume(tmp_path)
    assert made.volumes.watched_refs(made.pod) == ConfigRefs()
