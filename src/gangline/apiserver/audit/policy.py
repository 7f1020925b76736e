"""The audit policy: how much of each request is recorded."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, Literal

import msgspec

from gangline.api.codec.codec import DecodeError, decode_document, documents
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.base.errors import InputError

AUDIT_VERSION: Final = "audit.k8s.io/v1"


class AuditLevel(StrEnum):
    """How much of a request is recorded."""

    NONE = "None"
    METADATA = "Metadata"
    REQUEST = "Request"
    REQUEST_RESPONSE = "RequestResponse"

    @property
    def has_request_body(self) -> bool:
        return self in (AuditLevel.REQUEST, AuditLevel.REQUEST_RESPONSE)

    @property
    def has_response_body(self) -> bool:
        return self is AuditLevel.REQUEST_RESPONSE


class AuditStage(StrEnum):
    """When an event is written."""

    REQUEST_RECEIVED = "RequestReceived"
    RESPONSE_STARTED = "ResponseStarted"
    RESPONSE_COMPLETE = "ResponseComplete"
    PANIC = "Panic"


class GroupResources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Resources of one API group. `resources` may be `pods`, `pods/log`, `pods/*`, `*/scale` or `*`; none means all."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def matches(self, attributes: AccessAttributes) -> bool:
        if self.group != attributes.group:
            return False
        if not self.resources:
            return True
        if self.resource_names and attributes.name not in self.resource_names:
            return False
        resource, subresource = attributes.resource, attributes.subresource
        matching = {"*", f"{resource}/*", f"{resource}/{subresource}" if subresource else resource}
        if subresource:
            matching.add(f"*/{subresource}")
        return not matching.isdisjoint(self.resources)


class AuditRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A level for the requests that match. An empty field matches everything."""

    level: AuditLevel
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[GroupResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    nonresource_urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs", default=())
    omit_stages: tuple[AuditStage, ...] = ()
    omit_managed_fields: bool | None = None

    def matches(self, attributes: AccessAttributes) -> bool:
        if self.users and attributes.user.name not in self.users:
            return False
        if self.user_groups and set(self.user_groups).isdisjoint(attributes.user.groups):
            return False
        if self.verbs and attributes.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return self._matches_resource(attributes)
        if self.nonresource_urls:
            path = attributes.path
            return path is not None and any(_path_matches(path, pattern) for pattern in self.nonresource_urls)
        return True

    def _matches_resource(self, attributes: AccessAttributes) -> bool:
        if not attributes.is_resource_request:
            return False
        if self.namespaces and attributes.namespace not in self.namespaces:
            return False
        return not self.resources or any(resources.matches(attributes) for resources in self.resources)


def _path_matches(path: str, pattern: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


class AuditConfig(msgspec.Struct, frozen=True):
    """What is recorded of one request."""

    level: AuditLevel
    omit_stages: frozenset[AuditStage] = frozenset()
    omit_managed_fields: bool = False


class AuditPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Rules in order: the first that matches a request decides. A request that none matches is not recorded."""

    api_version: Literal["audit.k8s.io/v1"]
    kind: Literal["Policy"]
    rules: tuple[AuditRule, ...]
    omit_stages: tuple[AuditStage, ...] = ()
    omit_managed_fields: bool = False
    metadata: dict[str, object] = {}

    def config(self, attributes: AccessAttributes) -> AuditConfig:
        """What is recorded of a request."""
        for rule in self.rules:
            if rule.matches(attributes):
                omits_fields = rule.omit_managed_fields
                return AuditConfig(
                    rule.level,
                    frozenset((*self.omit_stages, *rule.omit_stages)),
                    self.omit_managed_fields if omits_fields is None else omits_fields,
                )
        return AuditConfig(AuditLevel.NONE)


METADATA_OF_ALL = AuditPolicy(AUDIT_VERSION, "Policy", (AuditRule(AuditLevel.METADATA),))
"""The policy without a policy file: who asked for what, and the result, of every request; no bodies."""


def parse_policy(text: str, file: str) -> AuditPolicy:
    """The policy in a file. Raises `InputError`; unlike kube-apiserver also for a field that does not exist."""
    found = documents(text, file=file)
    if len(found) != 1:
        raise InputError(f"{file}: has {len(found)} documents; write one Policy of {AUDIT_VERSION}")
    try:
        policy = decode_document(found[0], AuditPolicy)
    except DecodeError as error:
        raise InputError(f"{error}; write a Policy of {AUDIT_VERSION}") from error
    problem = next(_problems(policy), None)
    if problem:
        raise InputError(f"{file}: {problem}")
    return policy


def _problems(policy: AuditPolicy) -> Iterator[str]:
    if not policy.rules:
        yield "rules: is empty, so nothing would be recorded; write at least `- level: Metadata`"
    for number, rule in enumerate(policy.rules):
        path = f"rules[{number}]"
        if rule.nonresource_urls and (rule.resources or rule.namespaces):
            yield f"{path}.nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
        for place, url in enumerate(rule.nonresource_urls):
            if url != "*" and not url.startswith("/"):
                yield f"{path}.nonResourceURLs[{place}]: {url!r}: must begin with a '/' character"
            if "*" in url[:-1]:
                yield f"{path}.nonResourceURLs[{place}]: {url!r}: '*' must be the final character"
        for place, resources in enumerate(rule.resources):
            if "/" in resources.group:
                yield f"{path}.resources[{place}].group: {resources.group!r}: write the group without its version"
            if resources.resource_names and not resources.resources:
                yield f"{path}.resources[{place}].resourceNames: requires at least one resource"
