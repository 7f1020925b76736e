"""Several jobs in one run."""

from pathlib import Path

import pytest

from gangline.api.kubeflow.pytorchjob import PYTORCHJOB
from gangline.api.kubeflow.tfjob import TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.follow.log_sources import FileLines
from gangline.cli.manifests.from_command import scripted
from gangline.cli.run.request import Job, check_names, gathered
from gangline.sdk.build.pod_templates import trainers


def job(name: str, folder: str = "/here", facts: JobKind = TFJOB, **metadata: str) -> Job:
    body: JSON = scripted(facts.kind, ["true"], 2)[1]
    body["metadata"] = {"name": name, **metadata}
    return Job(facts, body, Path(folder))


def test_two_jobs_of_one_name_are_refused_even_of_different_kinds() -> None:
    with pytest.raises(InputError, match="pytorchjob/a: another job of this run is called a"):
        check_names([job("a"), job("b"), job("a", facts=PYTORCHJOB)])
    with pytest.raises(InputError):
        check_names([job("a"), job("a", namespace="default")])
    check_names([job("a"), job("a", namespace="other"), job("b")])


def test_jobs_of_one_folder_are_left_as_they_are() -> None:
    jobs = [job("a"), job("b")]
    assert gathered(jobs) == (Path("/here"), jobs)


def test_a_job_of_another_folder_starts_in_its_own() -> None:
    away = job("c", "/cash/$(HOME)")
    own = job("d", "/other")
    for container in trainers(own.body, own.facts):
        container["workingDir"] = "sub"
    folder, (first, second, third) = gathered([job("a"), away, own])
    assert folder == Path("/here")
    assert not any("workingDir" in each for each in trainers(first.body, first.facts))
    # A dollar in a path is a dollar.
    assert [each["workingDir"] for each in trainers(second.body, second.facts)] == ["/cash/$$(HOME)"]
    assert [each["workingDir"] for each in trainers(third.body, third.facts)] == ["sub"]
    assert not any("workingDir" in each for each in trainers(away.body, away.facts))


def test_pods_of_a_job_whose_name_begins_alike_are_told_apart(tmp_path: Path) -> None:
    short = FileLines(tmp_path, Key("default", "a"), ["a", "a-b", "ab"])
    long = FileLines(tmp_path, Key("default", "a-b"), ["a", "a-b", "ab"])
    pods = ["a-worker-0", "a-b-worker-0", "ab-worker-0"]
    assert [pod for pod in pods if short._is_ours(pod)] == ["a-worker-0"]
    assert [pod for pod in pods if long._is_ours(pod)] == ["a-b-worker-0"]
