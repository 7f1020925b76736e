"""Objects as kube-apiserver writes them back."""

from typing import Any

import pytest

from gangline.apiserver.kinds.machinery.canonical import canonical_micro_time, canonical_time, canonicalizer

JSON = dict[str, Any]


def canonical(struct: str, obj: JSON) -> JSON:
    canonicalizer(struct).canonicalize(obj)
    return obj


def test_zero_values_go_where_nobody_can_report_them_from_absent() -> None:
    container: JSON = {"name": "c", "env": [], "args": None, "stdin": False, "workingDir": "", "resources": None}
    assert canonical("core.v1.Container", container) == {"name": "c", "resources": {}}


def test_zero_values_stay_where_absent_means_something_else() -> None:
    spec = {"containers": [], "terminationGracePeriodSeconds": 0, "enableServiceLinks": False, "affinity": {}}
    assert canonical("core.v1.PodSpec", spec) == {
        "containers": None,
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": False,
        "affinity": {},
    }


def test_what_is_always_written_appears() -> None:
    condition = {"type": "Ready", "status": "True"}
    assert canonical("core.v1.PodCondition", condition) == {
        "type": "Ready",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": None,
    }


def test_a_time_nobody_set_is_null_or_gone() -> None:
    assert canonical("core.v1.ContainerStateRunning", {}) == {"startedAt": None}
    assert canonical("coordination.v1.Lease", {"metadata": {"creationTimestamp": None}}) == {"metadata": {}, "spec": {}}


def test_managed_fields_are_left_alone() -> None:
    entry: JSON = {"manager": "", "fieldsV1": {"f:data": {}}, "time": None}
    assert canonical("core.v1.ConfigMap", {"metadata": {"managedFields": [entry]}}) == {
        "metadata": {"managedFields": [{"manager": "", "fieldsV1": {"f:data": {}}, "time": None}]}
    }


def test_a_struct_has_one_shape_wherever_it_is() -> None:
    assert canonicalizer("batch.v1.JobSpec").field_canonicalizer("template").field_canonicalizer(
        "spec"
    ) is canonicalizer("core.v1.PodSpec")
    assert canonicalizer("core.v1.EndpointPort") is not canonicalizer("discovery.v1.EndpointPort")


def test_no_such_struct_is_a_lookup_error() -> None:
    with pytest.raises(LookupError):
        canonicalizer("core.v1.Nonsense")


def test_unknown_fields_go() -> None:
    assert canonical("core.v1.EnvVar", {"name": "A", "nope": 1}) == {"name": "A"}


def test_nulls_in_lists_and_maps_become_zeros() -> None:
    assert canonical("core.v1.Container", {"name": "c", "args": ["a", None]})["args"] == ["a", ""]
    assert canonical("core.v1.ConfigMap", {"data": {"a": None}})["data"] == {"a": ""}
    assert canonical("core.v1.PodSpec", {"containers": [None]})["containers"] == [{"name": "", "resources": {}}]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01T01:00:00+01:00", "2024-01-01T00:00:00Z"),
        ("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z"),
        ("no time", "no time"),
    ],
)
def test_times_are_whole_seconds_in_utc(text: str, canonical: str) -> None:
    assert canonical_time(text) == canonical


def test_micro_times_have_six_digits() -> None:
    assert canonical_micro_time("2024-01-01T01:00:00.500000+01:00") == "2024-01-01T00:00:00.500000Z"
