"""`gangline operator` makes of every job what the Kubeflow training operator made of it, on a real API server.

tests/data/drop-in has the scenarios and the recordings; hack/kubeflow.py plays some of them by hand and records more.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest

from gangline.base.clock import SystemClock
from support.cases import kubeflow
from support.cases.kubeflow import Difference
from support.cases.kubeflow_play import scenario_player
from support.cluster.operators import GANGLINE_OPERATOR, run_operator
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("drop-in"), pytest.mark.timeout(600)]

NAMES = [scenario.name for scenario in kubeflow.load_scenarios()]
KNOWN = kubeflow.expected_differences()
DEFECT = re.compile(r"D([1-9]|[12][0-9]|3[0-4]): \S+")


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Difference]]:
    """All scenarios are played at once; where each differs from its recording."""
    assets = find_assets()
    if assets is None or not (assets / "kube-controller-manager").exists():
        skip_or_fail("real kube-apiserver and kube-controller-manager not found: run hack/kubernetes.sh")
    recorded = {name: kubeflow.load_golden(name) for name in NAMES}

    async def play() -> dict[str, list[Any]]:
        cases = [(scenario, recorded[scenario.name]) for scenario in kubeflow.load_scenarios()]
        async with scenario_player(server, SystemClock(), KNOWN) as player:
            return await player.play_all(cases)

    with (
        RealServer(directory=tmp_path_factory.mktemp("server")) as server,
        run_operator(GANGLINE_OPERATOR, server, tmp_path_factory.mktemp("operator")),
    ):
        server.start_controller_manager()  # now that it can see the jobs
        found = asyncio.run(play())
    return {name: kubeflow.differences(name, recorded[name], shots) for name, shots in found.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_job_is_served_as_before(different: Mapping[str, list[Difference]], name: str) -> None:
    unmeant = kubeflow.unexpected_differences(different[name], KNOWN)
    assert not unmeant, "\n".join(map(str, unmeant))


def test_every_known_difference_is_still_there(different: Mapping[str, list[Difference]]) -> None:
    places = [place.place for found in different.values() for place in found]
    assert [one.prefix for one in KNOWN if not any(at.startswith(one.prefix) for at in places)] == []


@pytest.mark.parametrize("known", KNOWN, ids=lambda one: one.prefix)
def test_a_known_difference_names_the_defect_it_does_without(known: kubeflow.ExpectedDifference) -> None:
    assert DEFECT.match(known.reason), known
    assert known.prefix.partition("[")[0] in NAMES
