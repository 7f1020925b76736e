"""A server's errors with the lines of a file."""

import pytest

from gangline.api.codec.codec import documents
from gangline.cli.manifests.server_errors import explained_error, rejection_text
from gangline.kube.errors import ApiError, BadRequest, Forbidden, Invalid, Status

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: small}
spec:
  tfReplicaSpecs:
    Worker:
      restartPolice: Never
      template: {spec: {containers: [{name: tensorflow, image: none}]}}
"""
TOLD = """\
error: job.yaml:7: spec.tfReplicaSpecs.Worker.restartPolice: unknown field
       write:   restartPolicy: Never"""


def refusal(kind: type[ApiError], code: int) -> ApiError:
    return kind(Status(status="Failure", message="the server says no", reason=kind.__name__, code=code))


@pytest.mark.parametrize("error", [refusal(BadRequest, 400), refusal(Invalid, 422)], ids=["400", "422"])
def test_our_own_findings_replace_the_servers_error(error: ApiError) -> None:
    (document,) = documents(JOB, file="job.yaml")
    assert rejection_text(document, error) == TOLD
    assert f"error: {explained_error([document, document], error)}" == f"{TOLD}\n{TOLD}"


def test_a_job_without_findings_keeps_the_servers_error() -> None:
    (document,) = documents(JOB.replace("Police", "Policy"), file="job.yaml")
    error = refusal(BadRequest, 400)
    assert explained_error([document], error) is error
    assert rejection_text(document, error) == "Error from server (BadRequest): the server says no"


def test_a_forbidden_request_is_not_linted() -> None:
    (document,) = documents(JOB, file="job.yaml")
    error = refusal(Forbidden, 403)
    assert explained_error([document], error) is error
