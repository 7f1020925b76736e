"""Builders of jobs: the result is what a person would write, and runs."""

from typing import Any

import pytest

import gangline
from gangline.api.codec.codec import Document, decode_document
from gangline.api.kubeflow.kinds import JOB_APIS
from gangline.cli.manifests.lint import check_text, framework_of
from gangline.jobs.defaults import problems
from gangline.sdk.build.jobs import Replica, build_job, replica_counts
from gangline.sdk.job import Job, job_kind_named


def one(count: int = 1, **more: Any) -> Replica:
    return Replica("image", ["python", "train.py"], replicas=count, **more)


BUILT = {
    "TFJob": gangline.tf_job("j", chief=one(), ps=one(2), worker=one(3), successPolicy="AllWorkers"),
    "PyTorchJob": gangline.pytorch_job("j", master=one(), worker=one(3), nprocPerNode="2"),
    "XGBoostJob": gangline.xgboost_job("j", master=one(), worker=one(2)),
    "MPIJob": gangline.mpi_job("j", launcher=one(), worker=one(2), slots=4),
    "MPIJob.v2beta1": gangline.mpi_job("j", launcher=one(), worker=one(2), slots=4, ssh=True),
    "PaddleJob": gangline.paddle_job("j", worker=one(2)),
    "JAXJob": gangline.jax_job("j", worker=one(2)),
}


@pytest.mark.parametrize("kind", JOB_APIS, ids=lambda kind: kind.scheme)
def test_what_is_built_has_no_mistakes(kind: Any) -> None:
    built = BUILT[kind.scheme]
    assert (built.kind, built.api_version) == (kind.kind, kind.model.API_VERSION)
    checked = check_text(built.to_yaml(), "built")
    assert (checked.jobs, checked.findings) == (1, ())
    framework = framework_of(kind.scheme)
    decoded = decode_document(Document(built.to_dict(), {}), kind.model)
    assert problems(framework, framework.default(decoded)) == ()


@pytest.mark.parametrize("built", BUILT.values(), ids=list(BUILT))
def test_yaml_goes_there_and_back(built: Job) -> None:
    assert Job.from_yaml(built.to_yaml()) == built
    assert Job.from_yaml(built.to_yaml()).replicas == built.replicas


def test_replicas_of_none_are_left_out() -> None:
    assert gangline.pytorch_job("j", master=one(), worker=one(0)).replicas == {"Master": 1}


def test_a_replica_has_what_was_asked_for() -> None:
    asked = one(
        2,
        resources={"CPU": 2, "memory": "4Gi", "gpu": 1},
        env={"A": 1},
        restart_policy="ExitCode",
        volumes={"/data": "claim", "/more": "claim"},
        template={"metadata": {"labels": {"x": "y"}}, "spec": {"nodeSelector": {"a": "b"}}},
    )
    spec = asked.spec(job_kind_named("PyTorchJob"))
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/more"]
    assert pod["volumes"] == [{"name": "data-0", "persistentVolumeClaim": {"claimName": "claim"}}]
    assert pod["nodeSelector"] == {"a": "b"}
    assert spec["template"]["metadata"] == {
        "labels": {"x": "y"},
        "annotations": {"sidecar.istio.io/inject": "false"},
    }
    assert (spec["replicas"], spec["restartPolicy"]) == (2, "ExitCode")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: Replica("x", "python train.py"), r'write its words, such as \["python", "train.py"\]'),
        (lambda: Replica("x", replicas=-1), "replicas: is -1; write 0 or more"),
        (lambda: Replica("x", resources=3), "resources: is 3; write a dict"),
        (lambda: gangline.jax_job("j", worker=one(0)), "no replicas; write at least one of Worker"),
        (
            lambda: build_job(job_kind_named("JAXJob"), "j", {"Chief": one()}),
            "JAXJob: has no replica type 'Chief'",
        ),
        (lambda: job_kind_named("Job"), "job_kind: is 'Job'; write one of TFJob, PyTorchJob"),
        (lambda: replica_counts(job_kind_named("MPIJob"), 2), "its launcher starts the workers"),
        (lambda: replica_counts(job_kind_named("TFJob"), 0), "0 members; write 1 or more"),
        (lambda: Job.from_yaml("- 1"), "the text holds no job"),
    ],
)
def test_mistakes_say_what_to_write(build: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build()


def test_teams_have_a_master_where_the_kind_has_one() -> None:
    assert replica_counts(job_kind_named("PyTorchJob"), 4) == {"Master": 1, "Worker": 3}
    assert replica_counts(job_kind_named("XGBoostJob"), 1) == {"Master": 1}
    assert replica_counts(job_kind_named("JAXJob"), 4) == {"Worker": 4}
