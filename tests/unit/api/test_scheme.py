"""A scheme may be made from a function, which is called when the scheme is first used."""

from collections.abc import Iterator

import pytest

from gangline.api.core import ConfigMap, Pod
from gangline.api.scheme import CORE_SCHEME, Resource, Scheme, UnknownKind

PODS = Resource("", "v1", "Pod", "pods", Pod)


def test_the_resources_of_a_function_are_read_once_and_only_for_use() -> None:
    calls: list[str] = []

    def resources() -> Iterator[Resource[Pod]]:
        calls.append("called")
        yield PODS

    scheme = Scheme(resources)
    assert calls == []
    assert scheme.of(Pod) is scheme.kind("v1", "Pod") is scheme.find("pod") is PODS
    assert calls == ["called"]
    with pytest.raises(UnknownKind):
        scheme.of(ConfigMap)


def test_the_resources_of_an_iterator_are_read_at_once() -> None:
    resources = iter([PODS])
    scheme = Scheme(resources)
    assert next(resources, None) is None
    assert list(scheme) == [PODS]


def test_the_core_kinds_can_be_extended() -> None:
    own = Resource("example.com", "v1", "Pod", "pods", dict)
    assert list(CORE_SCHEME.with_resources(own)) == [*CORE_SCHEME, own]
