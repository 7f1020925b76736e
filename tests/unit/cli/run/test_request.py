"""Several jobs in one run."""

from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.follow.log_sources import FileLogSource
from gangline.cli.manifests.from_command import CommandJob, job_from_command
from gangline.cli.manifests.processes import ProcessCount
from gangline.cli.run.request import RunJob, check_unique_names, with_common_folder
from gangline.sdk.build.pod_templates import training_containers


def job(name: str, folder: str = "/here", kind: JobKind = TFJOB, **metadata: str) -> RunJob:
    body: JSON = job_from_command(CommandJob(kind.kind, ("true",), ProcessCount(2, 2)))[1]
    body["metadata"] = {"name": name, **metadata}
    return RunJob(kind, body, Path(folder))


def test_two_jobs_of_one_name_are_rejected_even_of_different_kinds() -> None:
    with pytest.raises(InputError, match="pytorchjob/a: another job of this run is called a"):
        check_unique_names([job("a"), job("b"), job("a", kind=PYTORCHJOB)])
    with pytest.raises(InputError):
        check_unique_names([job("a"), job("a", namespace="default")])
    check_unique_names([job("a"), job("a", namespace="other"), job("b")])


def test_jobs_of_one_folder_are_unchanged() -> None:
    jobs = [job("a"), job("b")]
    assert with_common_folder(jobs) == (Path("/here"), jobs)


def test_a_job_of_another_folder_starts_in_its_own() -> None:
    away = job("c", "/cash/$(HOME)")
    own = job("d", "/other")
    for container in training_containers(own.body, own.kind):
        container["workingDir"] = "sub"
    folder, (first, second, third) = with_common_folder([job("a"), away, own])
    assert folder == Path("/here")
    assert not any("workingDir" in each for each in training_containers(first.body, first.kind))
    # A dollar in a path is escaped.
    assert [each["workingDir"] for each in training_containers(second.body, second.kind)] == ["/cash/$$(HOME)"]
    assert [each["workingDir"] for each in training_containers(third.body, third.kind)] == ["sub"]
    assert not any("workingDir" in each for each in training_containers(away.body, away.kind))


def test_pods_of_a_job_with_a_longer_name_are_not_members(tmp_path: Path) -> None:
    short = FileLogSource(tmp_path, Key("default", "a"), ["a", "a-b", "ab"])
    long = FileLogSource(tmp_path, Key("default", "a-b"), ["a", "a-b", "ab"])
    pods = ["a-worker-0", "a-b-worker-0", "ab-worker-0"]
    assert [pod for pod in pods if short._is_member(pod)] == ["a-worker-0"]
    assert [pod for pod in pods if long._is_member(pod)] == ["a-b-worker-0"]
