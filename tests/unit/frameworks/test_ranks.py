"""Ranks beside replica names must be the ranks that each framework's own wiring gives to its processes."""

from collections.abc import Mapping
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import CONFIG_MAPS, Mpi
from gangline.frameworks.mpi_objects import HOSTFILE
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.ranks import rank_of, replica_with_rank
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.jobs.pods.replicas import Member
from support.builders.teams import cluster_addresses, env_pairs, job_members, make_framework_job, make_gang

RANK_VARIABLES = ("RANK", "PROCESS_ID")
SHAPES: tuple[tuple[Framework[Any], Mapping[str, int]], ...] = (
    (PyTorch(), {"Master": 1}),
    (PyTorch(), {"Master": 1, "Worker": 3}),
    (PyTorch(), {"Worker": 2, "Master": 1}),
    (PyTorch(), {"Worker": 3}),
    (XGBoost(), {"Master": 1, "Worker": 2}),
    (XGBoost(), {"Master": 1}),
    (Jax(), {"Worker": 1}),
    (Jax(), {"Worker": 12}),
    (TensorFlow(), {"Worker": 2}),
    (TensorFlow(), {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}),
    (Paddle(), {"Worker": 3}),
    (Paddle(), {"Master": 2, "Worker": 2}),
    (Mpi(), {"Launcher": 1, "Worker": 3}),
    (Mpi(), {"Launcher": 1}),
)


def wired_ranks(framework: Framework[Any], counts: Mapping[str, int]) -> dict[Member, int | None]:
    """The rank of every replica by the environment, or for MPI by the order of the host file."""
    job = make_framework_job(framework, counts, "job")
    addresses = cluster_addresses(framework, job)
    ranks: dict[Member, int | None] = {}
    for member in job_members(framework, job):
        env = dict(env_pairs(framework.wiring(job, member, addresses)))
        ranks[member] = next((int(env[name]) for name in RANK_VARIABLES if name in env), None)
    if isinstance(framework, Mpi):
        companions = framework.companions(job, make_gang(framework, job))
        files = next(one.body["data"] for one in companions if one.resource == CONFIG_MAPS)
        for rank, line in enumerate(files[HOSTFILE].split("\n")[:-1]):
            host = line.split()[0]
            ranks[Member("Worker", int(host.rpartition("-")[2]))] = rank
    return ranks


def is_without_ranks(framework: Framework[Any], counts: Mapping[str, int]) -> bool:
    """Workers without a master are ranked by torchrun, which sorts them by their host names."""
    return isinstance(framework, PyTorch) and "Master" not in counts


@pytest.mark.parametrize(
    ("framework", "counts"), SHAPES, ids=lambda value: str(value) if isinstance(value, dict) else type(value).__name__
)
def test_ranks_are_those_of_the_wiring(framework: Framework[Any], counts: Mapping[str, int]) -> None:
    expected = wired_ranks(framework, counts)
    assert len(expected) == sum(counts.values())
    if is_without_ranks(framework, counts):
        assert set(expected.values()) == {None}
        expected = {member: member.index for member in expected}
    kind = framework.facts.kind
    assert {member: rank_of(kind, counts, str(member)) for member in expected} == expected


def test_every_kind_is_checked() -> None:
    assert {framework.facts.kind for framework, _ in SHAPES} == {facts.kind for facts in TRAINING_KINDS}


@pytest.mark.parametrize("replica", ["", "worker", "worker-", "worker-9", "worker-x", "chief-0", "-1", "worker-²"])
def test_what_is_no_replica_of_the_job_has_no_rank(replica: str) -> None:
    assert rank_of("PyTorchJob", {"Master": 1, "Worker": 3}, replica) is None
    assert replica_with_rank("PyTorchJob", {"Master": 1, "Worker": 3}, replica) == replica


def test_an_unknown_kind_has_no_ranks() -> None:
    assert rank_of("RingJob", {"Worker": 3}, "worker-1") is None


def test_people_see_the_rank_beside_the_name() -> None:
    counts = {"Master": 1, "Worker": 3}
    assert replica_with_rank("PyTorchJob", counts, "worker-1") == "worker-1 (rank 2)"
    assert replica_with_rank("TFJob", counts, "worker-1") == "worker-1"


def test_a_replica_with_several_processes_has_several_ranks() -> None:
    counts = {"Master": 1, "Worker": 3}
    assert rank_of("PyTorchJob", counts, "worker-1", processes=4) == 8
    assert replica_with_rank("PyTorchJob", counts, "worker-1", processes=4) == "worker-1 (ranks 8-11)"
    assert rank_of("MPIJob", {"Launcher": 1, "Worker": 2}, "worker-1", processes=2) == 2
