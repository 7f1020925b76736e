"""What a server allows to whom: requests whose responses a real kube-apiserver gave, played on it and on ours."""

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gangline.apiserver.store.store import Store
from gangline.apiserver.users import UserInfo
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.cases.access import RECORDED, USERS, AccessPlayer, all_steps
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets

REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real")])


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One of its own, with the controllers that fill aggregated roles."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("access")
    with RealServer(directory=folder, users=USERS, controller_manager=True) as running:
        yield running


@pytest.fixture(params=[REAL, "embedded"])
async def player(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AccessPlayer]:
    namespace = f"access-{uuid.uuid4().hex[:10]}"
    if request.param == "real":
        real: RealServer = request.getfixturevalue("real_server")
        yield AccessPlayer(real.url, real.ca, namespace)
        return
    users = {"carol-token": UserInfo("carol", ("system:authenticated",))}
    settings = PlaneSettings(certificates=tmp_path, token="admin-token", users=users, warn_on_inert_kinds=False)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.certificates is not None
        yield AccessPlayer(plane.url, plane.certificates.ca, namespace)


async def test_every_request_is_decided_as_recorded(player: AccessPlayer) -> None:
    steps, recorded = all_steps(), json.loads(RECORDED.read_text())
    assert len(steps) == len(recorded), "run hack/access_cases.py"
    outcomes = await player.play(steps, recorded)
    different = [
        f"{step.text}\n  recorded {json.dumps(wanted)}\n  now      {json.dumps(outcome)}"
        for step, outcome, wanted in zip(steps, outcomes, recorded, strict=True)
        if outcome != wanted
    ]
    assert not different, "\n".join(different)
