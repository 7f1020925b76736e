"""What a server refuses, told with the lines of a file."""

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
def test_mistakes_that_we_find_ourselves_are_told_instead_of_the_servers_words(error: ApiError) -> None:
    (document,) = documents(JOB, file="job.yaml")
    assert rejection_text(document, error) == TOLD
    assert f"error: {explained_error([document, document], error)}" == f"{TOLD}\n{TOLD}"


def test_a_job_without_mistakes_was_refused_for_another_reason() -> None:
    (document,) = documents(JOB.replace("Police", "Policy"), file="job.yaml")
    error = refusal(BadRequest, 400)
    assert explained_error([document], error) is error
    assert rejection_text(document, error) == "Error from server (BadRequest): the server says no"


def test_who_may_not_is_not_told_of_mistakes() -> None:
    (document,) = documents(JOB, file="job.yaml")
    error = refusal(Forbidden, 403)
    assert explained_error([document], error) is error
