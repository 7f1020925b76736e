"""The messages here are those of a real kube-apiserver 1.34.4 for the same bodies."""

import json
from typing import Any

import msgspec
import pytest

from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import NO_ERRORS, DecodingChecker, has_duplicates, strict_errors, type_errors

POD = builtin_type("v1", "Pod")
IN = "json: cannot unmarshal"
FIELD = "into Go struct field"
QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", **fields}]}}


@pytest.mark.parametrize(
    ("pod", "messages"),
    [
        (container(name=5), f"{IN} number {FIELD} Container.spec.containers.name of type string"),
        (container(name=[]), f"{IN} array {FIELD} Container.spec.containers.name of type string"),
        (container(imagePullPolicy=True), f"{IN} bool {FIELD} Container.spec.containers.imagePullPolicy of type v1.PullPolicy"),
        (container(args=[1]), f"{IN} number {FIELD} Container.spec.containers.args of type string"),
        (container(env={}), f"{IN} object {FIELD} Container.spec.containers.env of type []v1.EnvVar"),
        (container(env=[5]), f"{IN} number {FIELD} Container.spec.containers.env of type v1.EnvVar"),
        (container(resources={"limits": "x"}), f"{IN} string {FIELD} ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList"),
        (container(resources={"limits": {"cpu": "abc"}}), QUANTITY),
        (container(resources={"limits": {"cpu": True}}), QUANTITY),
        (container(resources={"limits": {"cpu": "1K"}}), "unable to parse quantity's suffix"),
        (container(ports=[{"containerPort": 80.5}]), f"{IN} number 80.5 {FIELD} ContainerPort.spec.containers.ports.containerPort of type int32"),
        (container(ports=[{"containerPort": 80.0}]), f"{IN} number 80.0 {FIELD} ContainerPort.spec.containers.ports.containerPort of type int32"),
        (container(ports=[{"containerPort": 99999999999}]), f"{IN} number 99999999999 {FIELD} ContainerPort.spec.containers.ports.containerPort of type int32"),
        (container(livenessProbe={"httpGet": {"port": True}}), f"{IN} bool {FIELD} HTTPGetAction.spec.containers.livenessProbe.httpGet.port of type int32"),
        ({"spec": {"containers": "x"}}, f"{IN} string {FIELD} PodSpec.spec.containers of type []v1.Container"),
        ({"spec": "x"}, f"{IN} string {FIELD} Pod.spec of type v1.PodSpec"),
        ({"metadata": []}, f"{IN} array {FIELD} Pod.metadata of type v1.ObjectMeta"),
        ({"metadata": {"labels": {"a": 1}}}, f"{IN} number {FIELD} ObjectMeta.metadata.labels of type string"),
        ({"metadata": {"labels": "x"}}, f"{IN} string {FIELD} ObjectMeta.metadata.labels of type map[string]string"),
        ({"metadata": {"creationTimestamp": 5}}, f"{IN} number {FIELD} ObjectMeta.metadata.creationTimestamp of type string"),
        ({"spec": {"hostNetwork": "yes"}}, f"{IN} string {FIELD} PodSpec.spec.hostNetwork of type bool"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_reported_as_go_words_it(pod: dict[str, Any], messages: str) -> None:
    assert DecodingChecker(POD).errors(json.dumps(pod).encode(), pod).error == messages


def test_the_first_wrong_type_is_the_one_reported() -> None:
    pod = {"metadata": {"generation": "x"}, "spec": {"hostNetwork": 1}}
    assert len(type_errors(pod, POD)) == 2
    assert "metadata.generation" in DecodingChecker(POD).errors(json.dumps(pod).encode(), pod).error


@pytest.mark.parametrize(
    "pod",
    [
        container(name=None, resources={"limits": {"cpu": 1.5, "memory": "1Gi", "gpu": None}}),
        container(livenessProbe={"httpGet": {"port": "http"}}, args=[None]),
        {"metadata": {"creationTimestamp": "2020-02-29T00:00:00.5+01:00", "managedFields": [{"fieldsV1": "x"}]}},
    ],
)
def test_null_and_whatever_go_reads_are_fine(pod: dict[str, Any]) -> None:
    assert DecodingChecker(POD).errors(json.dumps(pod).encode(), pod) is NO_ERRORS or not type_errors(pod, POD)


@pytest.mark.parametrize(
    ("moment", "messages"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2020-01-01", 'parsing time "2020-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        ("2020-13-01T00:00:00Z", 'parsing time "2020-13-01T00:00:00Z": month out of range'),
        ("2020-02-30T00:00:00Z", 'parsing time "2020-02-30T00:00:00Z": day out of range'),
        ("2020-01-01T25:00:00Z", 'parsing time "2020-01-01T25:00:00Z": hour out of range'),
        ("2020-01-01T00:00:00Zx", 'parsing time "2020-01-01T00:00:00Zx": extra text: "x"'),
        ("2020-01-01T00:00:00", 'parsing time "2020-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"'),
    ],
)  # fmt: skip
def test_moments(moment: str, messages: str) -> None:
    assert type_errors({"metadata": {"creationTimestamp": moment}}, POD) == [messages]


def test_leases_need_microseconds() -> None:
    lease = builtin_type("coordination.k8s.io/v1", "Lease")
    layout = "2006-01-02T15:04:05.000000Z07:00"
    messages = f'parsing time "2020-01-01T00:00:00Z" as "{layout}": cannot parse "Z" as ".000000"'
    assert type_errors({"spec": {"renewTime": "2020-01-01T00:00:00Z"}}, lease) == [messages]
    assert type_errors({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}, lease) == []


@pytest.mark.parametrize(
    ("text", "byte"),
    [("x", 0), ("YWI", 0), ("a b=", 1), ("!!!!", 0), ("YQ==zz", 4), ("YWJj\n", -1), ("YWJ=", -1), ("", -1)],
)
def test_secrets_are_base64(text: str, byte: int) -> None:
    messages = [] if byte < 0 else [f"illegal base64 data at input byte {byte}"]
    assert type_errors({"data": {"a": text}}, builtin_type("v1", "Secret")) == messages


def test_unknown_fields_are_reported_with_their_path() -> None:
    pod = {
        "metadata": {"name": "p", "color": "red"},
        "spec": {"speed": "fast", "containers": [{"name": "c", "imagePullpolicy": "Always"}]},
    }
    assert strict_errors(msgspec.json.encode(pod), POD) == [
        'unknown field "metadata.color"',
        'unknown field "spec.speed"',
        'unknown field "spec.containers[0].imagePullpolicy"',
    ]


@pytest.mark.parametrize(
    ("raw", "messages"),
    [
        (
            b'{"kind":"Pod","kind":"Pod","metadata":{"labels":{"a":"b","a":"c"}},"foo":{"a":1,"a":2},"foo":1}',
            ['duplicate field "kind"', 'duplicate field "metadata.labels.a"', 'unknown field "foo"'],
        ),
        (
            b'{"spec":{"bar":1,"containers":[{"name":"c","zoo":1,"zoo":1,"name" :"d"}],"x":{"y":1}}}',
            [
                'unknown field "spec.bar"',
                'unknown field "spec.containers[0].zoo"',
                'duplicate field "spec.containers[0].name"',
                'unknown field "spec.x"',
            ],
        ),
        (b'{"metadata":{"managedFields":[{"fieldsV1":{"a":1,"a":2}}]}}', []),
        (b'{"spec":{"nodeName":"a:\\u003a","nodeName":"b"}}', ['duplicate field "spec.nodeName"']),
    ],
)
def test_unknown_and_duplicate_fields_keep_their_order(raw: bytes, messages: list[str]) -> None:
    assert list(DecodingChecker(POD).errors(raw, json.loads(raw)).strict) == messages


def test_schemas_within_schemas_are_checked_without_structs() -> None:
    crd = {
        "spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"foo": 1, "items": {"foo": 1}}}}}}]}
    }
    tree = builtin_type("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    result = DecodingChecker(tree).errors(json.dumps(crd).encode(), crd)
    assert result.strict == ('unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.foo"',)


def test_spaces_and_colons_in_text_are_not_duplicates() -> None:
    raw = b'{ "a" : "x:y" , "b" : [ ":" , {"c" : 1} ] }'
    assert not has_duplicates(raw, json.loads(raw))
