"""Metadata of any kind."""

from typing import Any

import pytest

from gangline.apiserver.kinds.machinery import formats, metadata

JSON = dict[str, Any]


def problem_texts(meta: JSON) -> list[str]:
    return [
        str(problem) for problem in metadata.validate_object_meta(meta, formats.dns_subdomain_errors, namespaced=True)
    ]


def valid_metadata(**more: Any) -> JSON:
    return {"name": "a", "namespace": "n", **more}


def test_good_metadata_has_no_problems() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    meta = valid_metadata(
        labels={"a.io/b": "", "c": "D_e.f"},
        annotations={"UPPER.io/X": "any {\n}"},
        finalizers=["a.io/b"],
        ownerReferences=[owner],
        managedFields=[{"operation": "Apply", "fieldsType": "FieldsV1", "manager": "m"}],
    )
    assert problem_texts(meta) == []


@pytest.mark.parametrize(
    ("meta", "field"),
    [
        ({"namespace": "n"}, "metadata.name"),
        ({"name": "A", "namespace": "n"}, "metadata.name"),
        ({"name": "a"}, "metadata.namespace"),
        (valid_metadata(generateName="A_b-"), "metadata.generateName"),
        (valid_metadata(labels={"a b": "c"}), "metadata.labels"),
        (valid_metadata(labels={"a": "b c"}), "metadata.labels"),
        (valid_metadata(annotations={"a b": "c"}), "metadata.annotations"),
        (valid_metadata(annotations={"a": "x" * 262144}), "metadata.annotations"),
        (valid_metadata(finalizers=["orphan", "foregroundDeletion"]), "metadata.finalizers"),
        (
            valid_metadata(ownerReferences=[{"apiVersion": "v1", "kind": "P", "name": "p"}]),
            "metadata.ownerReferences.uid",
        ),
        (valid_metadata(managedFields=[{"operation": "Guess"}]), "metadata.managedFields[0].operation"),
    ],
)
def test_problem_names_its_field(meta: JSON, field: str) -> None:
    [problem] = metadata.validate_object_meta(meta, formats.dns_subdomain_errors, namespaced=True)
    assert problem.field == field


def test_generated_name_may_end_with_a_dash() -> None:
    assert problem_texts(valid_metadata(generateName="job-")) == []


def test_annotations_are_counted_in_bytes() -> None:
    [problem] = metadata.validate_annotations({"a": "é" * 131072}, "metadata.annotations")
    assert problem.message == "Too long: may not be more than 262144 bytes"


def test_cluster_objects_have_no_namespace() -> None:
    [problem] = metadata.validate_object_meta(valid_metadata(), formats.dns_subdomain_errors, namespaced=False)
    assert str(problem) == "metadata.namespace: Forbidden: not allowed on this type"


def test_identity_does_not_change() -> None:
    old = {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "t", "resourceVersion": "1"}
    assert metadata.validate_object_meta_update(dict(old), old) == []
    result = metadata.validate_object_meta_update({"name": "b", "resourceVersion": "1"}, old)
    assert [problem.field for problem in result] == [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.creationTimestamp",
    ]


def test_dying_object_gets_no_new_finalizer() -> None:
    old = {"name": "a", "resourceVersion": "1", "deletionTimestamp": "t", "finalizers": ["a.io/b"]}
    [problem] = metadata.validate_object_meta_update({**old, "finalizers": ["a.io/b", "a.io/c"]}, old)
    assert problem.message == (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"a.io/c"}'
    )


def test_two_controllers_are_one_too_many() -> None:
    owners = [{"apiVersion": "v1", "kind": "K", "name": name, "uid": name, "controller": True} for name in ("a", "b")]
    [problem] = metadata.validate_object_meta(
        valid_metadata(ownerReferences=owners), formats.dns_subdomain_errors, namespaced=True
    )
    assert 'Found "true" in references for K/a and K/b' in problem.message
    assert '[{"apiVersion":"v1","kind":"K","name":"a"' in problem.message
