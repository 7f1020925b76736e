"""Certificate signing requests."""

import base64
import binascii
from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.rules import KindRules
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, restore_field
from gangline.base.errors import InputError
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, required, unsupported

LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_MIN_EXPIRATION = 600
_TRUE_ONLY = frozenset({"Approved", "Denied", "Failed"})
_STATUS_VALUES = ("False", "True", "Unknown")


class CertificateRequestStrategy(DeclaredStrategy):
    def __init__(self, definition: str, rules: KindRules, *, namespaced: bool, status: bool) -> None:
        super().__init__(definition, rules, namespaced=namespaced, status=status)
        self.status = _RequestStatusStrategy(self, sets_certificate=True)
        self._approval = _RequestStatusStrategy(self, sets_certificate=False)

    def part(self, subresource: str) -> StatusStrategy | None:
        return self._approval if subresource == "approval" else None

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        obj["status"] = {}

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        restore_field(obj, old, "spec")
        restore_field(obj, old, "status")

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems = _validate_request(spec.get("request") or "")
        problems += super().validate_content(obj)
        usages = spec.get("usages") or []
        for index, usage in enumerate(usages):
            if usage in usages[:index]:
                problems.append(duplicate(f"spec.usages[{index}]", usage))
        problems += _validate_signer(spec.get("signerName") or "", "spec.signerName")
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < _MIN_EXPIRATION:
            detail = "may not specify a duration less than 600 seconds (10 minutes)"
            problems.append(invalid("spec.expirationSeconds", seconds, detail))
        return problems


class _RequestStatusStrategy(StatusStrategy):
    """The status, or the approval, of a request: who may write one may not write the other."""

    def __init__(self, kind: DeclaredStrategy, *, sets_certificate: bool) -> None:
        super().__init__(kind.metadata)
        self._sets_certificate = sets_certificate

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        if not self._sets_certificate:
            restore_field(obj.setdefault("status", {}), old.get("status") or {}, "certificate")

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        new, before = obj["status"], old.get("status") or {}
        conditions, path = new.get("conditions") or [], "status.conditions"
        problems = _validate_conditions(conditions)
        for kind in ("Approved", "Denied", "Failed"):
            was, now = _of_type(before.get("conditions") or (), kind), _of_type(conditions, kind)
            if len(now) < len(was):
                problems.append(forbidden(path, f"updates may not remove a condition of type {quoted_text(kind)}"))
            elif self._sets_certificate and kind != "Failed" and len(now) > len(was):
                problems.append(forbidden(path, f"updates may not add a condition of type {quoted_text(kind)}"))
            elif self._sets_certificate and kind != "Failed" and now != was:
                problems.append(forbidden(path, f"updates may not modify a condition of type {quoted_text(kind)}"))
        certificate, existing = new.get("certificate"), before.get("certificate")
        if certificate != existing and existing:
            problems.append(forbidden("status.certificate", "updates may not modify existing certificate content"))
        elif certificate:
            problems += _validate_certificate(certificate)
        return problems


def _of_type(conditions: Iterable[JSON], kind: str) -> list[JSON]:
    return [condition for condition in conditions if condition.get("type") == kind]


def _validate_conditions(conditions: list[JSON]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    types = [condition.get("type", "") for condition in conditions]
    for index, condition in enumerate(conditions):
        path, kind, status = f"status.conditions[{index}]", types[index], condition.get("status", "")
        allowed = ("True",) if kind in _TRUE_ONLY else _STATUS_VALUES
        if not kind:
            problems.append(required(f"{path}.type"))
        if not status:
            problems.append(required(f"{path}.status"))
        elif status not in allowed:
            problems.append(unsupported(f"{path}.status", status, allowed))
        if kind in ("Approved", "Denied") and {"Approved", "Denied"} <= set(types[: index + 1]):
            detail = "Approved and Denied conditions are mutually exclusive"
            problems.append(invalid("status.conditions", kind, detail))
        if kind in types[:index]:
            problems.append(duplicate(f"{path}.type", kind))
    return problems


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def _validate_request(text: str) -> list[FieldProblem]:
    # Loaded with the first request: cryptography takes long.
    from gangline.base.certificates.requests import parse_request

    try:
        parse_request(_decoded(text))
    except InputError as error:
        return [invalid("spec.request", text, str(error))]
    return []


def _validate_certificate(text: str) -> list[FieldProblem]:
    from gangline.base.certificates.requests import certificates_problem

    problem = certificates_problem(_decoded(text))
    return [invalid("status.certificate", "<certificate data>", problem)] if problem else []


def _validate_signer(name: str, path: str) -> list[FieldProblem]:
    """Problems of the name of a signer: `example.com/name`."""
    if not name:
        return []  # reported as required
    if name == LEGACY_SIGNER:
        return [invalid(path, name, "the legacy signerName is not allowed via this API version")]
    domain, _, rest = name.partition("/")
    if not domain or not rest or "/" in rest:
        return [invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")]
    errors = [*formats.dns_subdomain_errors(domain), *formats.dns_subdomain_errors(rest)]
    if "." not in domain:
        errors.append("should be a domain with at least two segments separated by dots")
    return [invalid(path, name, error) for error in errors]
