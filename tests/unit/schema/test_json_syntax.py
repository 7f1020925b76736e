"""Syntax errors of JSON in the words of Go's decoder, as a real kube-apiserver quoted them."""

import json

import pytest

from gangline.schema.json_syntax import END_TEXT, syntax_error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", END_TEXT),
        ("{", END_TEXT),
        ('{"a"', END_TEXT),
        ('"a', END_TEXT),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ('{"a":-', "invalid character ' ' in numeric literal"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        ("[,]", "invalid character ',' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ('{"a":01}', "invalid character '1' after object key:value pair"),
        ('{"a":1.}', "invalid character '}' after decimal point in numeric literal"),
        ('{"a":1e}', "invalid character '}' in exponent of numeric literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ('"\\u12"', "invalid character '\"' in \\u hexadecimal character escape"),
        ('"\n"', "invalid character '\\n' in string literal"),
        ("tru e", "invalid character ' ' in literal true (expecting 'e')"),
    ],
)
def test_errors_are_those_of_go(text: str, error: str) -> None:
    assert syntax_error(text.encode()) == error


@pytest.mark.parametrize("value", [None, True, -1.5e-3, 0, "é\u0001", [], [[1], {}], {"a": {"b": [None]}}])
def test_json_has_no_error(value: object) -> None:
    assert syntax_error(json.dumps(value).encode()) == ""
    assert syntax_error(json.dumps(value, indent=1, ensure_ascii=False).encode()) == ""
