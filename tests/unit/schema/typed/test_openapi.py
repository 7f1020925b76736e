import pytest

from gangline.schema.typed.openapi import builtin_type, crd_type, definition_type
from gangline.schema.typed.types import MergeType, TypeNode, TypeShape


def at(tree: TypeNode, path: str) -> TypeNode:
    """The node under a dotted path; `*` is a list's or map's values."""
    for part in path.split("."):
        tree = tree.element if part == "*" else tree.fields[part]
    return tree


POD = builtin_type("v1", "Pod")


def test_containers_merge_by_name() -> None:
    result = at(POD, "spec.containers")
    assert (result.shape, result.merge, result.keys) == (TypeShape.LIST, MergeType.MAP, ("name",))
    assert (result.patch_merge, result.patch_key) == (True, "name")


def test_port_keys_have_their_default() -> None:
    assert at(POD, "spec.containers.*.ports").key_defaults["protocol"] == "TCP"
    assert at(builtin_type("v1", "Service"), "spec.ports").key_defaults["protocol"] == "TCP"


@pytest.mark.parametrize(
    ("path", "merge", "retain"),
    [("spec.volumes", True, True), ("spec.containers", True, False), ("spec.tolerations", False, False)],
)
def test_patch_strategies(path: str, merge: bool, retain: bool) -> None:
    result = at(POD, path)
    assert (result.patch_merge, result.patch_retain_keys) == (merge, retain)


def test_deployment_strategy_retains_keys_without_merging() -> None:
    result = at(builtin_type("apps/v1", "Deployment"), "spec.strategy")
    assert (result.patch_merge, result.patch_retain_keys) == (False, True)


@pytest.mark.parametrize(
    ("path", "merge"),
    [
        ("spec.nodeSelector", MergeType.ATOMIC),
        ("spec.containers.*.args", MergeType.ATOMIC),
        ("spec.containers.*.resources.limits", MergeType.GRANULAR),
        ("metadata.finalizers", MergeType.SET),
        ("metadata.labels", MergeType.GRANULAR),
        ("spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.*.labelSelector", MergeType.ATOMIC),
    ],
)
def test_merge_kinds(path: str, merge: MergeType) -> None:
    assert at(POD, path).merge is merge


def test_what_a_property_says_goes_before_its_definition() -> None:
    assert at(builtin_type("v1", "PersistentVolume"), "spec.claimRef").merge is MergeType.GRANULAR
    assert definition_type("io.k8s.api.core.v1.ObjectReference").merge is MergeType.ATOMIC


@pytest.mark.parametrize(
    ("path", "scalar"),
    [
        ("metadata.name", "string"),
        ("metadata.creationTimestamp", "time"),
        ("spec.hostNetwork", "boolean"),
        ("spec.priority", "integer"),
        ("spec.containers.*.resources.limits.*", "quantity"),
        ("spec.containers.*.livenessProbe.httpGet.port", "int-or-string"),
    ],
)
def test_scalars(path: str, scalar: str) -> None:
    assert at(POD, path).scalar == scalar


def test_bytes_micro_times_and_free_json() -> None:
    assert at(builtin_type("v1", "Secret"), "data.*").scalar == "byte"
    assert at(builtin_type("coordination.k8s.io/v1", "Lease"), "spec.renewTime").scalar == "micro-time"
    assert at(POD, "metadata.managedFields.*.fieldsV1").shape is TypeShape.ANY
    assert at(builtin_type("apps/v1", "ControllerRevision"), "data").shape is TypeShape.ANY


def test_go_names_come_with_the_fields() -> None:
    assert at(POD, "spec.containers.*.imagePullPolicy").go_type == "v1.PullPolicy"
    assert at(POD, "spec.containers.*.securityContext.capabilities.add.*").go_type == "v1.Capability"
    assert (at(POD, "spec.hostNetwork").pointer, at(POD, "spec.enableServiceLinks").pointer) == (False, True)
    assert (at(POD, "spec.hostNetwork").omit_empty, at(POD, "spec.containers.*.name").omit_empty) == (True, False)


def test_a_struct_is_left_out_only_when_go_says_omitzero() -> None:
    assert at(POD, "metadata.creationTimestamp").omit_empty
    assert not at(POD, "status.conditions.*.lastProbeTime").omit_empty  # omitempty, which does nothing for a struct


def test_kinds_that_have_rules_but_are_not_served_are_known() -> None:
    assert at(builtin_type("networking.k8s.io/v1", "NetworkPolicy"), "spec.podSelector").shape is TypeShape.OBJECT


def test_a_tree_may_contain_itself() -> None:
    schema = at(
        builtin_type("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "spec.versions.*.schema.openAPIV3Schema"
    )
    assert schema.fields["properties"].element.fields is schema.fields


def test_definitions_are_built_once() -> None:
    template = at(builtin_type("batch/v1", "Job"), "spec.template.spec")
    assert template.fields is at(POD, "spec").fields


def test_no_such_kind_is_a_lookup_error() -> None:
    with pytest.raises(LookupError):
        builtin_type("v1", "Nonsense")


CRD = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                    "items": {
                        "type": "object",
                        "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "anything": {"x-kubernetes-preserve-unknown-fields": True},
                "words": {"type": "object", "additionalProperties": {"type": "string"}},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
                "size": {"x-kubernetes-int-or-string": True},
                "object": {"type": "object", "x-kubernetes-embedded-resource": True},
            },
        }
    },
}


def test_custom_kinds_have_what_every_object_has() -> None:
    tree = crd_type(CRD)
    assert set(tree.fields) == {"apiVersion", "kind", "metadata", "spec"}
    assert at(tree, "metadata.labels").shape is TypeShape.MAP
    assert at(tree, "spec.object.metadata.ownerReferences").keys == ("uid",)


def test_custom_kinds_follow_the_extensions() -> None:
    spec = crd_type(CRD).fields["spec"]
    assert (spec.fields["items"].merge, spec.fields["items"].keys) == (MergeType.MAP, ("port", "protocol"))
    assert spec.fields["items"].key_defaults == {"protocol": "TCP"}
    assert spec.fields["tags"].merge is MergeType.SET
    assert spec.fields["free"].keep_unknown
    assert spec.fields["anything"].shape is TypeShape.ANY
    assert spec.fields["words"].element.scalar == "string"
    assert spec.fields["whole"].merge is MergeType.ATOMIC
    assert spec.fields["size"].scalar == "int-or-string"
