"""Checks of a job before a run on this machine."""

import pytest

from gangline.api.codec.documents import Document, documents
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.quantity import parse_resources
from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import CommandJob, job_from_command
from gangline.cli.manifests.local_checks import LocalPlane, check_local_job
from gangline.cli.manifests.processes import ProcessCount

PLANE = LocalPlane(parse_resources({"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"}))
JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: net}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: REPLICAS
      template:
        spec:
          containers:
            - {name: pytorch, image: x, resources: {limits: {RESOURCES}}}
"""


def refusal(resources: str = "", replicas: str = "1") -> str:
    text = JOB.replace("RESOURCES", resources).replace("REPLICAS", replicas)
    (document,) = documents(text, file="job.yaml")
    with pytest.raises(InputError) as raised:
        check_local_job(document, PYTORCHJOB, PLANE)
    return str(raised.value)


def test_what_fits_is_no_error() -> None:
    for resources in ("", "cpu: 8", "memory: 16Gi, nvidia.com/gpu: 2"):
        (document,) = documents(JOB.replace("RESOURCES", resources).replace("REPLICAS", "1"), file="job.yaml")
        check_local_job(document, PYTORCHJOB, PLANE)


def test_no_replicas_is_one_message() -> None:
    assert refusal(replicas="0") == (
        "job.yaml:7: spec.pytorchReplicaSpecs.Master.replicas: is 0; write 1 or more\n       write:   replicas: 1"
    )


def test_a_short_name_of_a_resource_is_one_message() -> None:
    assert refusal("gpu: 1") == (
        "job.yaml:11: spec.pytorchReplicaSpecs.Master.template.spec.containers[0].resources.limits.gpu: "
        "write its full name, nvidia.com/gpu\n       write:   nvidia.com/gpu: 1"
    )


def test_a_misspelt_field_is_one_message() -> None:
    text = JOB.replace("RESOURCES", "").replace("REPLICAS", "1").replace("image: x", "imag: x")
    (document,) = documents(text, file="job.yaml")
    with pytest.raises(InputError) as raised:
        check_local_job(document, PYTORCHJOB, PLANE)
    assert str(raised.value).splitlines() == [
        "job.yaml:11: spec.pytorchReplicaSpecs.Master.template.spec.containers[0].imag: unknown field",
        "       write:   image: x",
    ]


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("nvidia.com/gpu: 3", "a replica needs nvidia.com/gpu 3, and this machine has 2; "),
        ("amd.com/gpu: 1", "a replica needs amd.com/gpu 1, and this machine has none; "),
        ("memory: 17Gi", "a replica needs memory 17Gi, and this machine has 16Gi; "),
    ],
)
def test_a_replica_that_is_larger_than_the_machine_is_an_error(resources: str, message: str) -> None:
    assert message in refusal(resources)
    assert "pretend that it has some: --capacity" in refusal(resources)


def test_a_command_is_told_about_its_option() -> None:
    limits = {"amd.com/gpu": "1"}
    _, body = job_from_command(CommandJob("PyTorchJob", ("true",), ProcessCount(1, 1), limits=limits))
    with pytest.raises(InputError, match=r"^--limit amd.com/gpu=1: this machine has none; leave it out"):
        check_local_job(Document(body, {}), PYTORCHJOB, PLANE)
