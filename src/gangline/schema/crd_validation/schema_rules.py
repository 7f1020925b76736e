"""Is the schema of a custom resource definition one that the server would take? All that it would say otherwise."""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gangline.schema.cel.cost import MAX_COST, estimate_cost
from gangline.schema.cel.declare import MAX_REQUEST_BYTES, DeclType, decl_type
from gangline.schema.cel.field_path import FieldPathError, resolve_field_path
from gangline.schema.cel.rules import CompilationResult, compile_rule
from gangline.schema.crd_validation.defaults import default_problems
from gangline.schema.crd_validation.structural_rules import JSON, structural_problems, unsupported_keyword
from gangline.schema.nodes import META_FIELDS, SchemaNode
from gangline.schema.problems import NO_VALUE, FieldProblem, ProblemKind

SHARED_SCHEMA_PATH = "spec.validation.openAPIV3Schema"
"""The path of the schema when all versions share one."""
RULE_COST_LIMIT = 10_000_000
TOTAL_COST_LIMIT = 100_000_000
_JSON_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LEAF_KEYWORDS = frozenset(
    {"type", "format", "description", "title", "minimum", "maximum", "enum", "pattern", "nullable"}
)
"""Keywords of which, with a type that exists, nothing here can be wrong."""
_UNSUPPORTED_KEYWORDS = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_UNSUPPORTED_KEYWORD_SET = frozenset(_UNSUPPORTED_KEYWORDS)
_JUNCTORS = frozenset({"not", "allOf", "oneOf", "anyOf", "definitions"})
_RULE_REASONS = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")
_STATUS_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern"
    " MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example"
    " XPreserveUnknownFields XValidations"
)
_STATUS_ROOT_KEYWORDS = (
    "description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern"
    " maxItems minItems uniqueItems multipleOf required items properties externalDocs example nullable"
    " x-kubernetes-preserve-unknown-fields x-kubernetes-validations"
)
_STATUS_ROOT_KEYWORD_SET = frozenset(_STATUS_ROOT_KEYWORDS.split())
_COST_ADVICE = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"


class _ValidationRule(msgspec.Struct, frozen=True):
    """A rule as the server prints it in its complaints."""

    Rule: str
    Message: str
    MessageExpression: str
    Reason: str | None
    FieldPath: str
    OptionalOldSelf: bool | None


def check_crd_schema(schema: JSON, path: str = SHARED_SCHEMA_PATH, *, status: bool = False) -> list[FieldProblem]:
    """All that is wrong with the schema of a version, in the server's words and under its path.

    Args:
        schema: `openAPIV3Schema` of the version.
        path: where the schema stands: `SHARED_SCHEMA_PATH` when all versions have the same, else
            `spec.versions[i].schema.openAPIV3Schema`.
        status: whether the status subresource is on, which limits what may stand at the root.
    """
    problems = list(_root_problems(schema, path, status=status))
    impossible = unsupported_keyword(schema)
    rules: _CostContext | None = None
    if not impossible:
        node = SchemaNode(schema)
        wrong = structural_problems(schema, path) or default_problems(node, path)
        problems += wrong
        rules = None if wrong else _CostContext(node, limit=1)
    walk = _SchemaValidator()
    walk.validate_schema(schema, path, _SchemaContext(root=True), rules)
    problems += walk.problems + walk.rule_problems
    if impossible and not problems:
        problems.append(FieldProblem(ProblemKind.INVALID, path, "", impossible))
    return problems + _total_problems(walk, path)


def _root_problems(schema: JSON, path: str, *, status: bool) -> Iterator[FieldProblem]:
    if status:
        kind = schema.get("type")
        if kind and kind != "object":
            only = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield FieldProblem(ProblemKind.INVALID, f"{path}.type", kind, only)
        said = {name for name, value in schema.items() if value not in (None, "", [], {}, False)}
        if said - _STATUS_ROOT_KEYWORD_SET:
            only = f"only [{_STATUS_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is enabled"
            yield FieldProblem(ProblemKind.INVALID, path, schema, only)
    if schema.get("nullable"):
        yield FieldProblem(ProblemKind.FORBIDDEN, f"{path}.nullable", NO_VALUE, "nullable cannot be true at the root")


