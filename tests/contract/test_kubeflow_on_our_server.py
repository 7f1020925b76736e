"""The Kubeflow training operator 1.9, as it is shipped, on a plane that `gangline up` started: it makes of every job what it
made of it on a real kube-apiserver.

The recordings are those that our operator is held against (tests/data/drop-in); here the server is. hack/peer.sh builds
the operator. GANGLINE_ALL_SCENARIOS=1 plays all scenarios instead of those of the published set.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gangline.base.clock import SystemClock
from support.cases import kubeflow
from support.cases.kubeflow import Difference
from support.cases.kubeflow_play import SettleTimes, scenario_player
from support.cluster.clients import DetachedPlane
from support.cluster.operators import KUBEFLOW, run_operator
from support.requirements import skip_or_fail

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator"), pytest.mark.timeout(1800)]

PUBLISHED = (
    *("jax-basic", "mpi-basic", "mpi-launcher-fails", "paddle-collective"),
    *("pt-elastic", "pt-master-worker", "pt-nproc", "pt-worker-fails"),
    *("tf-all-workers", "tf-chief-evaluator", "tf-clean-running", "tf-custom-port", "tf-deleted", "tf-dynamic-worker"),
    *("tf-exitcode-retry", "tf-labels-annotations", "tf-ps-worker", "tf-single-worker", "tf-suspend-resume", "tf-ttl"),
    *("tf-worker-fails-never", "xgb-basic"),
)
SCENARIOS = [
    one for one in kubeflow.load_scenarios() if os.environ.get("GANGLINE_ALL_SCENARIOS") or one.name in PUBLISHED
]
AT_ONCE = 6  # its client sends few requests a second
TIMES = SettleTimes(quiet_seconds=1.5)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    plane = DetachedPlane(tmp_path_factory.mktemp("kubeflow") / "plane")
    plane.up("--conformance")
    yield plane
    plane.down()


@pytest.fixture(scope="module")
def different(plane: DetachedPlane, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Difference]]:
    """All scenarios are played; where each differs from its recording."""
    if missing := KUBEFLOW.missing():
        skip_or_fail(missing)
    recorded = {scenario.name: kubeflow.load_golden(scenario.name) for scenario in SCENARIOS}

    async def play() -> dict[str, list[Any]]:
        cases = [(scenario, recorded[scenario.name]) for scenario in SCENARIOS]
        async with scenario_player(plane, SystemClock()) as player:
            return await player.play_all(cases, TIMES, AT_ONCE)

    folder: Path = tmp_path_factory.mktemp("operator")
    with run_operator(KUBEFLOW, plane, folder):
        found = asyncio.run(play())
    return {name: kubeflow.differences(name, recorded[name], shots) for name, shots in found.items()}


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_kubeflow_serves_a_job_as_on_kube_apiserver(different: Mapping[str, list[Difference]], name: str) -> None:
    assert not different[name], "\n".join(map(str, different[name]))


def test_the_published_scenarios_are_all_there() -> None:
    assert {one.name for one in SCENARIOS} >= set(PUBLISHED)
