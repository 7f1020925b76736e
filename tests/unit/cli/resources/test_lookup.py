"""Kinds, objects and replicas by the words of a command line."""

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.base.errors import InputError
from gangline.cli.resources.lookup import ResourceArg, builtin_resource, no_such_job, parse_job_arg, resource_args
from gangline.summary.objects import JOB_KINDS, resource_name
from gangline.summary.replicas import (
    JOB_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    TRAINING_CONTAINERS,
    ReplicaSelector,
    replica_selector,
)


def test_the_built_in_job_kinds_are_those_of_the_api() -> None:
    ours = [(kind.resource.api_version, kind.kind, kind.plural) for kind in TRAINING_KINDS]
    assert [(kind.api_version, kind.kind, kind.plural) for kind in JOB_KINDS] == ours


def test_the_built_in_labels_and_containers_are_those_of_the_api() -> None:
    from gangline.api.kubeflow import training

    assert (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX) == (
        training.JOB_NAME,
        training.REPLICA_TYPE,
        training.REPLICA_INDEX,
    )
    assert {kind.container for kind in TRAINING_KINDS} == set(TRAINING_CONTAINERS)


@pytest.mark.parametrize("text", ["tfjob", "tfjobs", "TFJob", "tfjobs.kubeflow.org", "tfjob.kubeflow.org"])
def test_a_kind_has_many_names(text: str) -> None:
    assert builtin_resource(text) is JOB_KINDS[0]


def test_short_names_work_and_batch_jobs_are_not_ours() -> None:
    assert resource_name(builtin_resource("po") or JOB_KINDS[0], "x") == "pod/x"
    assert builtin_resource("jobs.batch") is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("jobs",), [ResourceArg("jobs")]),
        (("pods", "a", "b"), [ResourceArg("pods", "a"), ResourceArg("pods", "b")]),
        (("pods,svc",), [ResourceArg("pods"), ResourceArg("svc")]),
        (("tfjob/a", "pod/b"), [ResourceArg("tfjob", "a"), ResourceArg("pod", "b")]),
    ],
)
def test_words_name_kinds_and_objects(words: tuple[str, ...], expected: list[ResourceArg]) -> None:
    assert resource_args(words) == expected


@pytest.mark.parametrize("words", [("tfjob/a", "b"), ("tfjob/",), ("/a",), ("a/b/c",), (",",)])
def test_mixed_or_broken_words_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        resource_args(words)


def test_a_word_without_a_kind_is_a_job_of_any_kind() -> None:
    assert parse_job_arg("linear") == (JOB_KINDS, "linear")
    assert parse_job_arg("job/linear") == (JOB_KINDS, "linear")
    assert parse_job_arg("mpijob/x") == ((JOB_KINDS[3],), "x")
    with pytest.raises(InputError, match="no kind of training job"):
        parse_job_arg("pod/x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker", ReplicaSelector("worker")),
        ("Worker/3", ReplicaSelector("worker", 3)),
        ("ps-0", ReplicaSelector("ps", 0)),
    ],
)
def test_a_replica_is_selected_by_type_and_index(text: str, expected: ReplicaSelector) -> None:
    assert replica_selector(text) == expected


def test_an_invalid_replica_is_refused() -> None:
    with pytest.raises(InputError, match="worker/0"):
        replica_selector("3")


def test_a_launcher_has_no_index() -> None:
    pod = {"metadata": {"name": "j-launcher", "labels": {REPLICA_TYPE: "launcher"}}}
    assert ReplicaSelector("launcher", 0).matches(pod)
    assert not ReplicaSelector("launcher", 1).matches(pod)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (None, ""),
        ([], "; there is none at all: in other namespaces look with -A, start one with gangline run"),
        (["linear", "bert"], "; did you mean linear?"),
        (["bert", "t5"], "; there is bert, t5"),
        (list("abcdefg"), "; there is a, b, c, d, e and 2 more"),
    ],
)
def test_a_job_that_does_not_exist_is_reported_with_those_that_do(others: list[str] | None, expected: str) -> None:
    assert str(no_such_job("ns", "linaer", others)) == f'no training job "linaer" in namespace "ns"{expected}'
