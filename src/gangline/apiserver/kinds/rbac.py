"""Roles and their bindings."""

from typing import ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, selectors
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.problems import FieldProblem, invalid, invalid_each, required, unsupported

RBAC_GROUP = "rbac.authorization.k8s.io"
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")


class _RbacStrategy(Strategy):
    name_errors = staticmethod(formats.path_segment_errors)

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.validate(obj),
            *self.validate(obj),  # As kube-apiserver: for the kind and for the change.
            *self.metadata.validate_update(obj, old),
            *self.validate_transition(obj, old),
        ]


class RoleStrategy(_RbacStrategy):
    struct = "rbac.v1.Role"

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            problems += _validate_policy_rule(rule, f"rules[{index}]", namespaced=self.namespaced)
        return problems


class ClusterRoleStrategy(RoleStrategy):
    struct = "rbac.v1.ClusterRole"
    namespaced = False

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems = super().validate_content(obj)
        if "aggregationRule" not in obj:
            return problems
        path = "aggregationRule.clusterRoleSelectors"
        selector_list = obj["aggregationRule"].get("clusterRoleSelectors", ())
        if not selector_list:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            problems.append(required(path, detail))
        for index, selector in enumerate(selector_list):
            selector_problems = selectors.validate_label_selector(selector, f"{path}[{index}]")
            problems += selector_problems
            if selector_problems:
                problems.append(invalid(f"{path}[{index}]", None, "invalid label selector."))
        return problems


def _validate_policy_rule(rule: JSON, path: str, *, namespaced: bool) -> list[FieldProblem]:
    problems = [] if rule.get("verbs") else [required(f"{path}.verbs", "verbs must contain at least one value")]
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            problems.append(invalid(f"{path}.nonResourceURLs", urls, detail))
        if rule.keys() & {"apiGroups", "resources", "resourceNames"}:
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            problems.append(invalid(f"{path}.nonResourceURLs", urls, detail))
        return problems
    for name, detail in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(name):
            problems.append(required(f"{path}.{name}", f"resource rules must supply at least one {detail}"))
    return problems


class RoleBindingStrategy(_RbacStrategy):
    struct = "rbac.v1.RoleBinding"
    role_kinds: ClassVar[tuple[str, ...]] = ("Role", "ClusterRole")

    def set_defaults(self, obj: JSON) -> None:
        if not obj["roleRef"].get("apiGroup"):
            obj["roleRef"]["apiGroup"] = RBAC_GROUP
        for subject in obj.get("subjects", ()):
            if subject.get("kind") in {"User", "Group"}:
                subject.setdefault("apiGroup", RBAC_GROUP)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        role = obj["roleRef"]
        if role["apiGroup"] != RBAC_GROUP:
            problems.append(unsupported("roleRef.apiGroup", role["apiGroup"], (RBAC_GROUP,)))
        if role["kind"] not in self.role_kinds:
            problems.append(unsupported("roleRef.kind", role["kind"], self.role_kinds))
        name = role["name"]
        problems += (
            invalid_each("roleRef.name", name, formats.path_segment_errors(name))
            if name
            else [required("roleRef.name")]
        )
        for index, subject in enumerate(obj.get("subjects", ())):
            problems += _validate_subject(subject, f"subjects[{index}]", namespaced=self.namespaced)
        return problems

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        role = obj["roleRef"]
        if role == old["roleRef"]:
            return []
        printed = gostruct.go_struct(role, "APIGroup Kind Name")
        return [invalid("roleRef", printed, "cannot change roleRef")]


class ClusterRoleBindingStrategy(RoleBindingStrategy):
    struct = "rbac.v1.ClusterRoleBinding"
    namespaced = False
    role_kinds = ("ClusterRole",)


def _validate_subject(subject: JSON, path: str, *, namespaced: bool) -> list[FieldProblem]:
    name, kind, group = subject.get("name", ""), subject.get("kind", ""), subject.get("apiGroup", "")
    problems = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        if name:
            problems += invalid_each(f"{path}.name", name, formats.dns_subdomain_errors(name))
        if group:
            problems.append(unsupported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            problems.append(required(f"{path}.namespace"))
    elif kind not in _SUBJECT_KINDS:
        problems.append(unsupported(f"{path}.kind", kind, _SUBJECT_KINDS))
    elif group != RBAC_GROUP:
        problems.append(unsupported(f"{path}.apiGroup", group, (RBAC_GROUP,)))
    return problems
