"""Floats in the place of integers."""

from typing import Any

import msgspec
import pytest

from gangline.schema.typed.integers import set_go_numbers, with_integers
from gangline.schema.typed.openapi import builtin_type

SERVICE = builtin_type("v1", "Service")


def service(**port: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {"a": 1.0}}, "spec": {"ports": [{"name": "a"}, port]}, "nope": 1.0}


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ({"port": 80.0}, {"port": 80}),
        ({"port": 8e1, "targetPort": 90.0, "name": 1.0}, {"port": 80, "targetPort": 90, "name": 1.0}),
        ({"port": -0.0}, {"port": 0}),
    ],
)
def test_whole_floats_become_integers_where_the_type_is_one(port: Any, expected: Any) -> None:
    found = with_integers(service(**port), SERVICE)
    assert found == service(**expected)
    assert [type(value) for value in found["spec"]["ports"][1].values()] == [type(value) for value in expected.values()]
    assert isinstance(found["nope"], float)


@pytest.mark.parametrize("port", [80, 80.5, 1e308, float(2**63), True, "80", None, [80.0], {"a": 80.0}])
def test_all_else_stays_the_same(port: Any) -> None:
    before = service(port=port)
    assert with_integers(before, SERVICE) is before


@pytest.mark.parametrize(
    ("number", "stored"),
    [(1.0, 1), (1000.0, 1000), (1.5, 1.5), (-2.0, -2), (1e16, 10**16), (12345678901234567890, 12345678901234567000)],
)
def test_numbers_of_custom_resources_are_stored_as_go_writes_them(number: float, stored: float) -> None:
    obj = {"spec": {"list": [number, "1.0", True]}}
    set_go_numbers(obj)
    assert msgspec.json.encode(obj) == msgspec.json.encode({"spec": {"list": [stored, "1.0", True]}})
