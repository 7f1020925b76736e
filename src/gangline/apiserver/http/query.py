"""What the query of a request says: dry run, who writes, unknown fields; pages, versions, times of lists and watches."""

from collections.abc import Mapping

import msgspec

from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.routes import RequestVerb
from gangline.schema.problems import FieldProblem, ProblemKind

FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
MAX_MANAGER_BYTES = 128
_OPTION_KINDS = {
    RequestVerb.CREATE: "CreateOptions",
    RequestVerb.UPDATE: "UpdateOptions",
    RequestVerb.PATCH: "PatchOptions",
}


class _OptionsKind(msgspec.Struct, frozen=True):
    kind: str
    group: str = "meta.k8s.io"
    plural: str = ""


def check_write_options(verb: RequestVerb, query: Mapping[str, str], *, apply: bool = False) -> None:
    """Raises `Refused` (422) for a query that no server understands."""
    if not query and not apply:
        return
    problems = [
        *_dry_run_problems(query),
        *_manager_problems(query, apply=apply),
        *_force_problems(verb, query, apply=apply),
    ]
    problems += _validation_problems(query)
    if problems:
        raise apierrors.invalid(_OptionsKind(_OPTION_KINDS.get(verb, "UpdateOptions")), "", problems)


def _dry_run_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    wanted = query.get("dryRun", "All")
    if wanted == "All":
        return []
    return [FieldProblem(ProblemKind.NOT_SUPPORTED, "dryRun", [wanted], 'supported values: "All"')]


def _manager_problems(query: Mapping[str, str], *, apply: bool) -> list[FieldProblem]:
    name = query.get("fieldManager", "")
    if apply and not name:
        return [FieldProblem(ProblemKind.REQUIRED, "fieldManager", detail="is required for apply patch")]
    if len(name.encode()) > MAX_MANAGER_BYTES:
        detail = f"may not be more than {MAX_MANAGER_BYTES} bytes"
        return [FieldProblem(ProblemKind.TOO_LONG, "fieldManager", detail=detail)]
    return [
        FieldProblem(
            ProblemKind.INVALID,
            "fieldManager",
            name,
            f"invalid character U+{ord(letter):04X} (at position {place})",
        )
        for place, letter in enumerate(name)
        if not letter.isprintable()
    ][:1]


def _force_problems(verb: RequestVerb, query: Mapping[str, str], *, apply: bool) -> list[FieldProblem]:
    if verb is not RequestVerb.PATCH or apply or "force" not in query:
        return []
    return [FieldProblem(ProblemKind.FORBIDDEN, "force", detail="may not be specified for non-apply patch")]


def _validation_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    wanted = query.get("fieldValidation", "")
    if wanted in FIELD_VALIDATIONS:
        return []
    told = ", ".join(f'"{known}"' for known in FIELD_VALIDATIONS)
    return [FieldProblem(ProblemKind.NOT_SUPPORTED, "fieldValidation", wanted, f"supported values: {told}")]


# Lists and watches

_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"


def query_integer(query: Mapping[str, str], name: str) -> int | None:
    """A number in a query; None when it is not there. Raises `Refused` (400)."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise apierrors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def check_list_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Raises `Refused`: 400 for what cannot be read, 422 for what makes no sense together."""
    for name in ("limit", "timeoutSeconds"):
        query_integer(query, name)
    if "resourceVersionMatch" not in query and "sendInitialEvents" not in query:
        return
    problems = [*_watch_problems(query)] if watch else [*_list_problems(query)]
    if problems:
        raise apierrors.invalid(_OptionsKind("ListOptions"), "", problems)


def _list_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    told: list[FieldProblem] = []
    if match and not version:
        told.append(_forbidden("resourceVersionMatch", "is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        told.append(_forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
    if match not in ("", _EXACT, _NOT_OLDER):
        told.append(_unsupported_match(match, f'"{_EXACT}", "{_NOT_OLDER}", ""'))
    if match == _EXACT and version == "0":
        told.append(_forbidden("resourceVersionMatch", '"exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        told.append(_forbidden("sendInitialEvents", "is forbidden for list"))
    return told


def _watch_problems(query: Mapping[str, str]) -> list[FieldProblem]:
    match, initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    told: list[FieldProblem] = []
    if initial and match != _NOT_OLDER:
        detail = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        told.append(FieldProblem(ProblemKind.FORBIDDEN, "resourceVersionMatch", detail=detail))
    if match and not initial:
        detail = "is forbidden for watch unless sendInitialEvents is provided"
        told.append(_forbidden("resourceVersionMatch", detail))
    if match not in ("", _NOT_OLDER):
        told.append(_unsupported_match(match, f'"{_NOT_OLDER}"'))
    if match and query.get("continue"):
        told.append(_forbidden("resourceVersionMatch", "is forbidden when continue is provided"))
    return told


def _forbidden(field: str, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.FORBIDDEN, field, detail=f"{field} {detail}")


def _unsupported_match(match: str, known: str) -> FieldProblem:
    return FieldProblem(ProblemKind.NOT_SUPPORTED, "resourceVersionMatch", match, f"supported values: {known}")
