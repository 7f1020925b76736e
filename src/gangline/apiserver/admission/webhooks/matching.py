"""Which webhooks and policies a request is for: rules, selectors, and equivalent versions of its resource. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector
from gangline.apiserver.registry.catalog import Catalog, ServedKind

_EXEMPT_GROUP = "admissionregistration.k8s.io"


class MatchedRequest(msgspec.Struct, frozen=True):
    """What rules and selectors see of a request."""

    operation: str
    served_kind: ServedKind
    subresource: str
    namespace: str
    """For a Namespace its own name, as in kube-apiserver."""
    object_labels: tuple[Mapping[str, str], ...]
    """The labels of the new and of the old object, where there are any."""
    namespace_labels: Mapping[str, str] | None
    """None: the request is for an object of the cluster, which selectors of namespaces never exclude."""

    @property
    def is_exempt(self) -> bool:
        """Whether the request changes the configuration of admission itself, which nothing may prevent."""
        return self.served_kind.resource.group == _EXEMPT_GROUP

    @property
    def is_for_namespace(self) -> bool:
        return self.served_kind.resource.group_resource == ("", "namespaces")


def matches_selectors(config: JSON, request: MatchedRequest) -> bool:
    """Whether `namespaceSelector` and `objectSelector` select a request."""
    selector = config.get("namespaceSelector")
    namespace = request.namespace_labels
    if selector and namespace is not None and not LabelSelector.from_json(selector).matches(namespace):
        return False
    selector = config.get("objectSelector")
    if not selector:
        return True
    parsed = LabelSelector.from_json(selector)
    return any(parsed.matches(labels) for labels in request.object_labels)


def matched_kind(config: JSON, rules: Iterable[JSON], request: MatchedRequest, catalog: Catalog) -> ServedKind | None:
    """The version of the resource that the rules ask for: the request's own, or with `matchPolicy` an equivalent one.

    None if no rule matches.
    """
    rules = tuple(rules)
    if any(matches_rule(rule, request, request.served_kind) for rule in rules):
        return request.served_kind
    if config.get("matchPolicy", "Equivalent") != "Equivalent":
        return None
    others = equivalent_kinds(request.served_kind, catalog)
    return next((kind for rule in rules for kind in others if matches_rule(rule, request, kind)), None)


def equivalent_kinds(served_kind: ServedKind, catalog: Catalog) -> list[ServedKind]:
    """The other served versions of the same objects."""
    identity = (served_kind.storage_group, served_kind.resource.plural)
    return [
        kind
        for kind in catalog
        if (kind.storage_group, kind.resource.plural) == identity and kind.resource is not served_kind.resource
    ]


def matches_rule(rule: JSON, request: MatchedRequest, kind: ServedKind) -> bool:
    """Whether a rule selects a request for this version of its resource."""
    resource = kind.resource
    return (
        _matches_scope(rule.get("scope", "*"), request)
        and _is_listed(rule.get("operations"), request.operation)
        and _is_listed(rule.get("apiGroups"), resource.group)
        and _is_listed(rule.get("apiVersions"), resource.version)
        and any(_matches_resource(text, resource.plural, request.subresource) for text in rule.get("resources") or ())
    )


def _is_listed(items: Iterable[str] | None, value: str) -> bool:
    return any(item in ("*", value) for item in items or ())


def _matches_scope(scope: str, request: MatchedRequest) -> bool:
    in_namespace = bool(request.namespace) and not request.is_for_namespace
    return scope == "*" or (scope == "Namespaced") is in_namespace


def _matches_resource(text: str, plural: str, subresource: str) -> bool:
    resource, _, part = text.partition("/")
    return resource in ("*", plural) and part in ("*", subresource)


def converted(obj: JSON | None, source: ServedKind, target: ServedKind) -> JSON | None:
    """An object of one served version in another one."""
    if obj is None or source is target:
        return obj
    stored = source.to_storage(dict(obj)) if source.to_storage is not None else dict(obj)
    result = target.from_storage(stored) if target.from_storage is not None else stored
    return {**result, "kind": target.resource.kind, "apiVersion": target.resource.api_version}
