"""Misspelled replica counts and the suggestions for them, without a request to a server."""

import pytest

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.main import run
from gangline.summary.actions import replica_type


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
