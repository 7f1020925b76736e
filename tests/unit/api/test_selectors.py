"""Label and field selectors. Every sentence asserted here was said by a kube-apiserver 1.34."""

import pytest

from gangline.api.selectable_fields import custom_selectable_fields, selectable_fields
from gangline.api.selectors import FieldSelector, LabelSelector, SelectorError, exact_field_value

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
REQUIREMENT = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=b", {"a": "c"}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (x,y)", {"a": "y"}, True),
        ("a in (x,y)", {}, False),
        ("a in ()", {"a": ""}, True),
        ("a in (x,,y)", {"a": ""}, True),
        ("a in (,x)", {"a": ""}, True),
        ("a notin (x)", {}, True),
        ("a notin (x)", {"a": "x"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "x"}, False),
        ("n>1", {"n": "2"}, True),
        ("n>1", {"n": "1"}, False),
        ("n<1", {"n": "0"}, True),
        ("n<1", {"n": "zero"}, False),
        ("n<1", {}, False),
        ("n<1", {"n": "-99999999999999999999"}, False),
        ("in in (in,notin)", {"in": "notin"}, True),
        (" a = b , c ", {"a": "b", "c": ""}, True),
        ("a=b,c!=d,e in (x,y),f notin (z),g,!h", {"a": "b", "e": "x", "g": "1"}, True),
        ("a=b,c!=d,e in (x,y),f notin (z),g,!h", {"a": "b", "e": "x", "g": "1", "h": "2"}, False),
    ],
)
def test_labels_match_as_kubernetes_says(text: str, labels: dict[str, str], expected: bool) -> None:
    assert LabelSelector.parse(text).matches(labels) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b", f"{REQUIREMENT}found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a in x", f"{REQUIREMENT}found 'x' expected: '('"),
        ("a in (", f"{REQUIREMENT}found '', expected: ',', ')' or identifier"),
        ("a in (=)", f"{REQUIREMENT}found '=', expected: ',', ')' or identifier"),
        ("a in (x", f"{REQUIREMENT}found '', expected: ',' or ')'"),
        ("a in (x y)", f"{REQUIREMENT}found 'y', expected: ',' or ')'"),
        ("a==!b", f"{REQUIREMENT}found '!', expected: identifier"),
        ("a=>b", f"{REQUIREMENT}found '>', expected: identifier"),
        ("a <> b", f"{REQUIREMENT}found '>', expected: identifier"),
        ("!", f"{REQUIREMENT}found '', expected: identifier"),
        ("!!a", f"{REQUIREMENT}found '!', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("x=b)", "found ')', expected: ',' or 'end of string'"),
        ("a=-b", f'{REQUIREMENT}values[0][a]: Invalid value: "-b": {VALUE_RULE}'),
        (
            "a in (-b,-c)",
            (
                f'{REQUIREMENT}[values[0][a]: Invalid value: "-b": {VALUE_RULE}, '
                f'values[1][a]: Invalid value: "-c": {VALUE_RULE}]'
            ),
        ),
        ("&=b", f'{REQUIREMENT}<nil>: Invalid value: "&": name part {NAME_RULE}'),
        (
            "a/b/c=1",
            (
                f'{REQUIREMENT}<nil>: Invalid value: "a/b/c": a qualified name {NAME_RULE} '
                "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        ),
        ("/x=1", f'{REQUIREMENT}<nil>: Invalid value: "/x": prefix part must be non-empty'),
        ("Ab/x", f'{REQUIREMENT}<nil>: Invalid value: "Ab/x": prefix part {SUBDOMAIN_RULE}'),
        (
            f"{'a' * 64}=1",
            f'{REQUIREMENT}<nil>: Invalid value: "{"a" * 64}": name part must be no more than 63 characters',
        ),
        (
            f"a={'a' * 64}",
            f'{REQUIREMENT}values[0][a]: Invalid value: "{"a" * 64}": must be no more than 63 characters',
        ),
        (
            "a>x",
            f"{REQUIREMENT}values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_bad_label_selector_is_told_in_the_servers_words(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.parse(text)
    assert str(caught.value) == message


def test_text_is_canonical_and_parses_to_an_equal_selector() -> None:
    selector = LabelSelector.parse(" z , !y, b notin(q , p),a==1, c  in (x),d>3,e!=f")
    assert str(selector) == "a==1,b notin (p,q),c in (x),d>3,e!=f,!y,z"
    assert LabelSelector.parse(str(selector)) == selector
    assert hash(LabelSelector.parse(str(selector))) == hash(selector)


def test_selector_from_json_needs_labels_and_expressions() -> None:
    selector = LabelSelector.from_json(
        {
            "matchLabels": {"app": "x"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "app=x,!old,tier in (a,b)"
    assert selector.matches({"app": "x", "tier": "b"})
    assert not selector.matches({"app": "x", "tier": "c"})
    assert not selector.matches({"app": "x", "tier": "b", "old": ""})


def test_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not LabelSelector.from_json(None).matches({"a": "b"})
    assert LabelSelector.from_json({}).matches({"a": "b"})
    assert not LabelSelector.from_json({})
    assert LabelSelector.from_json(None)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "a", "operator": "Like"}, '"Like" is not a valid label selector operator'),
        (
            {"key": "a", "operator": "In"},
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            'values: Invalid value: ["x"]: values set must be empty for exists and does not exist',
        ),
    ],
)
def test_bad_expression_is_told(expression: dict[str, object], message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.from_json({"matchExpressions": [expression]})
    assert str(caught.value) == message


def test_exact_tells_the_only_possible_value() -> None:
    selector = LabelSelector.parse("a=1,b in (2),c in (3,4),d!=5")
    assert [selector.exact_value(key) for key in "abcde"] == ["1", "2", None, None, None]


POD = {
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"nodeName": "n1", "schedulerName": "default-scheduler"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==p", True),
        ("metadata.name!=p", False),
        ("status.phase!=Failed,spec.nodeName=n1", True),
        ("spec.host=n1", True),
        ("spec.hostNetwork=false", True),
        ("status.podIP=", True),
        ("spec.restartPolicy=Always", False),
        (",,metadata.namespace=ns,", True),
    ],
)
def test_fields_match_as_kubernetes_says(text: str, expected: bool) -> None:
    assert FieldSelector.parse(text, selectable_fields("v1", "Pod")).matches(POD) is expected


@pytest.mark.parametrize(
    ("text", "api_version", "kind", "message"),
    [
        ("spec.foo=x", "v1", "Pod", "field label not supported: spec.foo"),
        ("metadata.namespace=x", "v1", "Node", "field label not supported: metadata.namespace"),
        (
            "data.k=v",
            "v1",
            "ConfigMap",
            '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("status.active=1", "batch/v1", "Job", 'field label "status.active" not supported for Job'),
        ("abc", "v1", "Pod", "invalid selector: 'abc'; can't understand 'abc'"),
        (
            "metadata.name in (a)",
            "v1",
            "Pod",
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'",
        ),
        (
            r"metadata.name=a\x",
            "v1",
            "Pod",
            r"invalid field selector: invalid escape sequence: \x",
        ),
        ("metadata.name=a=b", "v1", "Pod", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_bad_field_selector_is_told(text: str, api_version: str, kind: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        FieldSelector.parse(text, selectable_fields(api_version, kind))
    assert str(caught.value) == message


def test_escaped_value_is_read_and_written_back() -> None:
    selector = FieldSelector.parse(r"type=a\,b\=c\\d,metadata.name!=x", selectable_fields("v1", "Secret"))
    assert selector.matches({"metadata": {"name": "s"}, "type": r"a,b=c\d"})
    assert str(selector) == r"metadata.name!=x,type=a\,b\=c\\d"
    assert selector.exact_value("type") == r"a,b=c\d"
    assert selector.exact_value("metadata.name") is None


def test_event_is_found_through_both_apis() -> None:
    event = {"involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet"}}
    old = FieldSelector.parse("involvedObject.name=p,source=kubelet", selectable_fields("v1", "Event"))
    new = FieldSelector.parse("regarding.kind=Pod", selectable_fields("events.k8s.io/v1", "Event"))
    assert old.matches(event)
    assert new.matches(event)
    assert new.matches({"regarding": {"kind": "Pod"}})


def test_a_kubelet_selects_the_resource_slices_of_its_node() -> None:
    fields = selectable_fields("resource.k8s.io/v1", "ResourceSlice")
    selector = FieldSelector.parse("spec.nodeName=n1,spec.driver=gpu.example.com", fields)
    assert selector.matches({"spec": {"nodeName": "n1", "driver": "gpu.example.com"}})
    assert not selector.matches({"spec": {"nodeName": "n2", "driver": "gpu.example.com"}})
    refusal = r"^field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.other$"
    with pytest.raises(SelectorError, match=refusal):
        FieldSelector.parse("spec.other=1", fields)


def test_custom_resource_is_selected_by_its_declared_fields() -> None:
    fields = custom_selectable_fields([".spec.color", ".spec.size", ".spec.on"])
    selector = FieldSelector.parse("spec.color!=red,spec.size=3,spec.on=true", fields)
    assert selector.matches({"spec": {"size": 3, "on": True}})
    assert not selector.matches({"spec": {"color": "red", "size": 3, "on": True}})
    with pytest.raises(SelectorError, match=r"^field label not supported: spec.other$"):
        FieldSelector.parse("spec.other=1", fields)
    with pytest.raises(SelectorError, match=r"^field label not supported: metadata.namespace$"):
        FieldSelector.parse("metadata.namespace=x", custom_selectable_fields(namespaced=False))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("metadata.name=a", "a"),
        ("status.phase!=Running,metadata.name==a", "a"),
        ("metadata.name!=a", None),
        ("metadata.namespace=a", None),
        ("metadata.name", None),
        ("", None),
    ],
)
def test_the_only_value_of_a_field_is_known_whatever_else_is_selected(text: str, value: str | None) -> None:
    assert exact_field_value(text, "metadata.name") == value
