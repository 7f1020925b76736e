"""`gangline operator` makes of every MPIJob of v2beta1 what mpi-operator made of it, on a real API server.

tests/data/mpi-v2beta1 has the scenarios and the recordings; hack/dropin.py plays some of them by hand and records more.
"""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from gangline.base.clock import SystemClock
from support.cases import kubeflow
from support.cases.kubeflow import Difference
from support.cases.kubeflow_play import MPI_V2_PATHS, scenario_player
from support.cluster.operators import GANGLINE_BOTH_MPI, run_operator
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("mpi-v2beta1"), pytest.mark.timeout(600)]

NAMES = [scenario.name for scenario in kubeflow.load_scenarios(kubeflow.MPI_V2_FOLDER / "scenarios")]
KNOWN = kubeflow.expected_differences(kubeflow.MPI_V2_FOLDER / "known.txt")
V1, V2 = "/apis/kubeflow.org/v1/namespaces/default/mpijobs", "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with an operator for both APIs of MPIJob."""
    assets = find_assets()
    if assets is None or not (assets / "kube-controller-manager").exists():
        skip_or_fail("real kube-apiserver and kube-controller-manager not found: run hack/kubernetes.sh")
    with (
        RealServer(directory=tmp_path_factory.mktemp("server")) as server,
        run_operator(GANGLINE_BOTH_MPI, server, tmp_path_factory.mktemp("operator")),
    ):
        server.start_controller_manager()  # now that it can see the jobs
        yield server


@pytest.fixture(scope="module")
def different(server: RealServer) -> Mapping[str, list[Difference]]:
    """All scenarios are played at once; where each differs from its recording."""
    golden = kubeflow.MPI_V2_FOLDER / "golden"
    recorded = {name: kubeflow.load_golden(name, golden) for name in NAMES}
    scenarios = kubeflow.load_scenarios(kubeflow.MPI_V2_FOLDER / "scenarios")

    async def play() -> dict[str, list[Any]]:
        cases = [(scenario, recorded[scenario.name]) for scenario in scenarios]
        async with scenario_player(server, SystemClock(), KNOWN, MPI_V2_PATHS) as player:
            return await player.play_all(cases)

    found = asyncio.run(play())
    return {name: kubeflow.differences(name, recorded[name], shots) for name, shots in found.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_job_is_served_as_before(different: Mapping[str, list[Difference]], name: str) -> None:
    unmeant = kubeflow.unexpected_differences(different[name], KNOWN)
    assert not unmeant, "\n".join(map(str, unmeant))


def test_every_known_difference_is_still_there(different: Mapping[str, list[Difference]]) -> None:
    places = [place.place for found in different.values() for place in found]
    assert [one.prefix for one in KNOWN if not any(one.covers(at) for at in places)] == []


def test_each_job_stays_in_the_api_in_which_it_was_written(server: RealServer) -> None:
    old, new = _job("kubeflow.org/v1", "old"), _job("kubeflow.org/v2beta1", "new")
    assert server.call("POST", V1, old).status == 201
    assert server.call("POST", V2, new).status == 201
    # Either version shows both, with all of their fields.
    for path in (V1, V2):
        assert "mpiImplementation" not in server.call("GET", f"{path}/old").body["spec"]
        spec = server.call("GET", f"{path}/new").body["spec"]
        assert (spec["mpiImplementation"], spec["sshAuthMountPath"]) == ("OpenMPI", "/root/.ssh")
    # The launcher of the one is a pod, and that of the other a Job: never both.
    wait_until_blocking(lambda: _exists(server, "/api/v1/namespaces/default/pods/old-launcher"))
    wait_until_blocking(lambda: _exists(server, "/apis/batch/v1/namespaces/default/jobs/new-launcher"))
    assert not _exists(server, "/apis/batch/v1/namespaces/default/jobs/old-launcher")
    assert not _exists(server, "/api/v1/namespaces/default/pods/new-launcher")
    owners = server.call("GET", "/api/v1/namespaces/default/pods/new-worker-0").body["metadata"]["ownerReferences"]
    assert [owner["apiVersion"] for owner in owners] == ["kubeflow.org/v2beta1"]


@pytest.mark.parametrize(
    ("path", "name", "accepted"), [(V1, "old-one", 200), (V2, "old-one", 422), (V1, "new-one", 200)]
)
def test_a_job_is_changed_in_its_own_api_or_without_changing_it(
    server: RealServer, path: str, name: str, accepted: int
) -> None:
    version, collection = ("v1", V1) if name == "old-one" else ("v2beta1", V2)
    server.call("POST", collection, _job(f"kubeflow.org/{version}", name))
    answer = server.call("PATCH", f"{path}/{name}", {"spec": {"slotsPerWorker": 2}}, content_type=MERGE_PATCH)
    assert answer.status == accepted, answer.body
    if accepted != 200:
        assert "this job was written in kubeflow.org/v1" in answer.body["message"]


def test_the_keys_are_a_pair(server: RealServer) -> None:
    assert server.call("POST", V2, _job("kubeflow.org/v2beta1", "keys")).status == 201
    secret = "/api/v1/namespaces/default/secrets/keys-ssh"
    wait_until_blocking(lambda: _exists(server, secret))
    data = {name: base64.b64decode(text) for name, text in server.call("GET", secret).body["data"].items()}
    private = load_pem_private_key(data["ssh-privatekey"], None)
    assert private.public_key() == load_ssh_public_key(data["ssh-publickey"])


def _job(api_version: str, name: str) -> Any:
    template = {"spec": {"nodeName": "nowhere", "containers": [{"name": "mpi", "image": "train:1"}]}}
    replicas = {kind: {"replicas": 1, "template": template} for kind in ("Launcher", "Worker")}
    return {
        "apiVersion": api_version,
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"mpiReplicaSpecs": replicas},
    }


def _exists(server: RealServer, path: str) -> bool:
    return server.call("GET", path).status == 200
