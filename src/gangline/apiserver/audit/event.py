"""Audit events as JSON."""

import ipaddress
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.audit.policy import AUDIT_VERSION, AuditStage
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.users import UserInfo

MAX_AGENT_LENGTH = 1024
TRUNCATED = "...TRUNCATED"


class AuditSource(msgspec.Struct, frozen=True):
    """Where a request comes from, and what it asks for."""

    audit_id: str
    received: datetime
    uri: str
    agent: str
    ips: tuple[str, ...]


def micro_time(moment: datetime) -> str:
    """A time with microseconds, as in MicroTime of Kubernetes."""
    # Half the time of strftime.
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def source_ips(headers: Mapping[str, str], peer: str) -> tuple[str, ...]:
    """The addresses of a request: those that proxies name, and the address of the connection."""
    forwarded = [ip for part in headers.get("X-Forwarded-For", "").split(",") if (ip := _address(part))]
    if not forwarded:
        forwarded = [ip for ip in (_address(headers.get("X-Real-Ip", "")),) if ip]
    remote = _address(peer)
    return (*forwarded, remote) if remote and remote not in forwarded[-1:] else tuple(forwarded)


@lru_cache(maxsize=256)
def _address(text: str) -> str:
    if not text:
        return ""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""


def user_json(user: UserInfo) -> JSON:
    """A UserInfo of authentication.k8s.io/v1."""
    shown: JSON = {}
    if user.name:
        shown["username"] = user.name
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {key: list(values) for key, values in user.extra.items()}
    return shown


def object_reference(attributes: AccessAttributes, body: JSON | None) -> JSON | None:
    """The object of a request: from the URL, and for what the URL lacks from the body."""
    if not attributes.is_resource_request:
        return None
    metadata = (body or {}).get("metadata")
    sent: Mapping[str, Any] = metadata if isinstance(metadata, dict) else {}
    reference = {
        "resource": attributes.resource,
        "namespace": attributes.namespace or sent.get("namespace"),
        "name": attributes.name or sent.get("name"),
        "uid": sent.get("uid"),
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "resourceVersion": sent.get("resourceVersion"),
        "subresource": attributes.subresource,
    }
    return {key: value for key, value in reference.items() if value}


def response_status(code: int, status: JSON | None) -> JSON:
    """The Status of a response: only its code, unless the response itself is a Status."""
    shown: JSON = {"metadata": {}}
    for field in ("status", "message", "reason", "details"):
        if status and field in status:
            shown[field] = status[field]
    return {**shown, "code": code}


def without_managed_fields(value: Any) -> Any:
    """An object, a list or a table without managedFields."""
    if not isinstance(value, dict):
        return value
    cleaned = dict(value)
    metadata = cleaned.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        cleaned["metadata"] = {key: item for key, item in metadata.items() if key != "managedFields"}
    for field in ("items", "rows"):
        if isinstance(cleaned.get(field), list):
            cleaned[field] = [without_managed_fields(item) for item in cleaned[field]]
    if isinstance(cleaned.get("object"), dict):
        cleaned["object"] = without_managed_fields(cleaned["object"])
    return cleaned


def event_line(event: JSON) -> bytes:
    """One line of the log, in Go's JSON: `&`, `<` and `>` are escaped."""
    encoded = msgspec.json.encode(event)
    return encoded.replace(b"&", b"\\u0026").replace(b"<", b"\\u003c").replace(b">", b"\\u003e") + b"\n"


def audit_event(source: AuditSource, attributes: AccessAttributes, level: str, stage: AuditStage, parts: JSON) -> JSON:
    """An Event of audit.k8s.io/v1. `parts` has the fields that depend on the stage; those that are None are left out."""
    event = {
        "kind": "Event",
        "apiVersion": AUDIT_VERSION,
        "level": level,
        "auditID": source.audit_id,
        "stage": stage.value,
        "requestURI": source.uri,
        "verb": attributes.verb,
        "user": user_json(attributes.user),
        "impersonatedUser": parts.get("impersonatedUser"),
        "sourceIPs": list(source.ips) or None,
        "userAgent": source.agent or None,
        "objectRef": parts.get("objectRef"),
        "responseStatus": parts.get("responseStatus"),
        "requestObject": parts.get("requestObject"),
        "responseObject": parts.get("responseObject"),
        "requestReceivedTimestamp": micro_time(source.received),
        "stageTimestamp": parts["stageTimestamp"],
        "annotations": parts.get("annotations") or None,
    }
    return {key: value for key, value in event.items() if value is not None}


def shown_agent(agent: str) -> str:
    """A User-Agent, truncated as kube-apiserver truncates it."""
    return agent if len(agent) <= MAX_AGENT_LENGTH else agent[:MAX_AGENT_LENGTH] + TRUNCATED
