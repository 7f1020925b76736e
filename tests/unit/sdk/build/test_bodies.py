"""Conversion of jobs, dictionaries and models to JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.api.meta import ObjectMeta
from gangline.sdk.build.bodies import env_entries, job_body, plain_json, resource_requirements
from gangline.sdk.build.jobs import Replica, pytorch_job


class Model:
    """A model as in generated clients."""

    attribute_map = {"api_version": "apiVersion", "run_policy": "runPolicy", "spec": "spec"}

    def __init__(self, **fields: Any) -> None:
        self.api_version, self.run_policy, self.spec = (
            fields.get(name) for name in ("api_version", "run_policy", "spec")
        )


def test_models_of_generated_clients_have_the_names_of_the_wire_and_no_nulls() -> None:
    inner = Model(run_policy={"suspend": True})
    model = Model(api_version="v1", spec={"Worker": inner, "list": [inner, None]})
    assert job_body(model) == {
        "apiVersion": "v1",
        "spec": {
            "Worker": {"runPolicy": {"suspend": True}},
            "list": [{"runPolicy": {"suspend": True}}, None],
        },
    }


def test_structs_jobs_and_times_become_json() -> None:
    built = pytorch_job("j", master=Replica("x"))
    assert job_body(built) is built.to_dict()
    assert plain_json(ObjectMeta(name="x", labels={"a": "b"})) == {"name": "x", "labels": {"a": "b"}}
    assert plain_json(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00+00:00"


def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(ValueError, match="a job is a Job, a dict or a model of the Kubeflow SDK; this is list"):
        job_body([1])


def test_resources_and_variables_are_taken_as_kubernetes_has_them_too() -> None:
    assert resource_requirements({"limits": {"cpu": "1"}}) == {"limits": {"cpu": "1"}}
    assert resource_requirements(None) is None
    assert env_entries([{"name": "A", "value": "b"}]) == [{"name": "A", "value": "b"}]
    assert env_entries(None) == []
