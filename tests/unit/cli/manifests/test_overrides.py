"""`--set`: values overridden on the command line."""

from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.cli.manifests.overrides import with_overrides


def job() -> dict[str, Any]:
    containers = [{"name": "tensorflow", "args": ["a", "b"]}]
    worker = {"replicas": 2, "template": {"spec": {"containers": containers}}}
    return {"kind": "TFJob", "metadata": {"name": "x"}, "spec": {"tfReplicaSpecs": {"Worker": worker}}}


WORKER = "spec.tfReplicaSpecs.Worker"
CONTAINER = f"{WORKER}.template.spec.containers.0"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ('"5"', "5"),
        ("0.1", 0.1),
        ("true", True),
        ("text", "text"),
        ("[a, 1]", ["a", 1]),
        ("{a: b}", {"a": "b"}),
        ("a=b", "a=b"),
        ("", None),
    ],
)
def test_values_are_parsed_as_yaml(text: str, value: object) -> None:
    changed = with_overrides(job(), [f"{WORKER}.replicas={text}"])
    assert changed["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == value


def test_list_items_are_set_by_index_and_missing_maps_are_created() -> None:
    changed = with_overrides(job(), [f"{CONTAINER}.args.1=c", "spec.runPolicy.backoffLimit=2"])
    containers = changed["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert containers == [{"name": "tensorflow", "args": ["a", "c"]}]
    assert changed["spec"]["runPolicy"] == {"backoffLimit": 2}


def test_a_dot_in_a_name_is_written_with_a_backslash() -> None:
    changed = with_overrides(job(), [r"metadata.labels.example\.dev/team=a"])
    assert changed["metadata"]["labels"] == {"example.dev/team": "a"}


def test_later_settings_win_and_the_original_job_is_unchanged() -> None:
    original = job()
    changed = with_overrides(original, ["metadata.name=a", "metadata.name=b"])
    assert (changed["metadata"]["name"], original) == ("b", job())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("replicas", "--set replicas: expected path=value"),
        ("=5", "--set =5: expected path=value"),
        ("lr=5", "--set lr=5: a path begins with spec. or metadata."),
        ("kind=PyTorchJob", "a path begins with"),
        ("spec=5", "a path begins with"),
        (f"{WORKER}.replicas.x=5", f"{WORKER}.replicas is 2, which has no fields"),
        (f"{CONTAINER}.args.2=5", "args is a list; its items are 0 to 1, not 2"),
        (f"{CONTAINER}.args.first=5", "args is a list; its items are 0 to 1, not first"),
        ("spec.x=[", "the value is not YAML; quote it"),
        ("spec.x=a: b", "the value is not YAML; quote it"),
    ],
)
def test_an_invalid_setting_is_an_error_with_the_reason(setting: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        with_overrides(job(), [setting])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "setting",
    ["spec.x.resources.limits.gpu=2", r"spec.x.resources.limits.nvidia\.com/gpu=2", "spec.x.resources.limits={gpu: 2}"],
)
def test_gpu_is_the_full_name_of_the_resource(setting: str) -> None:
    changed = with_overrides({"spec": {}}, [setting])
    assert changed["spec"]["x"]["resources"]["limits"] == {"nvidia.com/gpu": 2}


def test_gpu_elsewhere_is_a_word_like_any_other() -> None:
    assert with_overrides({"spec": {}}, ["spec.gpu=2"]) == {"spec": {"gpu": 2}}
