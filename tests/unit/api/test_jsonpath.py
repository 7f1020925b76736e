"""JSONPath as `kubectl` prints it. The expectations hold for client-go's implementation too."""

from typing import Any

import pytest

from gangline.api.jsonpath import JSONPath, JSONPathError, braced_path, printed_value

LIST: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {
                "capacity": {"cpu": "4"},
                "ready": True,
                "addresses": [{"type": "Legacy", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2", "labels": {"kubernetes.io/hostname": "127.0.0.2"}},
            "status": {
                "capacity": {"cpu": "8"},
                "ready": False,
                "addresses": [
                    {"type": "Legacy", "address": "127.0.0.2"},
                    {"type": "other", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
    "numbers": [1, 2, 3, 4],
    "mixed": [True, "one", 1, 1.5, 2.0, None],
    "empty": [],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain text", "plain text"),
        ('{"{"}', "{"),
        ("{.kind}", "List"),
        ("{ .kind }", "List"),
        ("{$.kind}{@.kind}", "ListList"),
        ("a{.kind}b{.kind}c", "aListbListc"),
        ("{.missing}", ""),
        ("before-{.missing}after", "before-after"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ('{.items[*].metadata.name}{"\\n"}', "127.0.0.1 127.0.0.2\n"),
        ("{.items[0].metadata['name']}", "127.0.0.1"),
        ("{.items[*]['metadata.name', 'status.capacity']}", '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}'),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes\\.io/hostname']}", "127.0.0.1"),
        ("{.numbers}", "[1,2,3,4]"),
        ("{.numbers[0]}", "1"),
        ("{.numbers[-1]}", "4"),
        ("{.numbers[-2]}", "3"),
        ("{.numbers[-1:]}", "4"),
        ("{.numbers[0:2]}", "1 2"),
        ("{.numbers[:2]}", "1 2"),
        ("{.numbers[:4:2]}", "1 3"),
        ("{.numbers[1::2]}", "2 4"),
        ("{.numbers[::3]}", "1 4"),
        ("{.numbers[1,3]}", "2 4"),
        ("{.numbers[?(@>2)]}", "3 4"),
        ("{.mixed}", '[true,"one",1,1.5,2,null]'),
        ("{.mixed[*]}", "true one 1 1.5 2 null"),
        ("{.empty[*].name}", ""),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.name=='e2e')].user.password}", "secret"),
        ("{.users[?(@.name!='e2e')].name}", "myself"),
        ("{.users[?(@.user.username)].name}", "e2e"),
        ("{.items[?(@.status.ready==true)].metadata.name}", "127.0.0.1"),
        ("{.items[?(@..ready==true)].metadata.name}", "127.0.0.1"),
        ('{.items[?(@.metadata.labels.kubernetes\\.io/hostname=="127.0.0.1")].kind}', "None"),
        ("{..address}", "127.0.0.1 127.0.0.2 127.0.0.3"),
        ("{.users[*]..name}", "myself e2e"),
        ("{.users[1].user.*}", "admin secret"),
        ("{range .items[*]}{.metadata.name}, {end}{.kind}", "127.0.0.1, 127.0.0.2, List"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] ',
        ),
        (
            '{range .items[*]}{.metadata.name}{":"}{range @.status.addresses[*]}{.type}{","}{end}{"+"}{end}',
            "127.0.0.1:Legacy,+127.0.0.2:Legacy,other,+",
        ),
        ("{range .empty[*]}{.name}{end}.", "."),
        ("{range .items[*]}{.kind}", "NoneNoneList"),
        ("{.numbers[]}", "1"),
        ("{range .numbers[*]}{@}{'\\t'}{end}", "1\t2\t3\t4\t"),
        ("{1}{-2.5}{true}", "1-2.5true"),
    ],
)
def test_template_is_filled_in(template: str, expected: str) -> None:
    assert JSONPath(template).text(LIST) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.kind", "unclosed action"),
        ("{hello}", "unrecognized identifier hello"),
        ("{.a[}", "unterminated array"),
        ("{.a[x]}", "invalid array index x"),
        ('{"abc}', "unterminated quoted string"),
        ("{.a[?(@.b<>1)]}", "unrecognized filter operator <>"),
        ("{.a[?(@.b==1]}", "unterminated filter"),
        ("{.....a}", "invalid multiple recursive descent"),
        ("{end}", "not in range, nothing to end"),
        ("{*}", "unrecognized character in action: U+002A '*'"),
    ],
)
def test_bad_template_is_refused_when_it_is_compiled(template: str, message: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        JSONPath(template)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.numbers[9]}", "array index out of bounds: index 9, length 4"),
        ("{.numbers[-9]}", "array index out of bounds: index -5, length 4"),
        ("{.numbers[3:1]}", "starting index 3 is greater than ending index 1"),
        ("{.items[0][0]}", "map[string]interface {} is not array or slice"),
        ("{.items[?(@.status.addresses[*].type=='x')]}", "can only compare one element at a time"),
        ("{.items[?(@.kind==1)]}", "incompatible types for comparison"),
    ],
)
def test_data_that_does_not_fit_is_told(template: str, message: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        JSONPath(template).text(LIST)
    assert str(caught.value) == message


def test_missing_field_is_an_error_only_when_strict() -> None:
    path = JSONPath("{.items[*].nothing}")
    assert path.text(LIST) == ""
    with pytest.raises(JSONPathError, match=r"^nothing is not found$"):
        path.text(LIST, strict=True)


def test_first_value_is_none_where_nothing_fits() -> None:
    assert JSONPath("{.items[*].metadata.name}").first_value(LIST) == "127.0.0.1"
    assert JSONPath("{.nothing}").first_value(LIST) is None
    assert JSONPath("{.numbers[7]}").first_value(LIST) is None


@pytest.mark.parametrize("path", ["a.b", ".a.b", "{a.b}", "{.a.b}"])
def test_relaxed_forms_mean_the_same(path: str) -> None:
    assert braced_path(path) == "{.a.b}"
    assert JSONPath.of_field(path).first_value({"a": {"b": 1}}) == 1


def test_braces_in_the_middle_are_no_path() -> None:
    with pytest.raises(JSONPathError, match="unexpected path string"):
        braced_path("a{b}")


def test_json_has_sorted_keys_and_escapes_markup() -> None:
    assert printed_value({"b": 1.0, "a": "<&>"}) == '{"a":"\\u003c\\u0026\\u003e","b":1}'
