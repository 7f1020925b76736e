"""Whatever the plain reader of kubeconfigs reads, PyYAML reads as the same value."""

from contextlib import suppress
from typing import Any

import yaml
from hypothesis import event, given
from hypothesis import strategies as st

from gangline.kube.config.plain_yaml import NotPlain, parse_plain_yaml

KEYS = st.sampled_from(["name", "cluster", "as-groups", "tokenFile", "a1"])
WORDS = st.sampled_from(["https://kube.example:6443", "LS0tLS1==", "a", "/ca.crt", "a/b@c", "", "yes", "1", "b c", "n"])
VALUES = st.recursive(
    WORDS | st.booleans() | st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
PIECES = [
    *"ab1-:~\"'{}[]#&*|>!%@?,/.=\t\r",
    " ",
    "  ",
    "\n",
    "\n",
    "\n  ",
    "- ",
    ": ",
    ":\n",
    "true",
    "No",
    "null",
    "é",
    "---",
    "<<",
]
PLAIN_VALUES = st.recursive(
    st.sampled_from(["https://kube.example:6443", "LS0tLS1==", "a", True]),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3),
    max_leaves=8,
)


def check_same(text: str) -> None:
    try:
        plain = parse_plain_yaml(text.encode())
    except NotPlain:
        event("left to PyYAML")
        return
    event("plain")
    assert plain == yaml.safe_load(text)


@given(st.lists(st.sampled_from(PIECES), max_size=15).map("".join) | st.text(max_size=10))
def test_of_any_text(text: str) -> None:
    check_same(text)


@given(st.dictionaries(KEYS, PLAIN_VALUES, min_size=1, max_size=3), st.data())
def test_of_plain_text_with_a_change(value: dict[str, Any], data: st.DataObject) -> None:
    text = yaml.safe_dump(value, default_flow_style=False)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 3)))
    check_same(text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:])


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), st.booleans())
def test_of_what_pyyaml_writes(value: dict[str, Any], flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow and None, sort_keys=False)
    with suppress(NotPlain):
        assert parse_plain_yaml(text.encode()) == value
