"""What the server learns of one request while it serves it, and the audit events of that."""

from typing import Any

import msgspec

from gangline.api.codec.codec import DecodeError, documents
from gangline.api.codec.nesting import is_too_deep
from gangline.api.meta import JSON
from gangline.apiserver.audit.event import (
    AuditSource,
    audit_event,
    event_line,
    micro_time,
    object_reference,
    response_status,
    user_json,
    without_managed_fields,
)
from gangline.apiserver.audit.log import AuditLog
from gangline.apiserver.audit.policy import AuditConfig, AuditLevel, AuditStage
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import AccessDecision
from gangline.apiserver.users import UserInfo
from gangline.base.clock import Clock
from gangline.schema.protobuf import objects as protobuf

LONG_SUBRESOURCES = frozenset({"attach", "exec", "proxy", "log", "portforward"})
CLOSED_EARLY: JSON = {"status": "Success", "message": "Connection closed early"}
NOBODY = UserInfo("")


class AuditTrail:
    """One request. Until `begin` says what it asks for, nothing is recorded of it."""

    def __init__(self, log: AuditLog, clock: Clock, source: AuditSource) -> None:
        self._log, self._clock, self._source = log, clock, source
        self._attributes: AccessAttributes | None = None
        self._config = AuditConfig(AuditLevel.NONE)
        self._parts: JSON = {}
        self._body: JSON | None = None
        self._status: JSON | None = None
        self._started = False
        self.annotations: dict[str, str] = {}

    @property
    def level(self) -> AuditLevel:
        return self._config.level

    def begin(self, attributes: AccessAttributes) -> None:
        """The request was received from an authenticated user."""
        self._start(attributes)
        self._write(AuditStage.REQUEST_RECEIVED, micro_time(self._source.received))

    def reject(self, attributes: AccessAttributes) -> None:
        """The request has credentials that nobody has. It gets one event only, as from kube-apiserver."""
        self._start(msgspec.structs.replace(attributes, user=NOBODY))

    def _start(self, attributes: AccessAttributes) -> None:
        self._attributes, self._config = attributes, self._log.policy.config(attributes)

    def impersonate(self, user: UserInfo) -> None:
        self._parts["impersonatedUser"] = user_json(user)

    def decide(self, decision: AccessDecision) -> None:
        """Record what the authorizer decided."""
        self.annotations["authorization.k8s.io/decision"] = "allow" if decision.allowed else "forbid"
        self.annotations["authorization.k8s.io/reason"] = decision.reason

    def set_request_object(self, body: JSON) -> None:
        """The object that a client sent, with defaults."""
        self._body = body
        if self.level.has_request_body:
            self._parts["requestObject"] = self._cleaned(body)

    def set_options(self, options: JSON) -> None:
        """The options in the body of a deletion."""
        if self.level.has_request_body:
            kind = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal"}
            self._parts["requestObject"] = {**kind, **{k: v for k, v in options.items() if k not in kind}}

    def set_patch(self, raw: bytes) -> None:
        """The patch that a client sent. A YAML apply is recorded as JSON; kube-apiserver loses such events."""
        if self.level.has_request_body:
            self._parts["requestObject"] = _decoded(raw)

    def set_status(self, status: JSON) -> None:
        """The response is a Status."""
        self._status = status
        if self.level.has_response_body:
            self._parts["responseObject"] = status

    def set_response_body(self, body: bytes) -> None:
        """The response is an object, a list or a table."""
        if self.level.has_response_body:
            self._parts["responseObject"] = self._cleaned(_decoded(body))

    def start_response(self, code: int) -> None:
        """The headers of the response are sent. Watches and streams have an event for it."""
        if self._started or self._attributes is None:
            return
        self._started = True
        self._parts["responseStatus"] = response_status(code, self._status)
        if self._is_long or self._attributes.user is NOBODY:
            self._write(AuditStage.RESPONSE_STARTED)

    def complete(self, code: int) -> None:
        """The response is complete."""
        self.start_response(code)
        if self._attributes is not None and self._attributes.user is not NOBODY:
            self._write(AuditStage.RESPONSE_COMPLETE)

    def cancel(self) -> None:
        """The client closed the connection."""
        if not self._started:
            self._status = CLOSED_EARLY
        self.complete(200)

    def panic(self, error: BaseException) -> None:
        """The server failed."""
        message = f"APIServer panic'd: {type(error).__name__}"
        self._status = {"status": "Failure", "message": message, "reason": "InternalError"}
        self._parts["responseStatus"] = response_status(500, self._status)
        self._started = True
        self._write(AuditStage.PANIC)
        self._attributes = None

    @property
    def _is_long(self) -> bool:
        attributes = self._attributes
        return attributes is not None and (attributes.verb == "watch" or attributes.subresource in LONG_SUBRESOURCES)

    def _cleaned(self, value: Any) -> Any:
        return without_managed_fields(value) if self._config.omit_managed_fields else value

    def _write(self, stage: AuditStage, moment: str = "") -> None:
        if self._attributes is None or self.level is AuditLevel.NONE or stage in self._config.omit_stages:
            return
        parts = {
            **self._parts,
            "objectRef": object_reference(self._attributes, self._body),
            "stageTimestamp": moment or micro_time(self._clock.now()),
            "annotations": self.annotations,
        }
        self._log.write(event_line(audit_event(self._source, self._attributes, self.level, stage, parts)))


def _decoded(raw: bytes) -> Any:
    """The value of JSON, YAML or protobuf; text that is neither, or nested too deep, as it is."""
    if raw.startswith(protobuf.MAGIC):
        try:
            return protobuf.decode(raw)
        except protobuf.ProtobufError:
            return raw.decode(errors="replace")
    if is_too_deep(raw):
        return raw.decode(errors="replace")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        found = documents(raw.decode())
        return found[0].body if len(found) == 1 else raw.decode()
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return raw.decode(errors="replace")
