"""Legacy labels, by which the SDKs of earlier operators find pods."""

from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.framework import Framework
from gangline.jobs.plan.actions import Create
from gangline.jobs.site import Site
from gangline.testing.builders import make_job
from support.builders.observed_jobs import created_body, job_plan

OLD = Site(legacy_labels=True)


def labels(framework: Framework[Any], site: Site, pod: str, **replicas: Any) -> dict[str, str]:
    """The labels of a pod of a new job."""
    job: dict[str, str] = created_body(job_plan(framework, make_job(framework.facts, **replicas), site=site), pod)[
        "metadata"
    ]["labels"]
    return job


def added(framework: Framework[Any], pod: str, **replicas: Any) -> dict[str, str]:
    """The labels that `legacy_labels` adds. It removes none."""
    before = labels(framework, Site(), pod, **replicas)
    after = labels(framework, OLD, pod, **replicas)
    assert before.items() <= after.items()
    return {label: after[label] for label in after.keys() - before.keys()}


def test_the_tfjob_sdk_finds_its_pods() -> None:
    assert added(TensorFlow(), "job-worker-1", chief=1, worker=2) == {
        "group-name": "kubeflow.org",
        "controller-name": "tf-operator",
        "job-name": "job",
        "replica-type": "worker",
        "replica-index": "1",
        "tf-job-name": "job",
        "tf-replica-type": "worker",
        "tf-replica-index": "1",
    }
    assert added(TensorFlow(), "job-chief-0", chief=1, worker=2)["job-role"] == "master"


def test_the_pytorchjob_sdk_finds_its_pods() -> None:
    found = added(PyTorch(), "job-master-0", master=1)
    assert found["controller-name"] == "pytorch-operator"
    assert found["job-role"] == "master"
    assert (found["pytorch-job-name"], found["pytorch-replica-type"]) == ("job", "master")
    assert found["pytorch-replica-index"] == "0"


def test_other_kinds_have_the_names_that_all_shared() -> None:
    assert added(Jax(), "job-worker-1", worker=2) == {
        "group-name": "kubeflow.org",
        "controller-name": "jaxjob-controller",
        "job-name": "job",
        "replica-type": "worker",
        "replica-index": "1",
    }


def test_a_launcher_has_no_index() -> None:
    assert "replica-index" not in added(Mpi(), "job-launcher", launcher=1)


@pytest.mark.parametrize("site", [Site(), OLD])
def test_services_select_by_todays_labels_alone(site: Site) -> None:
    plan = job_plan(TensorFlow(), make_job(TensorFlow().facts, worker=1), services=(), site=site)
    made: list[JSON] = [
        action.body
        for stage in plan.stages
        for action in stage
        if isinstance(action, Create) and action.resource == "services"
    ]
    (service,) = made
    chosen = service["spec"]["selector"]
    assert chosen
    assert all(label.startswith("training.kubeflow.org/") for label in chosen)


def test_a_label_of_the_template_wins() -> None:
    framework = TensorFlow()
    job = make_job(framework.facts, worker=1)
    framework.replicas(job)["Worker"].template["metadata"] = {"labels": {"job-name": "mine"}}
    labels = created_body(job_plan(framework, job, site=OLD), "job-worker-0")["metadata"]["labels"]
    assert (labels["job-name"], labels["tf-job-name"]) == ("mine", "job")
