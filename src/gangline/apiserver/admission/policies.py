"""Validating admission policies: CEL expressions that refuse, warn about or annotate requests."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector
from gangline.apiserver import errors as apierrors
from gangline.apiserver.admission.policy_outcome import PolicyFailure, PolicyOutcome
from gangline.apiserver.admission.webhooks.matching import (
    MatchedRequest,
    converted,
    matched_kind,
    matches_selectors,
)
from gangline.apiserver.admission.webhooks.plugins import (
    AdmissionSources,
    is_own_step,
    matched_request,
    stored_namespace,
)
from gangline.apiserver.admission.webhooks.reviews import admission_request, request_namespace
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.base.errors import InputError

POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
_CODES = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413, "Unauthorized": 401}
_FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"


class _BindingError(InputError):
    """A binding that cannot be applied."""


class ValidatingAdmissionPolicy(AdmissionPlugin):
    name = "ValidatingAdmissionPolicy"
    operations = frozenset(WriteOperation)
    subresources = None

    def __init__(self, sources: AdmissionSources) -> None:
        self._sources = sources

    async def validate(self, request: AdmissionRequest) -> None:
        bindings = self._sources.configurations.objects(BINDINGS)
        if not bindings:
            return
        matched = matched_request(request, self._sources.store)
        if matched.is_exempt or is_own_step(request):
            return
        refusals = [
            refusal
            for policy in self._sources.configurations.objects(POLICIES)
            for refusal in self._refusals(policy, bindings, request, matched)
        ]
        if refusals:
            raise refusals[0]

    def _refusals(
        self, policy: JSON, bindings: Sequence[JSON], request: AdmissionRequest, matched: MatchedRequest
    ) -> Iterator[StatusError]:
        """The refusals of a policy with all its bindings. Warnings and annotations are added to the request."""
        constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
        kind = self._matched(constraints, request, matched)
        if kind is None:
            return
        name, annotations = policy["metadata"]["name"], dict[str, list[str]]()
        for binding in bindings:
            spec = binding.get("spec") or {}
            if spec.get("policyName") != name:
                continue
            resources = spec.get("matchResources")
            if resources is not None and self._matched(resources, request, matched) is None:
                continue
            try:
                outcomes = [
                    self._evaluate(policy, request, kind, param) for param in self._params(policy, spec, request)
                ]
            except _BindingError as error:
                if policy["spec"].get("failurePolicy") != "Ignore":
                    failure = PolicyFailure(f"failed to configure binding: {error}")
                    yield _refusal(request, name, binding, failure)
                continue
            for outcome in outcomes:
                yield from self._act(request, name, binding, outcome)
                for key, value in outcome.annotations:
                    if value not in annotations.setdefault(key, []):
                        annotations[key].append(value)
        for key, values in annotations.items():
            request.add_audit_annotation(f"{name}/{key}", ", ".join(values))

    def _matched(self, config: JSON, request: AdmissionRequest, matched: MatchedRequest) -> ServedKind | None:
        """The version of the resource that constraints ask for; None if they do not select the request."""
        if not matches_selectors(config, matched):
            return None
        name = "" if request.name_prefix else request.key.name
        if matched_kind(config, _named(config.get("excludeResourceRules", ()), name), matched, self._sources.catalog):
            return None
        if not config.get("resourceRules"):
            return request.served_kind
        return matched_kind(config, _named(config["resourceRules"], name), matched, self._sources.catalog)

    def _act(
        self, request: AdmissionRequest, policy: str, binding: JSON, outcome: PolicyOutcome
    ) -> Iterator[StatusError]:
        actions, name = binding["spec"].get("validationActions") or (), binding["metadata"]["name"]
        for failure in outcome.failures:
            if "Warn" in actions:
                where = f"ValidatingAdmissionPolicy '{policy}' with binding '{name}'"
                request.warnings.append(f"Validation failed for {where}: {failure.message}")
            if "Audit" in actions:
                report = {
                    "message": failure.message,
                    "policy": policy,
                    "binding": name,
                    "expressionIndex": failure.index,
                    "validationActions": actions,
                }
                request.add_audit_annotation(_FAILURE_ANNOTATION, msgspec.json.encode([report]).decode())
            if "Deny" in actions:
                yield _refusal(request, policy, binding, failure)
        for failure in outcome.errors:
            yield _refusal(request, policy, binding, failure)

    # Parameters

    def _params(self, policy: JSON, binding: JSON, request: AdmissionRequest) -> list[JSON | None]:
        """The objects that are `params` in the expressions, each in turn. Raises `_BindingError`."""
        declared, reference = policy["spec"].get("paramKind"), binding.get("paramRef")
        if declared is None or reference is None:
            return [None]
        kind = self._sources.catalog.find_kind(declared["apiVersion"], declared["kind"])
        if kind is None:
            text = f"{declared['apiVersion']}, Kind={declared['kind']}"
            raise _BindingError(f"paramKind kind `{text}` not known")
        namespace = self._params_namespace(kind, reference, request)
        found = list(self._find_params(kind, namespace, reference))
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            raise _BindingError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return list(found)

    def _params_namespace(self, kind: ServedKind, reference: JSON, request: AdmissionRequest) -> str:
        wanted: str = reference.get("namespace") or ""
        if not kind.resource.namespaced:
            if wanted:
                raise _BindingError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            return ""
        namespace = wanted or request_namespace(request)
        if not namespace:
            raise _BindingError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
        return namespace

    def _find_params(self, kind: ServedKind, namespace: str, reference: JSON) -> Iterator[JSON]:
        store, plural = self._sources.store, kind.resource.plural
        if name := reference.get("name"):
            record = store.get(object_path(kind.storage_group, plural, namespace, name))
            if record is not None:
                yield decode_record(record, kind)
            return
        selector = LabelSelector.from_json(reference.get("selector") or {})
        for record in store.range(collection_prefix(kind.storage_group, plural, namespace)).records:
            obj = decode_record(record, kind)
            if selector.matches(obj["metadata"].get("labels") or {}):
                yield obj

    # Expressions

    def _evaluate(self, policy: JSON, request: AdmissionRequest, kind: ServedKind, param: JSON | None) -> PolicyOutcome:
        # Loaded with the first policy: CEL is large.
        from gangline.apiserver.admission.policy_checks import evaluate_policy
        from gangline.apiserver.admission.webhooks.conditions import admission_variables

        has_object = request.operation is not WriteOperation.DELETE
        obj = converted(request.obj, request.served_kind, kind) if has_object else None
        review = admission_request(request, kind, obj, converted(request.old, request.served_kind, kind))
        namespace = stored_namespace(self._sources.store, request.key.namespace) if request.key.namespace else None
        variables: dict[str, Any] = admission_variables(
            review, request.context.user, self._sources.authorizer, namespace
        )
        return evaluate_policy(policy["spec"], {**variables, "params": param})


def _named(rules: Sequence[JSON], name: str) -> list[JSON]:
    """The rules that name no objects, or the one with this name."""
    return [rule for rule in rules if not rule.get("resourceNames") or name in rule["resourceNames"]]


def _refusal(request: AdmissionRequest, policy: str, binding: JSON, failure: PolicyFailure) -> StatusError:
    where = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding['metadata']['name']}'"
    text = f"{where} denied request: {failure.message}"
    error = apierrors.forbidden(request.served_kind.resource, request.sent_name, text, causes=[{"message": text}])
    return StatusError(_CODES.get(failure.reason, 422), error.message, reason=failure.reason, details=error.details)
