"""CEL in admission: the values of the variables, and match conditions evaluated with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo, service_account_groups
from gangline.schema.cel.authorization import AccessCheck, AccessDecision, AccessQuestion
from gangline.schema.cel.program import CelProgram
from gangline.schema.cel.values import CelError


class ConditionResult(msgspec.Struct, frozen=True):
    """Whether all conditions hold. With an error it is the failure policy that decides."""

    matches: bool
    error: str = ""


def admission_variables(
    request: JSON, user: UserInfo, authorizer: Authorizer, namespace: JSON | None = None
) -> dict[str, Any]:
    """The values of `object`, `oldObject`, `request`, `namespaceObject` and `authorizer`."""

    def decide(question: AccessQuestion) -> AccessDecision:
        attributes = AccessAttributes(
            _asked_user(question, user),
            question.verb,
            question.group,
            "*" if question.resource else "",
            question.resource,
            question.subresource,
            question.namespace,
            question.name,
            question.path or None,
        )
        decision = authorizer.decide(attributes)
        return AccessDecision(decision.allowed, decision.reason)

    resource = request["requestResource"]
    own = AccessQuestion(
        group=resource["group"],
        resource=resource["resource"],
        subresource=request.get("requestSubResource", ""),
        namespace=request.get("namespace", ""),
        name=request.get("name", ""),
    )
    shown = {name: value for name, value in request.items() if name not in ("object", "oldObject")}
    return {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": {name: value for name, value in shown.items() if value is not None},
        "namespaceObject": namespace,
        "authorizer": AccessCheck(decide),
        "authorizer.requestResource": AccessCheck(decide, own),
    }


def _asked_user(question: AccessQuestion, user: UserInfo) -> UserInfo:
    if not question.user:
        return user
    namespace = question.user.split(":")[2]
    return UserInfo(question.user, (*service_account_groups(namespace), AUTHENTICATED_GROUP))


def evaluate_conditions(
    conditions: Sequence[JSON], programs: Sequence[CelProgram], variables: Mapping[str, Any]
) -> ConditionResult:
    """Evaluate match conditions. One that is false decides, whatever errors the others have."""
    errors: list[str] = []
    for condition, program in zip(conditions, programs, strict=True):
        try:
            value, _ = program.run(variables)
        except CelError as error:
            errors.append(f"expression '{condition['expression']}' resulted in error: {error}")
            continue
        if value is False:
            return ConditionResult(matches=False)
    if not errors:
        return ConditionResult(matches=True)
    return ConditionResult(matches=True, error=errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
