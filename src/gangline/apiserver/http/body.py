"""Request bodies: decoding, and the checks of kind and fields."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from gangline.api.codec.errors import DecodeError
from gangline.api.codec.nesting import is_too_deep
from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import NamedKind
from gangline.apiserver.kinds.crd.resource_metadata import metadata_errors
from gangline.apiserver.kinds.crd.resource_strategy import CustomResourceStrategy
from gangline.apiserver.patch.json_patch import deep_copy, go_json_type
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.resources import builtin_resources
from gangline.schema.json_syntax import syntax_error
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.protobuf import objects
from gangline.schema.structural.embedded_objects import MetadataError
from gangline.schema.typed.strict_decoding import DecodingErrors, duplicate_fields, has_duplicates

MAX_BODY_BYTES = 3 * 2**20
MAX_QUOTED_BYTES = 30
OBJECT_MEDIA_TYPES = ("application/json", "application/yaml", objects.MEDIA_TYPE)

OLD_EVICTION_VERSION = "policy/v1beta1"
"""Old clients send it; kube-apiserver still takes it."""
LINE_END = "\n  "
YAML_PREFIX = f"yaml: unmarshal errors:{LINE_END}"
TOO_DEEP_TEXT = "invalid character '{' exceeded max depth"

Warn = Callable[[str], None]


class RequestObject(NamedTuple):
    """The object in a body, and the fields that it has twice, in the words of Go's decoders."""

    object: JSON
    duplicates: Sequence[str] = ()


def read_object(raw: bytes, content_type: str, kind: str = "Object") -> RequestObject:
    """The object in a body. Raises `StatusError`: 415 for an unsupported content type, 400 for an undecodable body."""
    media = content_type.partition(";")[0].strip().lower() if content_type else "application/json"
    if media == "application/json":
        value = _decode_json(raw, kind)
        return RequestObject(_require_object(raw, value, kind), duplicate_fields(raw, value))
    if media == "application/yaml":
        try:
            value, duplicates = parse_yaml(raw)
        except DecodeError as error:
            raise _unrecognized_object(kind, f"{error} ({_summary(raw)})") from error
        if duplicates:
            duplicates = [YAML_PREFIX + LINE_END.join(duplicates)]
        return RequestObject(_require_object(raw, value, kind), duplicates)
    if media == objects.MEDIA_TYPE:
        return RequestObject(_decode_protobuf(raw))
    raise apierrors.unsupported_media_type(OBJECT_MEDIA_TYPES)


def read_applied(raw: bytes) -> RequestObject:
    """The object of a server-side apply, in YAML or JSON. Raises `StatusError` (400)."""
    try:
        value, duplicates = parse_yaml(raw)
    except DecodeError as error:
        raise apierrors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if value is not None and not isinstance(value, dict):
        go_type = go_json_type(value)
        why = f"json: cannot unmarshal {go_type} into Go value of type map[string]interface {{}}"
        raise apierrors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    return RequestObject(value or {}, duplicates)


def report_applied_duplicates(body: RequestObject, validation: str, warn: Warn) -> None:
    """Warn of keys that are written twice in what is applied. Raises `StatusError` (400) if `validation` is Strict."""
    if body.duplicates and validation == "Strict":
        why = YAML_PREFIX + LINE_END.join(body.duplicates)
        raise apierrors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: {why}")
    if validation != "Ignore":
        for text in body.duplicates:
            warn(text)


def parse_yaml(raw: bytes) -> tuple[Any, list[str]]:
    """The first document of a YAML or JSON text, and what Go's parser says of keys that are written twice.

    Raises `DecodeError`.
    """
    if raw.startswith(b"{"):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            value = decode_json(raw)
            if not has_duplicates(raw, value):
                return value, []
    # Imported here, because PyYAML loads slowly.
    from gangline.api.codec.yaml_values import first_yaml_value

    return first_yaml_value(raw.decode(errors="replace"))


def decode_json(raw: bytes) -> Any:
    """The value of JSON. Raises `msgspec.DecodeError`, also for JSON that is nested too deep, in the words of Go."""
    if is_too_deep(raw):
        raise msgspec.DecodeError(TOO_DEEP_TEXT)
    return msgspec.json.decode(raw)


def json_error_text(raw: bytes, error: Exception) -> str:
    """An error of our JSON decoder, in the words of Go's."""
    return TOO_DEEP_TEXT if str(error) == TOO_DEEP_TEXT else syntax_error(raw) or str(error)


