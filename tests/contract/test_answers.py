"""The embedded API server answers as a real one did, on requests that are not in the API oracle."""

from pathlib import Path

import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.cases.answers import RecordedAnswers
from support.cases.apiserver import ApiOracle, OraclePlayer, oracle_session

ORACLE = Path(__file__).parents[2].parent / "shared" / "api-oracle"


@pytest.mark.faults
@pytest.mark.skipif(not ORACLE.is_dir(), reason="no API oracle beside the project, whose rules compare answers")
async def test_answers_are_those_of_a_real_server(tmp_path: Path) -> None:
    recorded, clock = RecordedAnswers(ApiOracle(ORACLE).rules), SystemClock()
    disabled = ("ServiceAccount",)
    settings = PlaneSettings(certificates=tmp_path, warn_on_inert_kinds=False, disabled_admission_plugins=disabled)
    async with Store() as store, control_plane(store, settings, clock) as plane:
        assert plane.certificates is not None
        async with oracle_session(plane.url, plane.token, plane.certificates.ca) as session:
            found = await OraclePlayer(recorded, session, clock).play_all(recorded.cases(), at_once=6)
    assert [line for lines in found.values() for line in lines] == []
