"""Options in the query of a request: of writes, lists, watches and deletions (whose body may have them too)."""

from collections.abc import Mapping

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed_fields import MAX_MANAGER_BYTES
from gangline.apiserver.errors import NamedKind, untyped_error
from gangline.apiserver.http.request_info import RequestVerb, query_flag
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import type_errors

FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_OPTION_KINDS = {
    RequestVerb.CREATE: "CreateOptions",
    RequestVerb.UPDATE: "UpdateOptions",
    RequestVerb.PATCH: "PatchOptions",
}


def _options_kind(kind: str) -> NamedKind:
    return NamedKind("meta.k8s.io", kind, kind.lower())


def check_write_options(verb: RequestVerb, query: Mapping[str, str], *, apply: bool = False) -> None:
    """Check the query of a write. Raises `StatusError` (422)."""
    if not query and not apply:
        return
    problems = [
        *_dry_run_problems(query),
        *_manager_problems(query, apply=apply),
        *_force_problems(verb, query, apply=apply),
        *_validation_problems(query),
    ]
    if problems:
        raise apierrors.invalid(_options_kind(_OPTION_KINDS.get(verb, "UpdateOptions")), "", problems)


def _dry_run_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    dry_run = query.get("dryRun", "All")
    if dry_run == "All":
        return []
    return [FieldProblem(ProblemKind.NOT_SUPPORTED, "dryRun", [dry_run], 'supported values: "All"')]


def _manager_problems(query: Mapping[str, str], *, apply: bool) -> list[FieldProblem]:
    name = query.get("fieldManager", "")
    if apply and not name:
        return [FieldProblem(ProblemKind.REQUIRED, "fieldManager", detail="is required for apply patch")]
    if len(name.encode()) > MAX_MANAGER_BYTES:
        detail = f"may not be more than {MAX_MANAGER_BYTES} bytes"
        return [FieldProblem(ProblemKind.TOO_LONG, "fieldManager", detail=detail)]
    return [
        FieldProblem(
            ProblemKind.INVALID, "fieldManager", name, f"invalid character U+{ord(letter):04X} (at position {position})"
        )
        for position, letter in enumerate(name)
        if not letter.isprintable()
    ][:1]


def _force_problems(verb: RequestVerb, query: Mapping[str, str], *, apply: bool) -> list[FieldProblem]:
    if verb is not RequestVerb.PATCH or apply or "force" not in query:
        return []
    return [FieldProblem(ProblemKind.FORBIDDEN, "force", detail="may not be specified for non-apply patch")]


def _validation_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    validation = query.get("fieldValidation", "")
    if validation in FIELD_VALIDATIONS:
        return []
    supported = ", ".join(f'"{known}"' for known in FIELD_VALIDATIONS)
    return [FieldProblem(ProblemKind.NOT_SUPPORTED, "fieldValidation", validation, f"supported values: {supported}")]


# Lists and watches

_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"


MAX_DIGITS = 1000
"""Longer numbers are out of range before they are converted, which takes quadratic time."""


def query_integer(query: Mapping[str, str], name: str) -> int | None:
    """An integer in a query; None if it is missing or empty. Raises `StatusError` (400)."""
    text = query.get(name, "")
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdecimal()):
        raise apierrors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(digits) > MAX_DIGITS or not -(2**63) <= int(text) < 2**63:
        raise apierrors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def check_list_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Check the query of a list or watch.

    Raises `StatusError`: 400 for a bad integer, 422 for options that do not combine.
    """
    for name in ("limit", "timeoutSeconds"):
        query_integer(query, name)
    if "resourceVersionMatch" not in query and "sendInitialEvents" not in query:
        return
    problems = _watch_problems(query) if watch else _list_problems(query)
    if problems:
        raise apierrors.invalid(_options_kind("ListOptions"), "", problems)


def _list_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    problems: list[FieldProblem] = []
    if match and not version:
        problems.append(_forbidden("resourceVersionMatch", "is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        problems.append(_forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
    if match not in ("", _EXACT, _NOT_OLDER):
        problems.append(_unsupported_match(match, f'"{_EXACT}", "{_NOT_OLDER}", ""'))
    if match == _EXACT and version == "0":
        problems.append(_forbidden("resourceVersionMatch", '"exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        problems.append(_forbidden("sendInitialEvents", "is forbidden for list"))
    return problems


def _watch_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    match, has_initial_events = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    problems: list[FieldProblem] = []
    if has_initial_events and match != _NOT_OLDER:
        detail = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        problems.append(FieldProblem(ProblemKind.FORBIDDEN, "resourceVersionMatch", detail=detail))
    if match and not has_initial_events:
        detail = "is forbidden for watch unless sendInitialEvents is provided"
        problems.append(_forbidden("resourceVersionMatch", detail))
    if match not in ("", _NOT_OLDER):
        problems.append(_unsupported_match(match, f'"{_NOT_OLDER}"'))
    if match and query.get("continue"):
        problems.append(_forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
    return problems


def _forbidden(field: str, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.FORBIDDEN, field, detail=f"{field} {detail}")


def _unsupported_match(match: str, supported: str) -> FieldProblem:
    return FieldProblem(ProblemKind.NOT_SUPPORTED, "resourceVersionMatch", match, f"supported values: {supported}")


# Deletions

PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")


def deletion_options(body: JSON | None, query: Mapping[str, str]) -> DeletionOptions:
    """The options in the body, or, only if there is no body, in the query. Raises `StatusError`."""
    raw: JSON = _options_from_body(body) if body else _options_from_query(query)
    problems = _option_problems(raw)
    if problems:
        raise apierrors.invalid(_options_kind("DeleteOptions"), "", problems)
    preconditions = raw.get("preconditions") or {}
    return DeletionOptions(
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        grace_seconds=raw.get("gracePeriodSeconds"),
        propagation_policy=raw.get("propagationPolicy") or "",
        orphan_dependents=raw.get("orphanDependents"),
        dry_run=bool(raw.get("dryRun")),
    )


def _options_from_body(body: JSON) -> JSON:
    kind, version = body.get("kind") or "DeleteOptions", body.get("apiVersion") or "meta.k8s.io/v1"
    if kind != "DeleteOptions":
        raise untyped_error(apierrors.unregistered_kind_text(kind, version))
    if errors := type_errors(body, builtin_type("v1", "DeleteOptions")):
        raise untyped_error(errors[0])
    return body


def _options_from_query(query: Mapping[str, str]) -> JSON:
    raw: JSON = {}
    grace = query_integer(query, "gracePeriodSeconds")
    if grace is not None:
        raw["gracePeriodSeconds"] = grace
    if "propagationPolicy" in query:
        raw["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        raw["orphanDependents"] = query_flag(query, "orphanDependents")
    if "dryRun" in query:
        raw["dryRun"] = [query["dryRun"]]
    return raw


def _option_problems(raw: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    policy, orphan, dry_run = raw.get("propagationPolicy"), raw.get("orphanDependents"), raw.get("dryRun")
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(FieldProblem(ProblemKind.INVALID, "propagationPolicy", policy, detail))
    elif policy is not None and policy not in PROPAGATION_POLICIES:
        detail = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        problems.append(FieldProblem(ProblemKind.NOT_SUPPORTED, "propagationPolicy", policy, detail))
    if dry_run and dry_run != ["All"]:
        problems.append(FieldProblem(ProblemKind.NOT_SUPPORTED, "dryRun", dry_run, 'supported values: "All"'))
    return problems
