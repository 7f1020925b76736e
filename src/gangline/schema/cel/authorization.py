"""The `authorizer` of admission expressions: a chain of calls that ends in a decision.

`authorizer.group('apps').resource('deployments').namespace('default').check('create').allowed()`
"""

from collections.abc import Callable
from typing import Any, Self

import msgspec

from gangline.schema.cel.values import NO_SUCH_OVERLOAD, CelError


class AccessQuestion(msgspec.Struct, frozen=True):
    """Whether a user may do something. Without a user: whoever sends the request."""

    user: str = ""
    verb: str = ""
    path: str = ""
    """The path of a request for no resource; with one, the fields below are empty."""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class AccessDecision(msgspec.Struct, frozen=True):
    """The answer to a question."""

    is_allowed: bool
    reason_text: str = ""

    def allowed(self) -> bool:
        return self.is_allowed

    def reason(self) -> str:
        return self.reason_text

    def errored(self) -> bool:
        return False

    def error(self) -> str:
        return ""


DecideFunc = Callable[[AccessQuestion], AccessDecision]


class AccessCheck(msgspec.Struct, frozen=True):
    """A question that is being put together. The type checker knows which parts may follow each other."""

    decide: DecideFunc
    question: AccessQuestion = AccessQuestion()

    def path(self, text: str) -> Self:
        return self._with(path=text)

    def group(self, name: str) -> Self:
        return self._with(group=name)

    def service_account(self, namespace: str, name: str) -> Self:
        return self._with(user=f"system:serviceaccount:{namespace}:{name}")

    def resource(self, name: str) -> Self:
        return self._with(resource=name)

    def subresource(self, name: str) -> Self:
        return self._with(subresource=name)

    def namespace(self, name: str) -> Self:
        return self._with(namespace=name)

    def name(self, text: str) -> Self:
        return self._with(name=text)

    def without_effect(self, text: str) -> Self:
        """Selectors: no authorizer here decides by them."""
        return self

    def check(self, verb: str) -> AccessDecision:
        return self.decide(msgspec.structs.replace(self.question, verb=verb))

    def _with(self, **parts: str) -> Self:
        return msgspec.structs.replace(self, question=msgspec.structs.replace(self.question, **parts))


def _method(receiver_type: type, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(receiver: Any, *arguments: Any) -> Any:
        if not isinstance(receiver, receiver_type):
            raise CelError(NO_SUCH_OVERLOAD)
        return method(receiver, *arguments)

    return call


_CHECK_METHODS: dict[str, Callable[..., Any]] = {
    "path": AccessCheck.path,
    "group": AccessCheck.group,
    "serviceAccount": AccessCheck.service_account,
    "resource": AccessCheck.resource,
    "subresource": AccessCheck.subresource,
    "namespace": AccessCheck.namespace,
    "name": AccessCheck.name,
    "fieldSelector": AccessCheck.without_effect,
    "labelSelector": AccessCheck.without_effect,
    "check": AccessCheck.check,
}
_DECISION_METHODS: dict[str, Callable[..., Any]] = {
    "allowed": AccessDecision.allowed,
    "reason": AccessDecision.reason,
    "errored": AccessDecision.errored,
    "error": AccessDecision.error,
}
AUTHORIZATION_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _method(AccessCheck, method) for name, method in _CHECK_METHODS.items()},
    **{name: _method(AccessDecision, method) for name, method in _DECISION_METHODS.items()},
}
