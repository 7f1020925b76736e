"""Misspelled replica counts and the suggestions for them, without a request to a server."""

import pytest

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.main import run
from gangline.summary.actions import elastic_refusal, replica_type


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--replicas worker=2", "write --replicas 2 --type worker"),
        ("--replicas Worker:2", "write --replicas 2 --type Worker"),
        ("--replicas ps/1", "write --replicas 1 --type ps"),
        ("--replicas 2worker", "write --replicas 2 --type worker"),
        ("--replicas worker=2,ps=1", "--replicas 2 --type worker, then --replicas 1 --type ps"),
        ("--replicas two", "write --replicas 2, or --replicas 2 --type worker"),
        ("--replicas worker=two", "write --replicas 2, or --replicas 2 --type worker"),
        ("--replicas 2.5", "write --replicas 2, or"),
        ("--replicas=+2", "write how many there should be in all"),
        ("--replicas=-1", "write how many there should be in all"),
        ("worker=2", "write --replicas 2 --type worker"),
        ("2", "write --replicas 2"),
        ("--replicas 2 worker", "a replica type with --type"),
        ("other --replicas 2", "name one job"),
        ("", "write --replicas 2, or --replicas 2 --type worker"),
    ],
)
def test_a_misspelled_count_gets_a_suggestion(words: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scale", "mnist", *words.split()]) == 1
    output = capsys.readouterr().err
    # One line, and nothing about a server: the count is checked before a server is looked for.
    assert output.startswith("error: ")
    assert output.count("\n") == 1
    assert expected in output


def test_a_type_is_found_in_any_case() -> None:
    specs: dict[str, JSON] = {"PS": {}, "Worker": {}}
    assert replica_type(specs, "", "mnist") == "Worker"
    assert replica_type(specs, "ps", "mnist") == "PS"
    with pytest.raises(InputError, match="mnist has PS, Worker; write one of them"):
        replica_type(specs, "chief", "mnist")


@pytest.mark.parametrize(
    ("policy", "count", "expected"),
    [
        ({"minReplicas": 1, "maxReplicas": 3}, 3, ""),
        (
            {"minReplicas": 1, "maxReplicas": 3},
            4,
            "may have 1 to 3 of Worker, not 4; the bound is spec.elasticPolicy.maxReplicas",
        ),
        (
            {"minReplicas": 2, "maxReplicas": 3},
            1,
            "may have 2 to 3 of Worker, not 1; the bound is spec.elasticPolicy.minReplicas",
        ),
        ({"maxReplicas": 2}, 3, "may have 2 of Worker, not 3; the bound is spec.elasticPolicy.maxReplicas"),
        ({}, 7, ""),
        (None, 7, ""),
    ],
)
def test_an_elastic_job_keeps_to_its_bounds(policy: JSON | None, count: int, expected: str) -> None:
    spec: JSON = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}, "elasticPolicy": policy}
    assert elastic_refusal(spec, "Worker", count) == expected
    # Of a PaddleJob the policy has no effect, as in v1; a master is no worker.
    assert not elastic_refusal({"paddleReplicaSpecs": {}, "elasticPolicy": policy}, "Worker", count)
    assert not elastic_refusal(spec, "Master", count)
