"""Quantities as whole amounts, and back as text."""

import pytest

from gangline.scheduler.types.resources import MAX_AMOUNT, amount, amounts, as_quantity

GI = 2**30


def test_cpu_is_counted_in_thousandths_and_all_else_in_units() -> None:
    assert amounts({"cpu": "1.5", "memory": "1Ki", "nvidia.com/gpu": "8", "pods": "110"}) == {
        "cpu": 1500,
        "memory": 1024,
        "nvidia.com/gpu": 8,
        "pods": 110,
    }
    assert amount("cpu", "100u") == 1


@pytest.mark.parametrize("text", ["9E", "9223372036854775807", "8Ei", "1e30"])
def test_an_amount_past_all_bounds_is_the_largest_there_is(text: str) -> None:
    assert amounts({"cpu": text, "memory": text}) == {"cpu": MAX_AMOUNT, "memory": MAX_AMOUNT}


@pytest.mark.parametrize(
    ("resource", "number", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 3 * GI, "3Gi"),
        ("memory", 1000, "1k"),
        ("memory", 1001, "1001"),
        ("memory", 0, "0"),
        ("nvidia.com/gpu", 8, "8"),
        ("nvidia.com/gpu", 1024, "1024"),
    ],
)
def test_amounts_read_as_people_write_them(resource: str, number: int, text: str) -> None:
    assert as_quantity(resource, number) == text
