"""Environment, `$(VAR)` and path mapping of containers."""

from pathlib import Path

import msgspec
import pytest

from gangline.api.core import ConfigMap, Secret
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity
from gangline.node.environment import (
    ConfigMissing,
    ConfigRefs,
    Configuration,
    container_env,
    environment_refs,
    expand,
)
from gangline.node.pod_types import RunContainer, RunPod
from gangline.node.runtime.paths import PathMapping, volume_variable

GIVEN = Configuration(
    {"c": ConfigMap(data={"a": "1", "b": "2"})},
    {"s": Secret(data={"p": "c2VjcmV0"})},
    {"cpu": Quantity.of("8"), "memory": Quantity.of("1Gi")},
)
POD = msgspec.convert(
    {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}},
        "spec": {"nodeName": "local", "serviceAccountName": "sa"},
    },
    RunPod,
)


def env(*variables: JSON, sources: list[JSON] | None = None, **more: object) -> dict[str, str]:
    body = {"name": "main", "env": list(variables), "envFrom": sources or [], **more}
    return container_env(msgspec.convert(body, RunContainer), POD, GIVEN)


def of(name: str, **source: JSON) -> JSON:
    return {"name": name, "valueFrom": source}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NO) $A $", "$(NO) $A $"),
        ("$(", "$("),
        ("$()", "$()"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_a_variable_sees_those_before_it() -> None:
    variables = env({"name": "A", "value": "x"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "y"})
    assert variables == {"A": "x", "B": "x$(C)", "C": "y"}


def test_whole_objects_come_first_with_their_prefix() -> None:
    sources: list[JSON] = [{"prefix": "C_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    variables = env({"name": "p", "value": "mine"}, sources=sources)
    assert variables == {"C_a": "1", "C_b": "2", "p": "mine"}


def test_keys_of_objects() -> None:
    variables = env(of("A", configMapKeyRef={"name": "c", "key": "a"}), of("P", secretKeyRef={"name": "s", "key": "p"}))
    assert variables == {"A": "1", "P": "secret"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "no", "key": "a"}}, 'configmap "no" not found'),
        ({"configMapKeyRef": {"name": "c", "key": "no"}}, "couldn't find key no in ConfigMap ns/c"),
        ({"secretKeyRef": {"name": "no", "key": "a"}}, 'secret "no" not found'),
        ({"fieldRef": {"fieldPath": "spec.nothing"}}, "unsupported fieldPath: spec.nothing"),
    ],
)
def test_what_is_missing_is_named(source: JSON, message: str) -> None:
    with pytest.raises(ConfigMissing, match=message):
        env(of("A", **source))


def test_what_is_optional_may_be_missing() -> None:
    variables = env(
        of("A", configMapKeyRef={"name": "no", "key": "a", "optional": True}),
        of("B", secretKeyRef={"name": "s", "key": "no", "optional": True}),
        sources=[{"configMapRef": {"name": "no", "optional": True}}],
    )
    assert variables == {}


def test_fields_of_the_pod() -> None:
    paths = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP")
    variables = env(*(of(path, fieldRef={"fieldPath": path}) for path in (*paths, "metadata.labels['app']")))
    assert list(variables.values()) == ["p", "ns", "u", "local", "127.0.0.1", "x"]


def test_resources_are_counted_in_their_divisor() -> None:
    limits = {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}
    variables = env(
        of("CPU", resourceFieldRef={"resource": "limits.cpu"}),
        of("MILLI", resourceFieldRef={"resource": "requests.cpu", "divisor": "1m"}),
        of("MIB", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
        resources=limits,
    )
    assert variables == {"CPU": "2", "MILLI": "250", "MIB": "64"}


def test_without_a_limit_the_node_is_the_limit() -> None:
    assert env(of("CPU", resourceFieldRef={"resource": "limits.cpu"})) == {"CPU": "8"}


def test_wanted_names_what_must_be_read() -> None:
    body = {
        "env": [
            of("A", configMapKeyRef={"name": "a", "key": "k"}),
            of("B", secretKeyRef={"name": "b", "key": "k"}),
        ],
        "envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "d"}}],
    }
    assert environment_refs(msgspec.convert(body, RunContainer)) == ConfigRefs(frozenset("ac"), frozenset("bd"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/real"),
        ("/data/x.csv", "/real/x.csv"),
        ("--in=/data/x,/data/y", "--in=/real/x,/real/y"),
        ("cat '/data/a b' > /data/c", "cat '/real/a b' > /real/c"),
        ("/data2", "/data2"),
        ("/my/data", "/my/data"),
        ("/data-old", "/data-old"),
        ("/data/deep/x", "/deeper/x"),
        ("file:/data", "file:/real"),
    ],
)
def test_paths_are_replaced_as_whole_names(text: str, expected: str) -> None:
    paths = PathMapping({"/data/": Path("/real"), "/data/deep": Path("/deeper"), "/": Path("/never")})
    assert paths.translate(text) == expected


def test_no_prefixes_change_nothing() -> None:
    assert PathMapping({}).translate("/a /b") == "/a /b"


def test_volumes_have_variables() -> None:
    assert volume_variable("my-data.1") == "GANGLINE_VOLUME_MY_DATA_1"
