"""The pod templates of a job, whatever kind it is."""

from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TFJOB, TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.pod_templates import (
    pod_specs,
    training_container,
    training_containers,
    with_edited_pods,
)


def job(facts: JobKind, *containers: JSON) -> JSON:
    template = {"spec": {"containers": list(containers)}}
    return {"spec": {facts.replicas: {name: {"template": template} for name in facts.types[:2]}}}


@pytest.mark.parametrize("facts", TRAINING_KINDS, ids=lambda facts: facts.kind)
def test_the_container_that_trains_is_found_by_its_name_in_every_kind(facts: JobKind) -> None:
    body = job(facts, {"name": "sidecar"}, {"name": facts.container, "image": "i"})
    assert [found["image"] for found in training_containers(body, facts)] == ["i"] * len(facts.types[:2])


def test_an_edit_leaves_the_original_as_it_is() -> None:
    body = job(TFJOB, {"name": "tensorflow"})
    changed = with_edited_pods(body, TFJOB, lambda spec: spec.update(hostNetwork=True))
    assert all(spec["hostNetwork"] for spec in pod_specs(changed, TFJOB))
    assert not any("hostNetwork" in spec for spec in pod_specs(body, TFJOB))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"spec": None},
        {"spec": {"tfReplicaSpecs": None}},
        {"spec": {"tfReplicaSpecs": {"Worker": None}}},
        {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": 3}}}}},
        {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": {}}}}}}},
        {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [1, {"name": "x"}]}}}}}},
    ],
)
def test_what_is_not_as_it_should_be_is_left_to_whoever_checks_it(body: dict[str, Any]) -> None:
    assert list(training_containers(body, TFJOB)) == []
    assert with_edited_pods(body, TFJOB, lambda spec: None) == body


def test_a_pod_without_a_container_that_trains_has_none() -> None:
    assert training_container({"containers": [{"name": "main"}]}, TFJOB) is None
