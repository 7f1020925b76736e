"""Queries of writes, lists, watches and deletions."""

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.query import check_list_options, check_write_options, deletion_options
from gangline.apiserver.http.request_info import RequestVerb, query_flag
from gangline.apiserver.registry.deletion import DeletionOptions


@pytest.mark.parametrize(
    ("verb", "query", "message"),
    [
        (
            RequestVerb.CREATE,
            {"dryRun": ""},
            'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: [""]',
        ),
        (
            RequestVerb.UPDATE,
            {"dryRun": "x"},
            'UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]',
        ),
        (RequestVerb.PATCH, {"force": "true"}, "force: Forbidden: may not be specified for non-apply patch"),
        (
            RequestVerb.CREATE,
            {"fieldManager": "x" * 129},
            "fieldManager: Too long: may not be more than 128 bytes",
        ),
        (RequestVerb.CREATE, {"fieldManager": "a\x01"}, "invalid character U+0001 (at position 1)"),
        (
            RequestVerb.CREATE,
            {"fieldValidation": "Loose"},
            'Unsupported value: "Loose": supported values: "", "Ignore", "Strict", "Warn"',
        ),
    ],
)
def test_invalid_write_options_are_refused(verb: RequestVerb, query: dict[str, str], message: str) -> None:
    with pytest.raises(StatusError) as caught:
        check_write_options(verb, query)
    assert caught.value.code == 422
    assert message in caught.value.message


def test_apply_needs_a_manager() -> None:
    with pytest.raises(StatusError, match="fieldManager: Required value: is required for apply patch"):
        check_write_options(RequestVerb.PATCH, {}, apply=True)
    check_write_options(RequestVerb.PATCH, {"fieldManager": "me", "force": "true"}, apply=True)


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"limit": "abc"}, 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ({"resourceVersionMatch": "Exact"}, 422, "is forbidden unless resourceVersion is provided"),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            422,
            '"exact" is forbidden for resourceVersion "0"',
        ),
        ({"resourceVersionMatch": "Foo", "resourceVersion": "1"}, 422, '"Exact", "NotOlderThan", ""'),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
    ],
)
def test_invalid_list_options_are_refused(query: dict[str, str], code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        check_list_options(query, watch=False)
    assert caught.value.code == code
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"sendInitialEvents": "true"}, "requires setting resourceVersionMatch to NotOlderThan"),
        ({"resourceVersionMatch": "NotOlderThan"}, "for watch unless sendInitialEvents is provided"),
    ],
)
def test_invalid_watch_options_are_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(StatusError, match=message):
        check_list_options(query, watch=True)


@pytest.mark.parametrize(
    ("query", "yes"),
    [
        ({}, False),
        ({"w": ""}, True),
        ({"w": "true"}, True),
        ({"w": "foo"}, True),
        ({"w": "False"}, False),
        ({"w": "0"}, False),
    ],
)
def test_flag_is_true_for_anything_but_false_and_0(query: dict[str, str], yes: bool) -> None:
    assert query_flag(query, "w") is yes


def test_deletion_options_in_the_body_replace_those_of_the_query() -> None:
    query = {"gracePeriodSeconds": "9", "propagationPolicy": "Orphan"}
    assert deletion_options(None, query) == DeletionOptions(grace_seconds=9, propagation_policy="Orphan")
    assert deletion_options({"gracePeriodSeconds": 1}, query) == DeletionOptions(grace_seconds=1)


@pytest.mark.parametrize(
    ("body", "query", "code", "message"),
    [
        (None, {"gracePeriodSeconds": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (None, {"propagationPolicy": "Foo"}, 422, "propagationPolicy: Unsupported value"),
        (None, {"propagationPolicy": "Orphan", "orphanDependents": "true"}, 422, "cannot be both set"),
        (None, {"dryRun": "Some"}, 422, 'dryRun: Unsupported value: ["Some"]'),
        ({"kind": "Foo"}, {}, 500, 'no kind "Foo" is registered for version "meta.k8s.io/v1"'),
        ({"gracePeriodSeconds": "x"}, {}, 500, "DeleteOptions.gracePeriodSeconds of type int64"),
    ],
)
def test_invalid_deletion_options_are_refused(
    body: JSON | None, query: dict[str, str], code: int, message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        deletion_options(body, query)
    assert caught.value.code == code
    assert message in caught.value.message
