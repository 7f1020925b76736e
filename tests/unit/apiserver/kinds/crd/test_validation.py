"""Refused CRDs. The messages are those of kube-apiserver 1.34."""

from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.kinds.crd.strategy import CrdStrategy
from support.servers.plane import running_plane, widget_crd


def problem_texts(body: JSON) -> list[str]:
    kind = CrdStrategy()
    kind.normalize(body)
    kind.prepare_for_create(body, "2026-01-01T00:00:00Z")
    return [str(problem) for problem in kind.validate(body)]


def with_spec(**spec: Any) -> JSON:
    body = widget_crd()
    body["spec"].update(spec)
    return body


def test_good_crd_gets_its_defaults() -> None:
    body = widget_crd()
    assert problem_texts(body) == []
    assert body["spec"]["names"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert body["spec"]["conversion"] == {"strategy": "None"}
    assert body["status"] == {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}


def test_everything_that_is_missing_is_reported_in_order() -> None:
    assert problem_texts({"metadata": {"name": "a.b"}, "spec": {}}) == [
        'metadata.name: Invalid value: "a.b": must be spec.names.plural+"."+spec.group',
        "spec.group: Required value",
        "spec.scope: Required value",
        "spec.versions: Invalid value: null: must have exactly one version marked as storage version",
        "spec.names.plural: Required value",
        "spec.names.singular: Required value",
        "spec.names.kind: Required value",
        "spec.names.listKind: Required value",
        "status.storedVersions: Invalid value: null: must have at least one stored version",
    ]


def test_null_is_as_good_as_nothing() -> None:
    body = with_spec(conversion=None)
    assert problem_texts(body) == []
    assert body["spec"]["conversion"] == {"strategy": "None"}
    missing = problem_texts(with_spec(names=None))
    assert "spec.names.plural: Required value" in missing


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        (
            with_spec(scope="Global"),
            ['spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced"'],
        ),
        (
            with_spec(conversion={"strategy": "Webhook"}),
            [
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
        (widget_crd(schema=None), ["spec.versions[0].schema.openAPIV3Schema: Required value"]),
        (
            widget_crd(subresources={"scale": {"specReplicasPath": "spec.n", "statusReplicasPath": ".spec.n"}}),
            [
                'spec.subresources.scale.specReplicasPath: Invalid value: "spec.n": must be a simple json path starting with .',
                'spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.n": should be a json path under .status',
            ],
        ),
        (
            widget_crd(additionalPrinterColumns=[{"name": "A", "type": "foo", "jsonPath": "x"}]),
            [
                'spec.additionalPrinterColumns[0].type: Invalid value: "foo": must be one of boolean,date,integer,number,string',
                'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with .',
            ],
        ),
        (
            widget_crd(selectableFields=[{"jsonPath": ".spec.nope"}]),
            [
                (
                    'spec.selectableFields[0].jsonPath: Invalid value: ".spec.nope": is an invalid path: '
                    "does not refer to a valid field"
                )
            ],
        ),
        (
            widget_crd(deprecationWarning="x"),
            ['spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions'],
        ),
    ],
)
def test_wrong_parts_are_reported(body: JSON, problems: list[str]) -> None:
    assert problem_texts(body) == problems


def test_what_differs_between_versions_is_reported_of_each() -> None:
    body = widget_crd()
    wrong = {"type": "object", "properties": {"spec": {"properties": {}}}}
    other = {"name": "v2", "served": True, "storage": False, "schema": {"openAPIV3Schema": wrong}}
    body["spec"]["versions"].append(other)
    assert problem_texts(body) == [
        (
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: "
            "Required value: must not be empty for specified object fields"
        )
    ]


def test_scope_and_kind_stay_once_served() -> None:
    kind, old, new = CrdStrategy(), widget_crd(), widget_crd()
    for body in (old, new):
        kind.normalize(body)
        body["metadata"]["resourceVersion"] = "1"
        body["status"] = {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]}
    new["spec"]["scope"] = "Cluster"
    assert [str(problem) for problem in kind.validate_update(new, old)] == [
        'spec.scope: Invalid value: "Cluster": field is immutable'
    ]


def test_formats_that_nobody_checks_are_warned_of() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "format": "odd"}, "b": {"type": "integer", "format": "int32"}},
    }
    body = widget_crd(schema={"openAPIV3Schema": schema})
    assert CrdStrategy().warnings(body, None) == ['unrecognized format "odd"']


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def with_schema(schema: Any) -> JSON:
    root = {"type": "object", "properties": {"spec": schema}, "unknown": [None]}
    return widget_crd(schema={"openAPIV3Schema": root})


@pytest.mark.parametrize(
    ("items", "status", "message"),
    [
        (7, 422, "items: Required value: must be specified"),
        ({"type": "object", "properties": "x"}, 400, "cannot unmarshal string into Go struct field"),
        ({"type": "object", "properties": {"v": False}}, 400, "cannot unmarshal bool into Go struct field"),
        ({"type": False}, 400, "cannot unmarshal bool into Go struct field"),
        ({"type": "object", "properties": {"v": None}}, 422, "properties[v].type: Required value"),
        ({"type": "string"}, 201, ""),
    ],
)
async def test_schema_of_items_is_read_as_closely_as_any(items: Any, status: int, message: str) -> None:
    async with running_plane() as plane:
        answer = await plane.call("POST", CRDS, with_schema({"type": "array", "items": items}))
        assert answer.status == status, answer.body
        assert message in answer.body.get("message", "")


async def test_version_without_a_name_is_reported_of() -> None:
    async with running_plane() as plane:
        await plane.call("POST", CRDS, widget_crd())
        made = widget_crd()
        made["spec"]["versions"] = [{}]
        path, media = f"{CRDS}/{made['metadata']['name']}", "application/merge-patch+json"
        answer = await plane.call("PATCH", path, {"spec": made["spec"]}, media=media)
        assert answer.status == 422
        assert 'status.storedVersions[0]: Invalid value: "v1": missing' in answer.body["message"]
        columns = widget_crd("other.org", additionalPrinterColumns=[None])
        message = (await plane.call("POST", CRDS, columns)).body["message"]
        assert "spec.additionalPrinterColumns[0].name: Required value" in message