class _SchemaContext(msgspec.Struct, frozen=True):
    """What the place in the schema forbids."""

    root: bool = False
    inside_meta: bool = False
    no_defaults: str = ""
    """Why there must be no default here."""
    uncorrelated: str = ""
    """The list or map whose elements cannot be told apart, so that old and new do not meet."""


class _CostContext:
    """How often a schema can occur in one object, for the cost of its rules."""

    def __init__(self, node: SchemaNode, *, limit: int | None) -> None:
        self.node, self.max_occurrences = node, limit

    def child(self, part: SchemaNode | None) -> "_CostContext | None":
        if part is None:
            return None
        factor = self._max_elements()
        limit = None if self.max_occurrences is None or factor is None else min(self.max_occurrences * factor, MAX_COST)
        return _CostContext(part, limit=limit)

    def _max_elements(self) -> int | None:
        if self.node.type == "object" and self.node.has_additional_properties:
            most = self.node.schema.get("maxProperties")
            return None if most is None else max(most, 0)
        if self.node.type == "array":
            most = self.node.schema.get("maxItems")
            return None if most is None else max(most, 0)
        return 1


class _SchemaValidator:
    """The walk over a schema that finds all but what makes it structural."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []
        self.rule_problems: list[FieldProblem] = []
        self.total_cost = 0
        self.costliest: list[tuple[int, str]] = []

    def _add_forbidden(self, path: str, detail: str) -> None:
        self.problems.append(FieldProblem(ProblemKind.FORBIDDEN, path, NO_VALUE, detail))

    def _add_required(self, path: str, detail: str) -> None:
        self.problems.append(FieldProblem(ProblemKind.REQUIRED, path, NO_VALUE, detail))

    def _add_invalid(self, path: str, value: Any, detail: str) -> None:
        self.problems.append(FieldProblem(ProblemKind.INVALID, path, value, detail))

    def _add_unsupported(self, path: str, value: Any, allowed: tuple[str, ...]) -> None:
        detail = f"supported values: {', '.join(f'{chr(34)}{one}{chr(34)}' for one in allowed)}"
        self.problems.append(FieldProblem(ProblemKind.NOT_SUPPORTED, path, value, detail))

    def validate_schema(self, schema: JSON, path: str, state: _SchemaContext, context: _CostContext | None) -> None:
        before = len(self.problems)
        self._validate_keywords(schema, path, state)
        self._validate_properties(schema, path, state, context)
        self._validate_junctors(schema, path, state)
        self._validate_items(schema, path, state, context)
        self._validate_extensions(schema, path)
        self._validate_list_map_keys(schema, path)
        self._validate_rules(schema, path, context)
        if schema.get("x-kubernetes-validations") and context is not None and len(self.problems) == before:
            self._validate_compiled_rules(schema, path, state, context)

    def _validate_keywords(self, schema: JSON, path: str, state: _SchemaContext) -> None:
        kind = schema.get("type") or ""
        if kind and kind not in _JSON_TYPES:
            self._add_unsupported(f"{path}.type", kind, _JSON_TYPES)
        if schema.get("default") is not None and state.no_defaults:
            self._add_forbidden(f"{path}.default", f"must not be set {state.no_defaults}")
        for name in () if _UNSUPPORTED_KEYWORD_SET.isdisjoint(schema) else _UNSUPPORTED_KEYWORDS:
            if schema.get(name) not in (None, "", {}) or (name == "additionalItems" and name in schema):
                self._add_forbidden(f"{path}.{name}", f"{name} is not supported")
        if kind == "null":
            self._add_forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
        if isinstance(schema.get("items"), list) and schema["items"]:
            self._add_forbidden(f"{path}.items", "items must be a schema object and not an array")
        if state.inside_meta and schema.get("x-kubernetes-embedded-resource"):
            self._add_forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
        if schema.get("uniqueItems"):
            detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            self._add_forbidden(f"{path}.uniqueItems", detail)

    def _validate_properties(
        self, schema: JSON, path: str, state: _SchemaContext, context: _CostContext | None
    ) -> None:
        more, properties = schema.get("additionalProperties"), schema.get("properties") or {}
        if more is None and not properties:
            return
        if more is not None and properties and more is not True:
            detail = "additionalProperties and properties are mutual exclusive"
            self._add_forbidden(f"{path}.additionalProperties", detail)
        inner = msgspec.structs.replace(state, root=False)
        if isinstance(more, dict):
            why = "inside additionalProperties applying to object metadata"
            below = msgspec.structs.replace(inner, no_defaults=why) if state.inside_meta else inner
            self.validate_schema(
                more,
                f"{path}.additionalProperties",
                below,
                context and context.child(context.node.additional_properties),
            )
        resource = state.root or schema.get("x-kubernetes-embedded-resource")
        for name, part in sorted(properties.items()):
            if part.keys() <= _LEAF_KEYWORDS and part.get("type") in _JSON_TYPES:
                continue
            below = inner
            if resource and name in META_FIELDS:
                why = f"in top-level {name}" if state.root else inner.no_defaults
                below = msgspec.structs.replace(inner, inside_meta=True, no_defaults=why)
            child = context.node.properties.get(name) if context else None
            self.validate_schema(part, f"{path}.properties[{name}]", below, context and context.child(child))

    def _validate_junctors(self, schema: JSON, path: str, state: _SchemaContext) -> None:
        if _JUNCTORS.isdisjoint(schema):
            return
        inner = msgspec.structs.replace(state, root=False)
        if isinstance(schema.get("not"), dict):
            self.validate_schema(schema["not"], f"{path}.not", inner, None)
        for name in ("allOf", "oneOf", "anyOf"):
            for index, part in enumerate(schema.get(name) or ()):
                self.validate_schema(part, f"{path}.{name}[{index}]", inner, None)
        for name, part in sorted((schema.get("definitions") or {}).items()):
            self.validate_schema(part, f"{path}.definitions[{name}]", inner, None)

    def _validate_items(self, schema: JSON, path: str, state: _SchemaContext, context: _CostContext | None) -> None:
        items = schema.get("items")
        if items is None:
            return
        inner = msgspec.structs.replace(state, root=False)
        if schema.get("x-kubernetes-list-type") != "map" and not inner.uncorrelated:
            inner = msgspec.structs.replace(inner, uncorrelated=path)
        if isinstance(items, dict):
            self.validate_schema(items, f"{path}.items", inner, context and context.child(context.node.items))
        for index, part in enumerate(items if isinstance(items, list) else ()):
            self.validate_schema(part, f"{path}.items[{index}]", inner, None)

    def _validate_extensions(self, schema: JSON, path: str) -> None:
        kind = schema.get("type") or ""
        if schema.get("x-kubernetes-preserve-unknown-fields") is False:
            self._add_invalid(
                f"{path}.x-kubernetes-preserve-unknown-fields",
                value=False,
                detail="must be true or undefined",
            )
        for name, wanted, allowed in (
            ("x-kubernetes-map-type", "object", ("atomic", "granular")),
            ("x-kubernetes-list-type", "array", ("atomic", "set", "map")),
        ):
            said = schema.get(name)
            if said is None:
                continue
            if kind != wanted:
                detail = f"must be {wanted} if {name} is specified"
                if kind:
                    self._add_invalid(f"{path}.type", kind, detail)
                else:
                    self._add_required(f"{path}.type", detail)
            elif said == "set":
                self._validate_set_items(schema, path)
            if said not in allowed:
                self._add_unsupported(f"{path}.{name}", said, allowed)

    def _validate_set_items(self, schema: JSON, path: str) -> None:
        items = schema.get("items")
        if not isinstance(items, dict):
            return
        detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
        list_type = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and list_type not in (None, "atomic"):
            self._add_invalid(f"{path}.items.x-kubernetes-list-type", list_type, detail)
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            self._add_invalid(f"{path}.items.x-kubernetes-map-type", list_type, detail)

    def _validate_list_map_keys(self, schema: JSON, path: str) -> None:
        list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
        if keys and list_type != "map":
            detail = "must be map if x-kubernetes-list-map-keys is non-empty"
            if list_type is None:
                self._add_required(f"{path}.x-kubernetes-list-type", detail)
            else:
                self._add_invalid(f"{path}.x-kubernetes-list-type", list_type, detail)
        items = schema.get("items")
        if list_type == "map":
            if not keys:
                detail = "must not be empty if x-kubernetes-list-type is map"
                self._add_required(f"{path}.x-kubernetes-list-map-keys", detail)
            if items is None:
                self._add_required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
            elif isinstance(items, dict):
                self._validate_map_items(items, keys, path)
        if isinstance(items, dict) and list_type in ("set", "map"):
            self._validate_key_properties(items, keys if list_type == "map" else [], list_type, path)

    def _validate_map_items(self, items: JSON, keys: list[str], path: str) -> None:
        kind = items.get("type") or ""
        if kind != "object":
            detail = "must be object if parent array's x-kubernetes-list-type is map"
            self._add_invalid(f"{path}.items.type", kind, detail)
            return
        properties = items.get("properties") or {}
        where = f"{path}.x-kubernetes-list-map-keys"
        for index, key in enumerate(keys):
            if key not in properties:
                self._add_invalid(where, keys, "entries must all be names of item properties")
            elif properties[key].get("type") in ("array", "object"):
                detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                self._add_invalid(f"{path}.items.properties[{key}].type", kind, detail)
            if key in keys[:index]:
                self._add_invalid(where, keys, "must not contain duplicate entries")

    def _validate_key_properties(self, items: JSON, keys: list[str], list_type: str, path: str) -> None:
        if items.get("nullable"):
            self._add_forbidden(
                f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}"
            )
        for key in keys:
            part = (items.get("properties") or {}).get(key)
            if part is None:
                continue
            where = f"{path}.items.properties[{key}]"
            listed = "this property is in x-kubernetes-list-map-keys, so it"
            if key not in (items.get("required") or []) and part.get("default") is None:
                self._add_required(f"{where}.default", f"{listed} must have a default or be a required property")
            if part.get("nullable"):
                self._add_forbidden(f"{where}.nullable", f"{listed} cannot be nullable")

    def _validate_rules(self, schema: JSON, path: str, context: _CostContext | None) -> None:
        for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
            where = f"{path}.x-kubernetes-validations[{index}]"
            self._validate_rule_texts(rule, where)
            reason = rule.get("reason")
            if reason is not None and reason not in _RULE_REASONS:
                self._add_unsupported(f"{where}.reason", reason, tuple(sorted(_RULE_REASONS)))
            self._validate_rule_path(schema, rule.get("fieldPath") or "", f"{where}.fieldPath", context)

    def _validate_rule_texts(self, rule: JSON, where: str) -> None:
        text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
        if not text:
            self._add_required(f"{where}.rule", "rule is not specified")
        elif message and not message.strip():
            self._add_invalid(f"{where}.message", message, "must be non-empty if specified")
        elif re.search(r"[\n\r]", message.strip()):
            self._add_invalid(f"{where}.message", message, "must not contain line breaks")
        elif re.search(r"[\n\r]", text) and not message.strip():
            self._add_required(f"{where}.message", "message must be specified if rule contains line breaks")
        expression = rule.get("messageExpression") or ""
        if expression and not expression.strip():
            self._add_required(f"{where}.messageExpression", "messageExpression must be non-empty if specified")

    def _validate_rule_path(self, schema: JSON, said: str, where: str, context: _CostContext | None) -> None:
        if said and not said.strip():
            self._add_invalid(where, said, "must be non-empty if specified")
        if re.search(r"[\n\r]", said):
            self._add_invalid(where, said, "must not contain line breaks")
        if said and (context is not None or not unsupported_keyword(schema)):
            try:
                resolve_field_path(said, context.node if context is not None else SchemaNode(schema))
            except FieldPathError:
                self._add_invalid(where, said, "must be a valid path")

    def _validate_compiled_rules(self, schema: JSON, path: str, state: _SchemaContext, context: _CostContext) -> None:
        found = decl_type(context.node, "selfType", root=state.root or context.node.embedded)
        where = f"{path}.x-kubernetes-validations"
        if found is None:
            reason = "unable to convert structural schema to CEL declarations"
            detail = (
                f"internal error: failed to construct type information for x-kubernetes-validations rules: {reason}"
            )
            self.rule_problems.append(FieldProblem(ProblemKind.INTERNAL, where, NO_VALUE, detail))
            return
        for index, rule in enumerate(schema["x-kubernetes-validations"]):
            self._validate_compiled_rule(compile_rule(rule, found.type), found, f"{where}[{index}]", state, context)

    def _validate_compiled_rule(
        self,
        rule: CompilationResult,
        found: DeclType,
        where: str,
        state: _SchemaContext,
        context: _CostContext,
    ) -> None:
        tell = self.rule_problems.append
        self._validate_cost(rule, found, where, context)
        shown = _printed_rule(rule.rule)
        if rule.error:
            tell(FieldProblem(ProblemKind.INVALID, f"{where}.rule", shown, rule.error))
        if rule.message_error:
            tell(FieldProblem(ProblemKind.INVALID, f"{where}.messageExpression", shown, rule.message_error))
        elif rule.message_expr is not None:
            cost = estimate_cost(rule.message_expr, found)
            if cost > RULE_COST_LIMIT:
                detail = _cost_exceeded_message("estimated messageExpression cost", cost, RULE_COST_LIMIT)
                tell(FieldProblem(ProblemKind.FORBIDDEN, f"{where}.messageExpression", NO_VALUE, detail))
            self._record_cost(cost, f"{where}.messageExpression")
        if rule.uses_old_self:
            if state.uncorrelated:
                detail = (
                    f"oldSelf cannot be used on the uncorrelatable portion of the schema within {state.uncorrelated}"
                )
                tell(FieldProblem(ProblemKind.INVALID, f"{where}.rule", rule.rule.get("rule"), detail))
        elif rule.rule.get("optionalOldSelf") is not None:
            detail = "may not be set if oldSelf is not used in rule"
            tell(FieldProblem(ProblemKind.INVALID, f"{where}.optionalOldSelf", rule.rule["optionalOldSelf"], detail))

    def _validate_cost(self, rule: CompilationResult, found: DeclType, where: str, context: _CostContext) -> None:
        if rule.checked_expr is None:
            return
        often = (
            MAX_REQUEST_BYTES // (found.min_serialized_size + 1)
            if context.max_occurrences is None
            else context.max_occurrences
        )
        cost = min(estimate_cost(rule.checked_expr, found) * often, MAX_COST)
        if cost > RULE_COST_LIMIT:
            detail = _cost_exceeded_message("estimated rule cost", cost, RULE_COST_LIMIT)
            self.rule_problems.append(FieldProblem(ProblemKind.FORBIDDEN, f"{where}.rule", NO_VALUE, detail))
        self._record_cost(cost, f"{where}.rule")

    def _record_cost(self, cost: int, where: str) -> None:
        self.total_cost = min(self.total_cost + cost, MAX_COST)
        if cost >= TOTAL_COST_LIMIT // 100:
            self.costliest = sorted([*self.costliest, (cost, where)], key=lambda one: -one[0])[:4]


def _printed_rule(rule: JSON) -> _ValidationRule:
    said = rule.get
    return _ValidationRule(
        said("rule") or "",
        said("message") or "",
        said("messageExpression") or "",
        said("reason"),
        said("fieldPath") or "",
        said("optionalOldSelf"),
    )


def _cost_exceeded_message(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{_one_decimal(factor)}x"
    return f"{name} exceeds budget by factor of {shown} {_COST_ADVICE}"


def _one_decimal(factor: float) -> str:
    return f"{factor:.1f}" if math.isfinite(factor) else "+Inf"


def _total_problems(walk: _SchemaValidator, path: str) -> list[FieldProblem]:
    if walk.total_cost <= TOTAL_COST_LIMIT:
        return []
    share = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    found = [FieldProblem(ProblemKind.FORBIDDEN, where, NO_VALUE, share) for _, where in walk.costliest]
    name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    return [
        *found,
        FieldProblem(
            ProblemKind.FORBIDDEN,
            path,
            NO_VALUE,
            _cost_exceeded_message(name, walk.total_cost, TOTAL_COST_LIMIT),
        ),
    ]
