"""Values as Go prints them."""

from typing import Any

import pytest

from gangline.schema.go_text import number_text, quoted_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (5.0, "5"),
        (0.5, "0.5"),
        (1e6, "1e+06"),
        (123456.0, "123456"),
        (1234567.0, "1.234567e+06"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.5, "-2.5"),
        (1e100, "1e+100"),
        (0.0, "0"),
    ],
)
def test_numbers_are_shortest(value: float, text: str) -> None:
    assert number_text(value) == text


def test_texts_are_quoted_with_what_cannot_be_printed_escaped() -> None:
    assert quoted_text('a"b\\\n\té\x01\u200b日') == '"a\\"b\\\\\\n\\té\\x01\\u200b日"'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ({"b": 1, "a": "<&>"}, '{"a":"\\u003c\\u0026\\u003e","b":1}'),
        ([1.0, 1e21, 1e-7, 0.1], "[1,1e+21,1e-7,0.1]"),
    ],
)
def test_structures_are_json_as_go_writes_it(value: Any, text: str) -> None:
    assert value_text(value) == text
