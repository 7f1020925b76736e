"""The rules of roles: what they allow, and whether they cover other rules. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.schema.go_text import quoted_text

ALL = "*"


class PolicyRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Verbs on resources, or on paths that are no resources."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = msgspec.field(name="apiGroups", default=())
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = msgspec.field(name="resourceNames", default=())
    """Empty: all names."""
    urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs", default=())


def policy_rules(role: JSON) -> tuple[PolicyRule, ...]:
    """The rules of a role, also of one that is not valid."""
    return tuple(PolicyRule(*(tuple(rule.get(name) or ()) for name in _FIELDS)) for rule in role.get("rules") or ())


_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")

FULL_AUTHORITY = (PolicyRule((ALL,), (ALL,), (ALL,)), PolicyRule((ALL,), urls=(ALL,)))


def rule_allows(rule: PolicyRule, attributes: AccessAttributes) -> bool:
    """Whether a rule allows a request."""
    if attributes.verb not in rule.verbs and ALL not in rule.verbs:
        return False
    if attributes.path is not None:
        return any(_url_covers(url, attributes.path) for url in rule.urls)
    if attributes.group not in rule.api_groups and ALL not in rule.api_groups:
        return False
    if rule.resource_names and attributes.name not in rule.resource_names:
        return False
    subresource = attributes.subresource
    resource = f"{attributes.resource}/{subresource}" if subresource else attributes.resource
    return _covers_resource(rule.resources, resource, subresource)


def uncovered_rules(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The parts of the wanted rules that no owned rule covers, each with one verb and one resource or path."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(owner, part) for owner in owned)]


def missing_rules_text(missing: Iterable[PolicyRule]) -> str:
    """Uncovered rules as kube-apiserver lists them: verbs of one resource joined, sorted, a line each."""
    joined: dict[tuple[tuple[str, ...], ...], list[PolicyRule]] = {}
    for position, rule in enumerate(missing):
        same_target = (rule.api_groups, rule.resources, rule.resource_names)
        # Rules of paths are not joined.
        joined.setdefault(same_target if not rule.urls else ((str(position),),), []).append(rule)
    lines = {
        _rule_text(msgspec.structs.replace(group[0], verbs=tuple(verb for rule in group for verb in rule.verbs)))
        for group in joined.values()
    }
    return "\n".join(sorted(lines))


def go_list(values: Iterable[str]) -> str:
    """`%q` of a list of texts."""
    return f"[{' '.join(map(quoted_text, values))}]"


def _rule_text(rule: PolicyRule) -> str:
    fields = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    return f"{{{', '.join(f'{name}:{go_list(values)}' for name, values in fields if values)}}}"


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                part = PolicyRule((verb,), (group,), (resource,))
                if not rule.resource_names:
                    yield part
                for name in rule.resource_names:
                    yield msgspec.structs.replace(part, resource_names=(name,))
    for url in rule.urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), urls=(url,))


def _covers(owner: PolicyRule, part: PolicyRule) -> bool:
    """Whether a rule covers a part of another one."""
    if ALL not in owner.verbs and part.verbs[0] not in owner.verbs:
        return False
    if owner.resource_names and not (part.resource_names and part.resource_names[0] in owner.resource_names):
        return False
    if part.urls:
        return any(_url_covers(url, part.urls[0]) for url in owner.urls)
    if ALL not in owner.api_groups and part.api_groups[0] not in owner.api_groups:
        return False
    return _covers_resource(owner.resources, part.resources[0], part.resources[0].partition("/")[2])


def _covers_resource(resources: Sequence[str], resource: str, subresource: str) -> bool:
    """`resource` includes the subresource, if there is one."""
    if resource in resources or ALL in resources:
        return True
    return bool(subresource) and f"{ALL}/{subresource}" in resources


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith(ALL) and path.startswith(url.rstrip(ALL)))
