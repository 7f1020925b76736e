"""What a server allows to whom: requests whose responses a real kube-apiserver gave, played on it and on ours."""

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.auth.default_roles import default_roles
from gangline.apiserver.auth.role_index import RBAC_GROUP
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


def test_the_default_roles_are_those_of_a_real_server(real_server: RealServer) -> None:
    """Also of one that has run for a while: what other tests created is left out."""
    for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings"):
        items = real_server.call("GET", f"/apis/{RBAC_GROUP}/v1/{plural}").body["items"]
        is_default = {"kubernetes.io/bootstrapping": "rbac-defaults"}.items()
        real = [item for item in items if is_default <= (item["metadata"].get("labels") or {}).items()]
        ours = [role for role in default_roles() if f"{role['kind'].lower()}s" == plural]
        assert list(map(_content, ours)) == list(map(_content, real))


def _content(role: JSON) -> JSON:
    metadata = {field: role["metadata"].get(field) for field in ("name", "namespace", "labels", "annotations")}
    # The rules of aggregated roles come later, from a controller.
    fields = ("aggregationRule",) if "aggregationRule" in role else ("rules", "roleRef", "subjects")
    return {"metadata": metadata, **{field: role.get(field) for field in fields}}


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
