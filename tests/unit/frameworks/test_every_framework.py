from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Addresses, Framework, JobOutcome
from support.builders.teams import (
    cluster_addresses,
    job_members,
    local_addresses,
    make_framework_job,
    make_gang,
)

FRAMEWORKS: tuple[Framework[Any], ...] = (TensorFlow(), PyTorch(), XGBoost(), Mpi(), Paddle(), Jax())
each = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda found: found.facts.kind)
TEAMS = {"MPIJob": {"Launcher": 1, "Worker": 3}, "JAXJob": {"Worker": 3}, "TFJob": {"PS": 1, "Worker": 3}}
LED = {"Master": 1, "Worker": 3}


def make(framework: Framework[Any]) -> Any:
    return make_framework_job(framework, TEAMS.get(framework.facts.kind, LED))


def test_every_kind_has_its_framework() -> None:
    assert {framework.facts.kind for framework in FRAMEWORKS} == {facts.kind for facts in TRAINING_KINDS}


@each
def test_defaults_filled_in_twice_are_the_same(framework: Framework[Any]) -> None:
    job = make(framework)
    assert framework.default(job) == job
    assert problems(framework, job) == ()


@each
def test_variables_are_text_and_none_is_told_twice(framework: Framework[Any]) -> None:
    job = make(framework)
    for addresses in (cluster_addresses(framework, job), local_addresses(framework, job)):
        for member in job_members(framework, job):
            env = framework.wiring(job, member, addresses).env
            names = [variable["name"] for variable in env]
            assert len(names) == len(set(names))
            assert all(isinstance(variable.get("value", ""), str) for variable in env)


@each
def test_a_member_is_wired_alike_every_time(framework: Framework[Any]) -> None:
    job = make(framework)
    addresses: Addresses = cluster_addresses(framework, job)
    edits = {member: framework.wiring(job, member, addresses) for member in job_members(framework, job)}
    again = cluster_addresses(framework, make(framework))
    assert {member: framework.wiring(job, member, again) for member in reversed(list(edits))} == edits


@each
def test_a_team_without_pods_is_pending(framework: Framework[Any]) -> None:
    job = make(framework)
    assert framework.verdict(job, make_gang(framework, job)).outcome is JobOutcome.PENDING
