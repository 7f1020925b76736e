"""The depth of JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.codec.nesting import MAX_DEPTH, is_too_deep

VALUES = st.recursive(
    st.none() | st.text(alphabet='{}[]"\\a'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='{}[]"\\a'), inner, max_size=4),
)


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"}":', "}]")])
def test_the_limit_is_exact(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{") - opening.count("]")
    depth = MAX_DEPTH // levels
    assert not is_too_deep(nested(depth, opening, closing))
    assert is_too_deep(nested(depth + 1, opening, closing))
    assert is_too_deep(nested(100_000, opening, closing))


def test_many_shallow_values_are_not_deep() -> None:
    assert not is_too_deep(json.dumps([{"a": [{}]}] * 1000).encode())


@given(VALUES)
def test_brackets_in_texts_do_not_count(value: object) -> None:
    shallow = [value] * 300
    assert not is_too_deep(json.dumps(shallow).encode())
    assert is_too_deep(nested(MAX_DEPTH, '{"[":', "}").replace(b"1", json.dumps([value]).encode()))
