"""CEL in admission: the variables of expressions, and expressions compiled against them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gangline.base.errors import InputError
from gangline.schema.cel.checker import InstantiationError, check_expression
from gangline.schema.cel.program import CelProgram
from gangline.schema.cel.syntax import ExpressionError
from gangline.schema.cel.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    CelType,
    list_type,
    map_type,
)

CALL_COST_LIMIT = 1_000_000
COST_BUDGET = 10_000_000
"""What the expressions of one policy or webhook may cost together."""


class CompilationError(InputError):
    """An expression that cannot be run, in the words of kube-apiserver."""


def _struct(name: str, fields: Mapping[str, CelType]) -> CelType:
    return CelType("struct", (), f"kubernetes.{name}", fields)


_KIND = _struct("GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
_RESOURCE = _struct("GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
_USER = _struct(
    "UserInfo",
    {
        "username": STRING,
        "uid": STRING,
        "groups": list_type(STRING),
        "extra": map_type(STRING, list_type(STRING)),
    },
)
_REQUEST = _struct(
    "AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
_CONDITION = _struct(
    "NamespaceCondition",
    {"status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING, "reason": STRING},
)
_NAMESPACE = _struct(
    "Namespace",
    {
        "metadata": _struct(
            "NamespaceMetadata",
            {
                "name": STRING,
                "generateName": STRING,
                "namespace": STRING,
                "labels": map_type(STRING, STRING),
                "annotations": map_type(STRING, STRING),
                "UID": STRING,
                "creationTimestamp": TIMESTAMP,
                "deletionGracePeriodSeconds": INT,
                "deletionTimestamp": TIMESTAMP,
                "generation": INT,
                "resourceVersion": STRING,
                "finalizers": list_type(STRING),
            },
        ),
        "spec": _struct("NamespaceSpec", {"finalizers": list_type(STRING)}),
        "status": _struct("NamespaceStatus", {"conditions": list_type(_CONDITION), "phase": STRING}),
    },
)
_AUTHORIZER = CelType("opaque", (), "kubernetes.authorization.Authorizer")
_RESOURCE_CHECK = CelType("opaque", (), "kubernetes.authorization.ResourceCheck")


class AdmissionVariables:
    """The variables that the expressions of one policy or webhook may use, with their types."""

    def __init__(self, *, params: bool = False, authorizer: bool = True) -> None:
        self._types: dict[str, CelType] = {
            "object": DYN,
            "oldObject": DYN,
            "namespaceObject": _NAMESPACE,
            "request": _REQUEST,
        }
        if params:
            self._types["params"] = DYN
        if authorizer:
            self._types |= {"authorizer": _AUTHORIZER, "authorizer.requestResource": _RESOURCE_CHECK}
        self._composed: dict[str, CelType] = {}

    def declare(self, name: str, cel_type: CelType) -> None:
        """Let later expressions use `variables.NAME`."""
        self._composed = {**self._composed, name: cel_type}
        self._types["variables"] = CelType("struct", (), "kubernetes.variables", self._composed)

    def compile(self, source: str, *returns: CelType) -> CelProgram:
        """The program of an expression with one of these results, or with any. Raises `CompilationError`."""
        try:
            checked = check_expression(source, self._types)
        except InstantiationError as error:
            raise CompilationError(f"program instantiation failed: {error}") from error
        except ExpressionError as error:
            raise CompilationError(f"compilation failed: {error}") from error
        if returns and checked.result not in returns:
            raise CompilationError(_unexpected_result(returns, checked.result))
        return CelProgram(checked, CALL_COST_LIMIT)


def _unexpected_result(returns: Sequence[CelType], result: CelType) -> str:
    names = ["null_type" if one == NULL else str(one) for one in returns]
    expected = names[0] if len(names) == 1 else f"one of [{' '.join(names)}]"
    return f"must evaluate to {expected} but got {result}"


@lru_cache(256)
def condition_program(source: str) -> CelProgram:
    """The program of a webhook's match condition. Raises `CompilationError`."""
    return AdmissionVariables().compile(source, BOOL)
