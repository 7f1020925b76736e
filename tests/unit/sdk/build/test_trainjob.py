"""Conversion to TrainJobs. The results were validated with Kubeflow's own models (kubeflow-trainer-api 2.3.0)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.base.errors import InputError
from gangline.cli.main import run
from gangline.sdk.build.jobs import Replica, jax_job, mpi_job, pytorch_job, tf_job
from gangline.sdk.build.trainjob import PATCH_MANAGER, to_trainjob

EXAMPLES = Path(__file__).parents[4] / "examples"


def one(count: int = 1, **more: Any) -> Replica:
    return Replica("image:1", ["python", "train.py"], replicas=count, **more)


def test_master_and_workers_are_nodes_of_one_trainer() -> None:
    job = pytorch_job(
        "bert",
        master=one(resources={"gpu": 1}, env={"A": "b"}),
        worker=one(3, resources={"gpu": 1}, env={"A": "b"}),
        nprocPerNode="2",
        namespace="team",
        labels={"kueue.x-k8s.io/queue-name": "q"},
        run_policy={"suspend": True, "activeDeadlineSeconds": 60},
    )
    body, notes = to_trainjob(job)
    assert notes == ()
    assert body["metadata"] == {
        "name": "bert",
        "namespace": "team",
        "labels": {"kueue.x-k8s.io/queue-name": "q"},
    }
    spec = body["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert spec["trainer"] == {
        "image": "image:1",
        "command": ["python", "train.py"],
        "env": [{"name": "A", "value": "b"}],
        "numNodes": 4,
        "resourcesPerNode": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
        "numProcPerNode": 2,
    }
    assert (spec["suspend"], spec["activeDeadlineSeconds"]) == (True, 60)


def test_what_is_the_runtimes_of_an_mpijob_of_v2beta1_is_noted() -> None:
    more = {"mpiImplementation": "Intel", "runLauncherAsWorker": True, "launcherCreationPolicy": "WaitForWorkersReady"}
    body, notes = to_trainjob(mpi_job("j", launcher=one(), worker=one(2), slots=2, ssh=True, **more))
    assert (body["spec"]["trainer"]["numNodes"], body["spec"]["trainer"]["numProcPerNode"]) == (2, 2)
    assert [note.partition(":")[0] for note in notes] == [f"spec.{field}" for field in more]


def test_what_pods_need_besides_becomes_a_patch_of_the_runtime() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"nodeSelector": {"gpu": "yes"}, "hostNetwork": True},
    }
    body, notes = to_trainjob(jax_job("j", worker=one(2, volumes={"/data": "claim"}, template=template)))
    (patch,) = body["spec"]["runtimePatches"]
    assert patch["manager"] == PATCH_MANAGER
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    inner = node["template"]["spec"]["template"]
    assert node["name"] == "node"
    assert inner["metadata"]["labels"] == {"a": "b"}
    assert inner["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert inner["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "claim"}
    assert inner["spec"]["containers"] == [{"name": "node", "volumeMounts": [{"name": "data-0", "mountPath": "/data"}]}]
    assert notes == ("spec.jaxReplicaSpecs.Worker.template.spec.hostNetwork: write it into the runtime",)


def test_a_launcher_says_what_workers_run() -> None:
    launcher = Replica("image:1", ["mpirun", "train"])
    body, _ = to_trainjob(mpi_job("m", launcher=launcher, worker=one(3), slots=4))
    trainer = body["spec"]["trainer"]
    assert (trainer["command"], trainer["numNodes"], trainer["numProcPerNode"]) == (["mpirun", "train"], 3, 4)


def test_what_does_not_come_along_is_told_field_by_field() -> None:
    job = pytorch_job(
        "j",
        master=one(restart_policy="ExitCode"),
        run_policy={
            "cleanPodPolicy": "All",
            "backoffLimit": 3,
            "schedulingPolicy": {},
            "ttlSecondsAfterFinished": 1,
        },
        nprocPerNode="auto",
        elasticPolicy={"minReplicas": 1},
    )
    fields = [note.split(":")[0] for note in to_trainjob(job).notes]
    assert fields == [
        "spec.nprocPerNode",
        "spec.runPolicy.cleanPodPolicy",
        "spec.runPolicy.ttlSecondsAfterFinished",
        "spec.runPolicy.backoffLimit",
        "spec.runPolicy.schedulingPolicy",
        "spec.elasticPolicy",
        "spec.pytorchReplicaSpecs.Master.restartPolicy",
    ]


def test_a_team_of_different_templates_is_refused() -> None:
    other = Replica("image:2", ["python", "serve.py"])
    with pytest.raises(InputError, match=r"spec\.tfReplicaSpecs\.Worker\.template: is another than that of PS"):
        to_trainjob(tf_job("t", ps=other, worker=one()), runtime="mine")


def test_a_kind_without_runtime_needs_one_to_be_named() -> None:
    with pytest.raises(InputError, match="TFJob t: Trainer has no runtime for it; write --runtime"):
        to_trainjob(tf_job("t", worker=one()))
    assert to_trainjob(tf_job("t", worker=one()), runtime="mine").body["spec"]["runtimeRef"]["name"] == "mine"


def test_the_command_prints_yaml_and_notes_apart(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / name) for name in ("pytorchjob-numpy.yaml", "jaxjob-numpy.yaml")]
    assert run(["convert", *files]) == 0
    printed = capsys.readouterr()
    assert [body["kind"] for body in yaml.safe_load_all(printed.out)] == ["TrainJob", "TrainJob"]
    assert all(line.startswith("note: ") for line in printed.err.splitlines())


def test_a_job_that_cannot_be_converted_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(EXAMPLES / "tfjob-numpy.yaml")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {EXAMPLES / 'tfjob-numpy.yaml'}: TFJob linear: Trainer has no runtime")
