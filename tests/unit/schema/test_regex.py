"""Patterns of RE2."""

import time

import pytest

from gangline.schema.regex import PatternError, Re2Pattern


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("^a+$", "aaa", True),
        ("^a$", "a\n", False),
        (r"\d", "\u0663", False),
        (r"^\p{L}+$", "日本", True),
        ("[[:alpha:]]", "1a", True),
        ("(?i)ABC", "xabcx", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\z", "", True),
    ],
)
def test_pattern_means_what_it_means_to_the_server(source: str, text: str, found: bool) -> None:
    assert Re2Pattern(source).matches(text) is found


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("(", "missing closing ): `(`"),
        ("[", "missing closing ]: `[`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
    ],
)
def test_mistake_is_reported_as_go_words_it(source: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        Re2Pattern(source)
    assert str(caught.value) == f"error parsing regexp: {reason}"


def test_no_pattern_can_hang_us() -> None:
    started = time.process_time()
    assert not Re2Pattern("^(a+)+$").matches("a" * 5000 + "b")
    assert Re2Pattern("(x+x+)+y").find("x" * 5000 + "zxxy") == "xxy"
    assert Re2Pattern("(x+x+)+y").find_all("x" * 5000 + "zxxy") == ["xxy"]
    assert time.process_time() - started < 1


def test_matches_are_found_from_the_left() -> None:
    assert Re2Pattern("[0-9]+").find("a12b3") == "12"
    assert Re2Pattern("[0-9]+").find("ab") == ""
    assert Re2Pattern("[0-9]+").find_all("a12b3") == ["12", "3"]
    assert Re2Pattern("[0-9]+").find_all("a12b3", 1) == ["12"]
    assert Re2Pattern(r"(?P<x>b)$").find_all("ab\n") == []
    assert Re2Pattern(r"\Q.\E|[[:^alpha:]]|日").find_all("a.1日") == [".", "1", "日"]
    assert Re2Pattern("a*").find_all("baac") == ["", "aa", ""]
    # After an empty match Go goes on with the next character.
    assert Re2Pattern("^|[ab]").find_all("ab") == ["", "b"]