def _unrecognized_object(kind: str, why: str) -> apierrors.StatusError:
    return apierrors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {why}")


def decoding_text(error: apierrors.StatusError) -> str:
    """Only why a body could not be decoded, without what it should have been."""
    return error.message.partition("): ")[2].rpartition(" (")[0]


def _summary(raw: bytes) -> str:
    """The beginning of a body, as kube-apiserver quotes it."""
    start = raw[:MAX_QUOTED_BYTES]
    text = start.decode(errors="replace") if raw.startswith(b"{") else start.hex()
    return f"{text} ..." if len(raw) > MAX_QUOTED_BYTES else text or "<empty>"


def _decode_json(raw: bytes, kind: str) -> Any:
    try:
        return decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unrecognized_object(
            kind, f"couldn't get version/kind; json parse error: {json_error_text(raw, error)} ({_summary(raw)})"
        ) from error


def _decode_protobuf(raw: bytes) -> JSON:
    try:
        return objects.decode(raw)
    except objects.ProtobufError as error:
        text = f"the object provided is unrecognized (must be of type Object): {error}"
        raise apierrors.bad_request(text) from error


def _require_object(raw: bytes, value: Any, kind: str) -> JSON:
    """The decoded value, if Go could read apiVersion and kind from it."""
    if value is None:
        return {}
    problem = ""
    if not isinstance(value, dict):
        problem = (
            f"{go_json_type(value)} into Go value of type struct "
            '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
    else:
        for name in ("apiVersion", "kind"):
            if value.get(name) is not None and not isinstance(value[name], str):
                problem = f"{go_json_type(value[name])} into Go struct field .{name} of type string"
        if not problem and str(value.get("apiVersion") or "").count("/") > 1:
            why = f"unexpected GroupVersion string: {value['apiVersion']}"
            raise _unrecognized_object(kind, f"{why} ({_summary(raw)})")
    if problem:
        why = f"couldn't get version/kind; json parse error: json: cannot unmarshal {problem} ({_summary(raw)})"
        raise _unrecognized_object(kind, why)
    return dict(value)


def check_kind(served_kind: ServedKind, body: JSON, raw: bytes = b"") -> None:
    """Check that the body has the kind and the apiVersion of the URL. Only built-in kinds may omit them.

    Raises `StatusError`, which quotes `raw`, the encoded body.
    """
    resource = served_kind.resource
    if served_kind.custom and not body.get("kind"):
        raw = raw or msgspec.json.encode(body)
        why = f"Object 'Kind' is missing in '{raw.decode(errors='replace')}' ({_summary(raw)})"
        raise _unrecognized_object(resource.kind, why)
    version = body.get("apiVersion") or ("" if served_kind.custom else resource.api_version)
    kind = body.get("kind") or resource.kind
    if (kind, version) == (resource.kind, resource.api_version):
        return
    if served_kind.custom:
        raise _wrong_custom_kind(served_kind, body, kind, version)
    short_version = str(version).rpartition("/")[2]
    if kind == resource.kind and _is_registered(version, kind):
        raise _version_mismatch(served_kind, version)
    why = apierrors.unregistered_kind_text(kind, version)
    if _is_registered(version, kind):
        go_type = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
        why = f"converting ({short_version}.{kind}) to ({go_type}): unknown conversion"
    raise apierrors.bad_request(f'{kind} in version "{short_version}" cannot be handled as a {resource.kind}: {why}')


_META_KINDS = frozenset(
    ["List", "Status", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "ListOptions", "GetOptions"]
)
_OLD_KINDS = {
    "extensions/v1beta1": "DaemonSet Deployment Ingress NetworkPolicy ReplicaSet Scale",
    "apps/v1beta1": "ControllerRevision Deployment Scale StatefulSet",
    "apps/v1beta2": "ControllerRevision DaemonSet Deployment ReplicaSet Scale StatefulSet",
    "autoscaling/v2beta1": "HorizontalPodAutoscaler",
    "autoscaling/v2beta2": "HorizontalPodAutoscaler",
    "batch/v1beta1": "CronJob",
    "coordination.k8s.io/v1beta1": "Lease",
    "discovery.k8s.io/v1beta1": "EndpointSlice",
    "events.k8s.io/v1beta1": "Event",
    "policy/v1beta1": "Eviction PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1beta1": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "scheduling.k8s.io/v1beta1": "PriorityClass",
    "storage.k8s.io/v1beta1": "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment",
}
"""Kinds of versions that kube-apiserver still knows and no longer serves."""


def _is_registered(version: str, kind: str) -> bool:
    known = {item.kind for item in builtin_resources() if item.api_version == version}
    known |= _META_KINDS if known else set(_OLD_KINDS.get(version, "").split())
    return kind in known or (kind.endswith("List") and kind.removesuffix("List") in known)


def _version_mismatch(served_kind: ServedKind, version: str) -> apierrors.StatusError:
    expected = served_kind.resource.api_version
    text = f"the API version in the data ({version}) does not match the expected API version ({expected})"
    return apierrors.bad_request(text)


def _wrong_custom_kind(served_kind: ServedKind, body: JSON, kind: str, version: str) -> apierrors.StatusError:
    if version != served_kind.resource.api_version:
        return _version_mismatch(served_kind, version)
    problem = FieldProblem(ProblemKind.INVALID, "kind", kind, f"must be {served_kind.resource.kind}")
    sent = NamedKind(served_kind.resource.group, kind, served_kind.resource.plural)
    return apierrors.invalid(sent, (body.get("metadata") or {}).get("name") or "", [problem])


def checked_object(kind: ServedKind, raw: bytes, content_type: str, validation: str, warn: Warn) -> JSON:
    """The object in a body, which must be of this kind. Raises `StatusError` (400, 415, 422)."""
    body = read_object(raw, content_type, kind.resource.kind)
    if body.object.get("apiVersion") == OLD_EVICTION_VERSION and kind.resource.kind == "Eviction":
        body.object["apiVersion"] = kind.resource.api_version
    check_kind(kind, body.object, raw)
    check_fields(kind, body.object, raw, validation, warn, body.duplicates)
    return body.object


def check_fields(
    served_kind: ServedKind, body: JSON, raw: bytes, validation: str, warn: Warn, duplicates: Sequence[str] = ()
) -> None:
    """Check the types and the names of all fields. Raises `StatusError` (400) for a value of a wrong type.

    Unknown and duplicate fields raise too if `validation` is Strict; otherwise they are warnings, unless it is
    Ignore.
    """
    if raw.startswith(objects.MAGIC):
        return  # protobuf cannot encode wrong types or duplicate fields
    if served_kind.decoder is None:
        errors = custom_errors(served_kind, body, duplicates, validation)
    elif raw.lstrip().startswith(b"{"):
        errors = served_kind.decoder.errors(raw, body)
    else:
        errors = served_kind.decoder.errors(msgspec.json.encode(body), body)
        errors = DecodingErrors(errors.error, (*duplicates, *errors.strict))
    _report_decoding_errors(served_kind, errors, validation, warn)


def custom_errors(served_kind: ServedKind, obj: JSON, duplicates: Sequence[str], validation: str) -> DecodingErrors:
    """What is wrong with the JSON of a custom resource.

    Fields that its schema lacks are among it if `validation` is Strict; else whoever prunes them warns of them.
    """
    errors = metadata_errors(obj)
    strict = [*duplicates, *errors.strict]
    if validation == "Strict" and not errors.error and isinstance(served_kind.strategy, CustomResourceStrategy):
        with suppress(MetadataError):  # reported when it is pruned for good
            strict += [f'unknown field "{path}"' for path in served_kind.strategy.default_and_prune(deep_copy(obj))]
    return DecodingErrors(errors.error, tuple(strict))


def _report_decoding_errors(served_kind: ServedKind, errors: DecodingErrors, validation: str, warn: Warn) -> None:
    kind, version = served_kind.resource.kind, served_kind.resource.version
    prefix = f'{kind} in version "{version}" cannot be handled as a {kind}'
    if errors.error:
        raise apierrors.bad_request(f"{prefix}: {errors.error}")
    if errors.strict and validation == "Strict":
        raise apierrors.bad_request(f"{prefix}: strict decoding error: {', '.join(errors.strict)}")
    if validation != "Ignore":
        for text in errors.strict:
            lines = text.removeprefix(YAML_PREFIX).split(LINE_END) if text.startswith(YAML_PREFIX) else [text]
            for line in lines:
                warn(line)
