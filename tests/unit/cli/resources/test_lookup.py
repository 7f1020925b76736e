"""What people call kinds and objects."""

import pytest

from gangline.api.kubeflow.kinds import KINDS
from gangline.base.errors import InputError
from gangline.cli.resources.lookup import JOB_KINDS, Target, job_kinds, known, shown_name, targets
from gangline.cli.resources.replicas import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE, TRAINING, Replica, replica


def test_the_kinds_known_by_heart_are_those_of_the_api() -> None:
    ours = [(kind.resource.api_version, kind.kind, kind.plural) for kind in KINDS]
    assert [(kind.api_version, kind.kind, kind.plural) for kind in JOB_KINDS] == ours


def test_the_labels_and_containers_known_by_heart_are_those_of_the_api() -> None:
    from gangline.api.kubeflow import training

    assert (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX) == (
        training.JOB_NAME,
        training.REPLICA_TYPE,
        training.REPLICA_INDEX,
    )
    assert {kind.container for kind in KINDS} == set(TRAINING)


@pytest.mark.parametrize("text", ["tfjob", "tfjobs", "TFJob", "tfjobs.kubeflow.org", "tfjob.kubeflow.org"])
def test_a_kind_has_many_names(text: str) -> None:
    assert known(text) is JOB_KINDS[0]


def test_short_names_work_and_batch_jobs_are_not_ours() -> None:
    assert shown_name(known("po") or JOB_KINDS[0], "x") == "pod/x"
    assert known("jobs.batch") is None


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("jobs",), [Target("jobs")]),
        (("pods", "a", "b"), [Target("pods", "a"), Target("pods", "b")]),
        (("pods,svc",), [Target("pods"), Target("svc")]),
        (("tfjob/a", "pod/b"), [Target("tfjob", "a"), Target("pod", "b")]),
    ],
)
def test_words_name_kinds_and_objects(words: tuple[str, ...], found: list[Target]) -> None:
    assert targets(words) == found


@pytest.mark.parametrize("words", [("tfjob/a", "b"), ("tfjob/",), ("/a",), ("a/b/c",), (",",)])
def test_mixed_or_broken_words_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        targets(words)


def test_a_bare_word_is_a_job_of_any_kind() -> None:
    assert job_kinds("linear") == (JOB_KINDS, "linear")
    assert job_kinds("job/linear") == (JOB_KINDS, "linear")
    assert job_kinds("mpijob/x") == ((JOB_KINDS[3],), "x")
    with pytest.raises(InputError, match="no kind of training job"):
        job_kinds("pod/x")


@pytest.mark.parametrize(
    ("text", "found"),
    [("worker", Replica("worker")), ("Worker/3", Replica("worker", 3)), ("ps-0", Replica("ps", 0))],
)
def test_a_replica_is_named_by_type_and_number(text: str, found: Replica) -> None:
    assert replica(text) == found


def test_what_is_no_replica_is_refused() -> None:
    with pytest.raises(InputError, match="worker/0"):
        replica("3")


def test_a_launcher_has_no_number() -> None:
    pod = {"metadata": {"name": "j-launcher", "labels": {REPLICA_TYPE: "launcher"}}}
    assert Replica("launcher", 0).has(pod)
    assert not Replica("launcher", 1).has(pod)
