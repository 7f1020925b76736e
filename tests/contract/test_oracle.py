"""The embedded API server answers as a real one did, on every case of the oracle that it once got right."""

from pathlib import Path

import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.cases.apiserver import ApiOracle, OraclePlayer, oracle_session

ROOT = Path(__file__).parents[2]
FOLDER = ROOT.parent / "shared" / "api-oracle"
SAME = ROOT / "tests" / "data" / "oracle-same.txt"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no API oracle beside the project")
async def test_cases_that_were_the_same_still_are(tmp_path: Path) -> None:
    oracle, clock = ApiOracle(FOLDER), SystemClock()
    wanted = set(SAME.read_text().split())
    cases = [(name, case) for name, case in oracle.cases() if name in wanted]
    assert {name for name, _ in cases} == wanted
    # A real server does not say that nothing acts on a Deployment here.
    # Recorded without this plugin.
    disabled = ("ServiceAccount",)
    settings = PlaneSettings(certificates=tmp_path, warn_on_inert_kinds=False, disabled_admission_plugins=disabled)
    async with Store() as store, control_plane(store, settings, clock) as plane:
        assert plane.certificates is not None
        async with oracle_session(plane.url, plane.token, plane.certificates.ca) as session:
            found = await OraclePlayer(oracle, session, clock).play_all(cases)
    assert [line for lines in found.values() for line in lines] == []
