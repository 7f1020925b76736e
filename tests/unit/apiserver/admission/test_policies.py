"""Validating admission policies on a whole plane."""

from typing import Any

from support.servers.plane import PlaneClient, running_plane

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RULES = [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]


async def configure(plane: PlaneClient, spec: JSON, **binding: Any) -> None:
    policy = {"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": RULES}, **spec}}
    created = await plane.call("POST", f"{ADMISSION}/validatingadmissionpolicies", policy)
    assert created.status == 201, created.body
    bound = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"], **binding}}
    created = await plane.call("POST", f"{ADMISSION}/validatingadmissionpolicybindings", bound)
    assert created.status == 201, created.body


async def create(plane: PlaneClient, name: str = "c", **data: str) -> Any:
    return await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": data})


async def test_a_request_that_fails_a_check_is_refused() -> None:
    async with running_plane() as plane:
        await configure(plane, {"validations": [{"expression": "size(object.data) < 2"}]})
        assert (await create(plane, "one", a="1")).status == 201
        answer = await create(plane, "two", a="1", b="2")
        assert (answer.status, answer.body["reason"]) == (422, "Invalid")
        assert answer.body["message"] == (
            "configmaps \"two\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
            "failed expression: size(object.data) < 2"
        )


async def test_a_check_has_a_message_and_a_reason_of_its_own() -> None:
    async with running_plane() as plane:
        check = {
            "expression": "!has(object.data.secret)",
            "messageExpression": "'no secret: ' + object.data.secret",
            "message": "never shown",
            "reason": "Forbidden",
        }
        await configure(plane, {"validations": [check]})
        answer = await create(plane, secret="x")
        assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
        assert answer.body["message"].endswith("denied request: no secret: x")


async def test_variables_are_evaluated_where_they_are_read() -> None:
    async with running_plane() as plane:
        variables = [
            {"name": "size", "expression": "size(object.data)"},
            {"name": "broken", "expression": "object.data.missing"},
            {"name": "double", "expression": "variables.size * 2"},
        ]
        await configure(plane, {"variables": variables, "validations": [{"expression": "variables.double < 4"}]})
        assert (await create(plane, "one", a="1")).status == 201
        assert (await create(plane, "two", a="1", b="2")).status == 422


async def test_a_failing_expression_follows_the_failure_policy() -> None:
    async with running_plane() as plane:
        await configure(plane, {"validations": [{"expression": "object.data.missing == 'x'"}]})
        answer = await create(plane, a="1")
        assert answer.status == 422
        assert "resulted in error: no such key: missing" in answer.body["message"]
        change = {"spec": {"failurePolicy": "Ignore"}}
        media = "application/merge-patch+json"
        await plane.call("PATCH", f"{ADMISSION}/validatingadmissionpolicies/p", change, media=media)
        assert (await create(plane, a="1")).status == 201


async def test_parameters_are_objects_that_the_binding_names() -> None:
    async with running_plane() as plane:
        spec = {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConditions": [{"name": "not-limits", "expression": "object.metadata.name != 'limits'"}],
            "validations": [{"expression": "size(object.data) <= int(params.data.most)"}],
        }
        await configure(plane, spec, paramRef={"name": "limits", "parameterNotFoundAction": "Deny"})
        answer = await create(plane, "early", a="1")
        assert "no params found for policy binding with `Deny` parameterNotFoundAction" in answer.body["message"]
        # The parameters themselves need some, too, until the binding is deleted.
        await plane.call("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/b")
        assert (await create(plane, "limits", most="1")).status == 201
        bound = {"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "limits"}}
        bound["paramRef"]["parameterNotFoundAction"] = "Deny"  # type: ignore[index]
        await plane.call(
            "POST", f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": bound}
        )
        assert (await create(plane, "one", a="1")).status == 201
        assert (await create(plane, "two", a="1", b="2")).status == 422


async def test_a_binding_that_warns_does_not_refuse() -> None:
    async with running_plane() as plane:
        await configure(plane, {"validations": [{"expression": "false"}]}, validationActions=["Warn"])
        answer = await create(plane)
        assert answer.status == 201
        assert any("Validation failed for ValidatingAdmissionPolicy 'p'" in text for text in answer.warnings)


async def test_the_authorizer_answers_for_the_user_of_the_request() -> None:
    async with running_plane() as plane:
        may_delete = "authorizer.requestResource.check('delete').allowed()"
        other = "!authorizer.serviceAccount('default', 'default').group('').resource('pods').check('get').allowed()"
        await configure(plane, {"validations": [{"expression": may_delete}, {"expression": other}]})
        assert (await create(plane)).status == 201


async def test_the_namespace_and_the_user_are_known() -> None:
    async with running_plane() as plane:
        checks = [
            {"expression": "namespaceObject.metadata.name == 'default'"},
            {"expression": "request.userInfo.username == 'admin' && request.operation == 'CREATE'"},
            {"expression": "oldObject == null"},
        ]
        await configure(plane, {"validations": checks})
        answer = await create(plane)
        assert answer.status == 201, answer.body


async def test_a_policy_with_a_wrong_expression_is_refused() -> None:
    async with running_plane() as plane:
        policy = {
            "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": RULES}, "validations": [{"expression": "object.x +"}]},
        }
        answer = await plane.call("POST", f"{ADMISSION}/validatingadmissionpolicies", policy)
        assert answer.status == 422
        assert "spec.validations[0].expression" in answer.body["message"]
        assert "compilation failed" in answer.body["message"]
