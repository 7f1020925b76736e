"""From the options of a run to its jobs."""

from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.run.request import JobSource
from gangline.cli.run.run import read_jobs

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {{name: small}}
spec:
  tfReplicaSpecs:
    Worker: {{{policy}template: {{spec: {{containers: [{{name: tensorflow, image: x, command: [a]}}]}}}}}}
"""


def source(folder: Path, policy: str, max_restarts: int) -> JobSource:
    file = folder / "job.yaml"
    file.write_text(JOB.format(policy=policy))
    return JobSource(files=(file,), max_restarts=max_restarts)


def test_max_restarts_is_the_backoff_limit_of_a_file(tmp_path: Path) -> None:
    (job,) = read_jobs(source(tmp_path, "restartPolicy: OnFailure, ", 2), ServerOptions())
    assert job.body["spec"]["runPolicy"] == {"backoffLimit": 2}


@pytest.mark.parametrize("policy", ["", "restartPolicy: Never, "])
def test_max_restarts_of_a_job_that_never_restarts_is_an_error(tmp_path: Path, policy: str) -> None:
    with pytest.raises(InputError) as raised:
        read_jobs(source(tmp_path, policy, 2), ServerOptions())
    assert "Worker.restartPolicy: is Never, so that --max-restarts does nothing; write OnFailure" in str(raised.value)
    (job,) = read_jobs(source(tmp_path, policy, 0), ServerOptions())
    assert job.body["spec"]["runPolicy"] == {"backoffLimit": 0}


@pytest.mark.parametrize("nproc", ["auto", "cpu", "gpu"])
def test_a_cluster_does_not_have_as_many_processes_as_this_machine(nproc: str) -> None:
    command = JobSource(command=("true",), nproc=nproc, kind="TFJob", image="x")
    with pytest.raises(InputError, match=f"--nproc {nproc}: is about this machine; with --context write a number"):
        read_jobs(command, ServerOptions(context="prod"))
