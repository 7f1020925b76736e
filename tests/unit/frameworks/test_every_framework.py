from typing import Any

import pytest

from gangline.api.kubeflow.kinds import KINDS
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Addresses, Framework, Outcome
from support.builders.teams import gang_of, in_cluster, job_of, on_one_machine, seats

FRAMEWORKS: tuple[Framework[Any], ...] = (TensorFlow(), PyTorch(), XGBoost(), Mpi(), Paddle(), Jax())
each = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda found: found.facts.kind)
TEAMS = {"MPIJob": {"Launcher": 1, "Worker": 3}, "JAXJob": {"Worker": 3}, "TFJob": {"PS": 1, "Worker": 3}}
LED = {"Master": 1, "Worker": 3}


def make(framework: Framework[Any]) -> Any:
    return job_of(framework, TEAMS.get(framework.facts.kind, LED))


def test_every_kind_has_its_framework() -> None:
    assert {framework.facts.kind for framework in FRAMEWORKS} == {facts.kind for facts in KINDS}


@each
def test_defaults_filled_in_twice_are_the_same(framework: Framework[Any]) -> None:
    job = make(framework)
    assert framework.default(job) == job
    assert problems(framework, job) == ()


@each
def test_variables_are_text_and_none_is_told_twice(framework: Framework[Any]) -> None:
    job = make(framework)
    for addresses in (in_cluster(framework, job), on_one_machine(framework, job)):
        for seat in seats(framework, job):
            told = framework.wiring(job, seat, addresses).env
            names = [variable["name"] for variable in told]
            assert len(names) == len(set(names))
            assert all(isinstance(variable.get("value", ""), str) for variable in told)


@each
def test_a_member_is_wired_alike_every_time(framework: Framework[Any]) -> None:
    job = make(framework)
    addresses: Addresses = in_cluster(framework, job)
    told = {seat: framework.wiring(job, seat, addresses) for seat in seats(framework, job)}
    again = in_cluster(framework, make(framework))
    assert {seat: framework.wiring(job, seat, again) for seat in reversed(list(told))} == told


@each
def test_a_team_without_pods_is_pending(framework: Framework[Any]) -> None:
    job = make(framework)
    assert framework.verdict(job, gang_of(framework, job)).outcome is Outcome.PENDING
