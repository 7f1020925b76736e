"""Roles and their bindings."""

from typing import ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, selectors
from gangline.apiserver.kinds.machinery.problems import each, invalid, required, unsupported
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.schema.problems import Problem

GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


class _Access(Kind):
    created_by_update = True

    def name_check(self, name: str) -> tuple[str, ...]:
        return formats.path_segment(name)

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *self.validate(obj),
            *self.validate(obj),  # once for the kind and once for the change, as the real server does
            *self.validate_metadata_update(obj, old),
            *self.check_update(obj, old),
        ]


class RoleKind(_Access):
    struct = "rbac.v1.Role"

    def check(self, obj: JSON) -> list[Problem]:
        found: list[Problem] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            found += _rule(rule, f"rules[{index}]", namespaced=self.namespaced)
        return found


class ClusterRoleKind(RoleKind):
    struct = "rbac.v1.ClusterRole"
    namespaced = False

    def check(self, obj: JSON) -> list[Problem]:
        found = super().check(obj)
        if "aggregationRule" not in obj:
            return found
        path = "aggregationRule.clusterRoleSelectors"
        chosen = obj["aggregationRule"].get("clusterRoleSelectors", ())
        if not chosen:
            told = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            found.append(required(path, told))
        for index, selector in enumerate(chosen):
            wrong = selectors.selector(selector, f"{path}[{index}]")
            found += wrong
            if wrong:
                found.append(invalid(f"{path}[{index}]", None, "invalid label selector."))
        return found


def _rule(rule: JSON, path: str, *, namespaced: bool) -> list[Problem]:
    found = [] if rule.get("verbs") else [required(f"{path}.verbs", "verbs must contain at least one value")]
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            told = "namespaced rules cannot apply to non-resource URLs"
            found.append(invalid(f"{path}.nonResourceURLs", urls, told))
        if rule.keys() & {"apiGroups", "resources", "resourceNames"}:
            told = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(invalid(f"{path}.nonResourceURLs", urls, told))
        return found
    for name, told in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(name):
            found.append(required(f"{path}.{name}", f"resource rules must supply at least one {told}"))
    return found


class RoleBindingKind(_Access):
    struct = "rbac.v1.RoleBinding"
    kinds: ClassVar[tuple[str, ...]] = ("Role", "ClusterRole")

    def set_defaults(self, obj: JSON) -> None:
        if not obj["roleRef"].get("apiGroup"):
            obj["roleRef"]["apiGroup"] = GROUP
        for subject in obj.get("subjects", ()):
            if subject.get("kind") in {"User", "Group"}:
                subject.setdefault("apiGroup", GROUP)

    def check(self, obj: JSON) -> list[Problem]:
        found: list[Problem] = []
        role = obj["roleRef"]
        if role["apiGroup"] != GROUP:
            found.append(unsupported("roleRef.apiGroup", role["apiGroup"], (GROUP,)))
        if role["kind"] not in self.kinds:
            found.append(unsupported("roleRef.kind", role["kind"], self.kinds))
        name = role["name"]
        found += (
            each("roleRef.name", name, formats.path_segment(name)) if name else [required("roleRef.name")]
        )
        for index, subject in enumerate(obj.get("subjects", ())):
            found += _subject(subject, f"subjects[{index}]", namespaced=self.namespaced)
        return found

    def check_update(self, obj: JSON, old: JSON) -> list[Problem]:
        role = obj["roleRef"]
        if role == old["roleRef"]:
            return []
        shown = gostruct.internal(role, "APIGroup Kind Name")
        return [invalid("roleRef", shown, "cannot change roleRef")]


class ClusterRoleBindingKind(RoleBindingKind):
    struct = "rbac.v1.ClusterRoleBinding"
    namespaced = False
    kinds = ("ClusterRole",)


def _subject(subject: JSON, path: str, *, namespaced: bool) -> list[Problem]:
    name, kind, group = subject.get("name", ""), subject.get("kind", ""), subject.get("apiGroup", "")
    found = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        if name:
            found += each(f"{path}.name", name, formats.dns_subdomain(name))
        if group:
            found.append(unsupported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            found.append(required(f"{path}.namespace"))
    elif kind not in _SUBJECTS:
        found.append(unsupported(f"{path}.kind", kind, _SUBJECTS))
    elif group != GROUP:
        found.append(unsupported(f"{path}.apiGroup", group, (GROUP,)))
    return found
