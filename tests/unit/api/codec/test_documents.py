"""YAML as kubectl reads it, with lines, and with files that mean harm."""

from typing import Any

import pytest

from gangline.api.codec.documents import documents
from gangline.api.codec.errors import DecodeError


def body(text: str) -> Any:
    (document,) = documents(text)
    return document.body


def refusal(text: str, file: str | None = None) -> str:
    with pytest.raises(DecodeError) as caught:
        documents(text, file=file)
    return str(caught.value)


# What sigs.k8s.io/yaml v1.6.0, which kubectl uses, makes of the same text.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, True) for word in ("true", "True", "TRUE", "yes", "Yes", "YES", "y", "Y", "on", "On", "ON")),
        *((word, False) for word in ("false", "no", "No", "NO", "n", "N", "off", "Off", "OFF")),
        *((word, None) for word in ("", "~", "null", "Null", "NULL", "!!null ''")),
        *((word, word) for word in ("yEs", "tRUE", "nULL", "1:30", "12:30:45", "5m", "1Gi", "0xZZ", "0o9", "1e")),
        *((word, word) for word in ("2026-01-01", "2026-01-01T00:00:00Z", "1,000", "-_x", ".", "1e400", "_1")),
        *(
            ("0644", 420),
            ("0o644", 420),
            ("007", 7),
            ("0x1F", 31),
            ("-0x1F", -31),
            ("0b11", 3),
            ("1_000", 1000),
        ),
        *(("0", 0), ("-1", -1), ("+1", 1), ("08", 8), ("9223372036854775808", 2**63), ("+017", 15)),
        *(("1.5", 1.5), (".5", 0.5), ("1e3", 1000), ("2.0", 2), ("1e-3", 0.001), ("-0.0", 0), ("1e22", 1e22)),
        *(
            ("'yes'", "yes"),
            ('"1"', "1"),
            ("!!str 1", "1"),
            ("! 1", "1"),
            ("!!int '1'", 1),
            ("!!bool 'yes'", True),
        ),
        *(("!!float 1", 1), ("!!timestamp 2026-01-01", "2026-01-01"), ("!!map {b: 1}", {"b": 1})),
        *(("!!seq [1]", [1]), ("'it''s'", "it's"), (r'"\u00e9\n"', "é\n"), ("|\n  x\n  y", "x\ny\n")),
    ],
)
def test_scalars_mean_what_kubectl_says(text: str, value: object) -> None:
    found = body(f"a: {text}\n")["a"]
    assert found == value
    assert type(found) is type(value)


def test_keys_become_text() -> None:
    assert body("1: a\ntrue: b\n1.5: c\n'2': d\n") == {"1": "a", "true": "b", "1.5": "c", "2": "d"}


def test_documents_come_in_order_without_the_empty_ones() -> None:
    found = documents("---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n", file="f.yaml")
    assert [(document.body, document.index, document.file) for document in found] == [
        ({"a": 1}, 2, "f.yaml"),
        ({"b": 2}, 4, "f.yaml"),
    ]
    assert documents("") == documents("# only this\n") == []


def test_values_know_their_lines() -> None:
    (document,) = documents("a: 1\nb:\n  - x\n  - c:\n      d: |\n        text\n      e:\n        far\n")
    lines = {"": (), "a": ("a",), "b": ("b",), "x": ("b", 0), "item": ("b", 1), "c": ("b", 1, "c")}
    assert {name: document.lines[path] for name, path in lines.items()} == {
        "": 1,
        "a": 1,
        "b": 2,
        "x": 3,
        "item": 4,
        "c": 4,
    }
    assert document.line(("b", 1, "c", "d")) == 5
    assert document.line(("b", 1, "c", "e")) == 8
    assert document.line(("b", 1, "c", "missing", 3)) == 4


def test_lines_count_through_the_whole_file() -> None:
    _, second = documents("a: 1\n---\nb: 2\n")
    assert second.line(("b",)) == 3


def test_a_list_is_taken_apart() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: List\n  apiVersion: v1\n  items:\n  - kind: B\n"
    found = documents(text + "---\nkind: C\n")
    assert [(document.body["kind"], document.line(("kind",)), document.index) for document in found] == [
        ("A", 4, 1),
        ("B", 8, 1),
        ("C", 10, 2),
    ]
    assert documents("{apiVersion: v1, kind: List, items: null}") == []
    assert documents("{apiVersion: v1, kind: List}") == []


def test_the_list_of_a_kind_says_what_its_items_are() -> None:
    found = documents("apiVersion: kubeflow.org/v1\nkind: TFJobList\nitems:\n- metadata: {name: a}\n- kind: Own\n")
    assert [document.body for document in found] == [
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "a"}},
        {"apiVersion": "kubeflow.org/v1", "kind": "Own"},
    ]
    # One that has no items is a kind of its own.
    assert len(documents("apiVersion: x/v1\nkind: CheckList\nspec: {}\n")) == 1


def test_what_is_not_an_object_is_refused() -> None:
    assert refusal("- a\n", "f.yaml") == (
        "f.yaml:1: expected an object with apiVersion and kind, got array; put --- between objects instead"
    )
    assert refusal("a: 1\n---\n\ntext\n") == 'expected an object with apiVersion and kind, got "text" (line 4)'
    assert refusal("apiVersion: v1\nkind: List\nitems:\n- {}\n- 3\n") == (
        "expected an object with apiVersion and kind, got 3 (line 5)"
    )
    assert refusal("apiVersion: v1\nkind: List\nitems: {}\n") == "items: expected array, got object (line 3)"


