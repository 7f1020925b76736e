"""AdmissionReviews: what webhooks are sent, and what they answer. Pure."""

import base64
import binascii
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.admission import AdmissionRequest, WriteOperation
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.users import user_info
from gangline.base.errors import InputError
from gangline.schema.go_text import quoted_text

REVIEW_VERSIONS = ("v1", "v1beta1")


class ReviewError(InputError):
    """An answer that is no valid AdmissionReview."""


class ReviewAnswer(msgspec.Struct, frozen=True):
    """What a webhook answered."""

    allowed: bool
    status: JSON
    """The Status of a refusal, as far as the webhook gave one."""
    patch: list[JSON] | None
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = {}


def admission_request(request: AdmissionRequest, kind: ServedKind, obj: JSON | None, old: JSON | None) -> JSON:
    """The request as webhooks and policies see it, without its uid. The objects are in the version of `kind`."""
    own, subresource = request.served_kind, request.context.subresource
    body: JSON = {"kind": group_version_kind(kind), "resource": group_version_resource(kind)}
    if subresource:
        body["subResource"] = subresource
    body |= {"requestKind": group_version_kind(own), "requestResource": group_version_resource(own)}
    if subresource:
        body["requestSubResource"] = subresource
        if obj is not None and obj.get("kind", own.resource.kind) != own.resource.kind:
            body["kind"] = body["requestKind"] = _own_kind(obj)
    # Names are generated after admission: a request to create an object may have none.
    if name := "" if request.name_prefix else request.key.name:
        body["name"] = name
    if namespace := request_namespace(request):
        body["namespace"] = namespace
    return {
        **body,
        "operation": request.operation.value,
        "userInfo": user_info(request.context.user),
        "object": obj,
        "oldObject": old,
        "dryRun": request.context.dry_run,
        "options": operation_options(request),
    }


def _own_kind(obj: JSON) -> JSON:
    """The kind of what is sent to a subresource, such as a Binding."""
    group, _, version = obj.get("apiVersion", "").rpartition("/")
    return {"group": group, "version": version, "kind": obj["kind"]}


def group_version_kind(kind: ServedKind) -> JSON:
    resource = kind.resource
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def group_version_resource(kind: ServedKind) -> JSON:
    resource = kind.resource
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def request_namespace(request: AdmissionRequest) -> str:
    """The namespace of the object; of a Namespace its own name."""
    if request.served_kind.resource.group_resource == ("", "namespaces"):
        return request.key.name
    return request.key.namespace


def operation_options(request: AdmissionRequest) -> JSON | None:
    """The options of the request. A patch has options of its own kind, though its operation is an update."""
    context = request.context
    match request.operation:
        case WriteOperation.CONNECT:
            return None
        case WriteOperation.UPDATE:
            kind = "UpdateOptions" if context.is_put else "PatchOptions"
        case operation:
            kind = f"{operation.value.capitalize()}Options"
    options: JSON = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if context.dry_run:
        options["dryRun"] = ["All"]
    if request.operation is not WriteOperation.DELETE:
        options["fieldManager"] = context.field_manager
        if context.field_validation:
            options["fieldValidation"] = context.field_validation
    return options


def review_version(versions: list[str]) -> str:
    """The first version of AdmissionReview that both sides know. Raises `ReviewError`."""
    for version in versions:
        if version in REVIEW_VERSIONS:
            return f"admission.k8s.io/{version}"
    raise ReviewError("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def parse_answer(body: bytes, version: str, uid: str, *, mutating: bool) -> ReviewAnswer:
    """The answer of a webhook to the review with this uid. Raises `ReviewError`."""
    try:
        review = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the response is no JSON: {error}") from error
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise ReviewError("webhook response was absent")
    if version.endswith("/v1"):
        _check_v1(review, response, uid, mutating=mutating)
    annotations = response.get("auditAnnotations") or {}
    return ReviewAnswer(
        bool(response.get("allowed")),
        response.get("status") or {},
        _patch(response.get("patch")) if mutating else None,
        tuple(map(str, response.get("warnings") or ())),
        {str(key): str(value) for key, value in annotations.items()},
    )


def _check_v1(review: JSON, response: JSON, uid: str, *, mutating: bool) -> None:
    if response.get("uid", "") != uid:
        raise ReviewError(f"expected response.uid={quoted_text(uid)}, got {quoted_text(response.get('uid', ''))}")
    if (review.get("apiVersion"), review.get("kind")) != ("admission.k8s.io/v1", "AdmissionReview"):
        sent = f"{review.get('apiVersion', '')}, Kind={review.get('kind', '')}"
        raise ReviewError(f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {sent}")
    patch, kind = response.get("patch"), response.get("patchType")
    if not mutating and (patch or kind is not None):
        raise ReviewError(f"validating webhook may not return response.{'patch' if patch else 'patchType'}")
    if patch and kind is None:
        raise ReviewError("webhook returned response.patch but not response.patchType")
    if kind is not None and not patch:
        raise ReviewError("webhook returned response.patchType but not response.patch")
    if kind not in (None, "JSONPatch"):
        raise ReviewError(f"unsupported patch type {quoted_text(kind)}")


def _patch(encoded: Any) -> list[JSON] | None:
    if not encoded:
        return None
    try:
        operations: list[JSON] | None = msgspec.json.decode(base64.b64decode(encoded, validate=True))
    except (binascii.Error, TypeError, ValueError, msgspec.DecodeError) as error:
        raise ReviewError(f"received undecodable patch in webhook response: {error}") from error
    return operations or None


def refusal(webhook: str, status: JSON) -> StatusError:
    """The error of a request that a webhook refused, with the webhook's own status where it gave one."""
    denial = f"admission webhook {quoted_text(webhook)} denied the request"
    if why := status.get("message") or status.get("reason"):
        message = f"{denial}: {why}"
    else:
        message = f"{denial} without explanation"
    code = status.get("code") or 0
    return StatusError(
        max(400, code) if isinstance(code, int) else 400,
        message,
        reason=status.get("reason") or "",
        details=status.get("details"),
    )