def test_anchors_and_merge_keys_work() -> None:
    found = body(
        "base: &base {p: 1, q: [1]}\nmore: &more {p: 2, r: 3}\n"
        "a:\n  <<: *base\n  p: 9\nb:\n  <<: [*base, *more]\nc: *base\n"
    )
    assert found["a"] == {"p": 9, "q": [1]}
    assert found["b"] == {"p": 1, "q": [1], "r": 3}
    assert found["c"] == {"p": 1, "q": [1]}
    assert found["c"]["q"] is not found["a"]["q"]


def test_what_is_said_beside_a_merge_wins_wherever_it_stands() -> None:
    assert body("base: &base {p: 1}\na:\n  p: 9\n  <<: *base\n")["a"] == {"p": 9}


def test_merged_values_have_the_line_they_are_written_on() -> None:
    (document,) = documents("base: &base\n  p: 1\na:\n  <<: *base\n  q: 2\n")
    assert (document.line(("a", "p")), document.line(("a", "q"))) == (2, 5)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert body("'<<': 1\n") == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "b.c: written twice, on lines 3 and 5 (line 5)"),
        ("1: a\n'1': b\n", '["1"]: written twice, on lines 1 and 2 (line 2)'),
        ("a: 1\n<<: 3\n", "<< takes an object, or a list of objects (line 2)"),
        ("a: 1\n<<: [{}, 3]\n", "<< takes an object, or a list of objects (line 2)"),
        ("a: 1\n? [b]\n: c\n", "a key must be text (line 2)"),
        ("null: c\n", "a key must be text (line 1)"),
        (
            "a:\n  b: {{ .Values.b }}\n",
            "a.b: {{ }} is of a template: render the file first, as with helm template (line 2)",
        ),
        ("a: *b\n", "*b is used here, but there is no &b before it (line 1)"),
        ("a: &b\n  c: *b\n", "*b is used here, but there is no &b before it (line 2)"),
        ("x: &b 1\n---\na: *b\n", "*b is used here, but there is no &b before it (line 3)"),
        ("a: .inf\n", "a: .inf is not a number in JSON: quote it if it is text (line 1)"),
        ("a: !!int x\n", 'a: "x" is not what its tag !!int says (line 1)'),
        ("a: !!int yes\n", 'a: "yes" is not what its tag !!int says (line 1)'),
        ("a: !!null 1\n", 'a: "1" is not what its tag !!null says (line 1)'),
        (
            "a: !!python/object/apply:os.system [x]\n",
            "the tag !!python/object/apply:os.system is not allowed (line 1)",
        ),
        ("a: !!python/name:os.system x\n", "a: the tag !!python/name:os.system is not allowed (line 1)"),
        ("a: !mine {b: 1}\n", "the tag !mine is not allowed (line 1)"),
        ("a: !!set {b}\n", "the tag !!set is not allowed (line 1)"),
        ("a: !!binary aGk=\n", "a: the tag !!binary is not allowed (line 1)"),
    ],
)
def test_what_no_manifest_should_say_is_refused_with_its_line(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\t- b\n", "a tab in the indentation: YAML wants spaces (line 2)"),
        ("a:\n  b: 1\n\tc: 2\n", "a tab in the indentation: YAML wants spaces (line 3)"),
        (
            "a: b: c\n",
            "not YAML: a colon where none can be: quote the text, or check the indentation (line 1)",
        ),
        ("a: [1\n", "not YAML: a list that is not closed with ] (line 2)"),
        ("a: {b: 1\nc: 2\n", "not YAML: an object that is not closed with } (line 2)"),
        ("a: 'x\n", "not YAML: a quote that is not closed (line 2)"),
        ("a:\n  b: 1\n c: 2\n", "not YAML: a line that is not indented like its neighbours (line 3)"),
        ("a: 1\nb: @x\n", "not YAML: a value that starts with @ must be quoted (line 2)"),
        ("a: 1\nb: \x00\n", "a control character, which YAML does not allow (line 2)"),
        ("a: 1\nb: \ud800\n", "the text is not Unicode (line 2)"),
    ],
)
def test_what_is_not_yaml_is_explained(text: str, message: str) -> None:
    assert refusal(text) == message


def test_a_syntax_error_names_the_file() -> None:
    assert refusal("a: [1\n", "job.yaml").startswith("job.yaml:2: not YAML: ")


def test_nesting_is_bounded() -> None:
    assert refusal("a: " + "[" * 100_000) == "nested more than 200 levels deep (line 1)"
    assert refusal('{"a":' * 100_000) == "nested more than 200 levels deep (line 1)"
    assert body("a: " + "[" * 150 + "]" * 150)


@pytest.mark.parametrize(("start", "template"), [("[x, x]", "[{}]"), ("{k: 1}", "{{<<: [{}]}}"), ("{k: 1}", "[{}]")])
def test_expansion_of_aliases_is_bounded(start: str, template: str) -> None:
    lines = [f"a0: &a0 {start}"]
    lines += [f"a{n}: &a{n} " + template.format(", ".join([f"*a{n - 1}"] * 10)) for n in range(1, 12)]
    assert "aliases add more than 100,000 values" in refusal("\n".join(lines))


def test_json_is_read_as_json_with_its_lines() -> None:
    text = '{\n\t"kind": "A",\n\t"text": "\\ud83d\\ude00\\/",\n\t"n": 1.0\n}\n'
    (document,) = documents("\ufeff" + text, file="f.json")
    assert document.body == {"kind": "A", "text": "😀/", "n": 1}
    (document,) = documents('{\n\t"kind": "A",\n\t"n": 1\n}\n')
    assert document.line(("n",)) == 3


def test_flow_yaml_is_not_mistaken_for_json() -> None:
    assert body("{a: 1, b: yes}") == {"a": 1, "b": True}
    assert [document.body for document in documents('{"a": 1}\n---\n{"b": 2}\n')] == [{"a": 1}, {"b": 2}]
