"""Random roles, bindings and requests, and a naive model of who may do what."""

from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from gangline.api.meta import JSON
from gangline.apiserver.users import UserInfo, service_account_groups

NAMESPACES, NAMES = ("n1", "n2"), ("r1", "r2", "r3")
VERBS, GROUPS = ("get", "list", "create", "*"), ("", "apps", "*")
RESOURCES = ("pods", "deployments", "pods/log", "deployments/scale", "*/scale", "*/log", "*")
OBJECT_NAMES = ("a", "b")
PATHS = ("/healthz", "/logs", "/logs/x", "/other")
URLS = ("/healthz", "/logs", "/logs/*", "/lo*", "*")
USER_NAMES, USER_GROUPS = ("u1", "u2"), ("g1", "g2")


def _some(values: tuple[str, ...], least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=3, unique=True)


_resource_rules = st.fixed_dictionaries(
    {"verbs": _some(VERBS), "apiGroups": _some(GROUPS), "resources": _some(RESOURCES)},
    optional={"resourceNames": _some(OBJECT_NAMES)},
)
_url_rules = st.fixed_dictionaries({"verbs": _some(VERBS), "nonResourceURLs": _some(URLS)})
_all_rules = st.one_of(_resource_rules, _url_rules)
_subjects = st.one_of(
    st.builds(lambda name: {"kind": "User", "name": name}, st.sampled_from(USER_NAMES)),
    st.builds(lambda name: {"kind": "Group", "name": name}, st.sampled_from((*USER_GROUPS, "system:serviceaccounts"))),
    st.builds(
        lambda namespace: {"kind": "ServiceAccount", "name": "bot", "namespace": namespace}, st.sampled_from(NAMESPACES)
    ),
)


def _role(path: str, rules: list[JSON]) -> tuple[str, JSON]:
    return path, {"rules": rules}


def _binding(path: str, kind: str, role: str, subjects: list[JSON]) -> tuple[str, JSON]:
    return path, {"roleRef": {"kind": kind, "name": role}, "subjects": subjects}


def _paths(plural: str, *namespaces: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{plural}/{namespace}/{name}" for namespace in namespaces for name in NAMES])


_subject_lists = st.lists(_subjects, min_size=1, max_size=4)
OBJECTS: st.SearchStrategy[tuple[str, JSON]] = st.one_of(
    st.builds(_role, _paths("roles", *NAMESPACES), st.lists(_resource_rules, min_size=1, max_size=3)),
    st.builds(_role, _paths("clusterroles", ""), st.lists(_all_rules, min_size=1, max_size=3)),
    st.builds(
        _binding,
        _paths("rolebindings", *NAMESPACES),
        st.sampled_from(("Role", "ClusterRole")),
        st.sampled_from(NAMES),
        _subject_lists,
    ),
    st.builds(
        _binding, _paths("clusterrolebindings", ""), st.just("ClusterRole"), st.sampled_from(NAMES), _subject_lists
    ),
)
"""A path below the RBAC group, and an object."""

USERS: st.SearchStrategy[UserInfo] = st.one_of(
    st.builds(lambda name, groups: UserInfo(name, tuple(groups)), st.sampled_from(USER_NAMES), _some(USER_GROUPS, 0)),
    st.builds(
        lambda namespace: UserInfo(f"system:serviceaccount:{namespace}:bot", service_account_groups(namespace)),
        st.sampled_from(NAMESPACES),
    ),
    st.just(UserInfo("root", ("system:masters",))),
)

_requested_verbs = st.sampled_from(("get", "list", "create", "delete"))
ATTRIBUTES: st.SearchStrategy[Mapping[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {
            "verb": _requested_verbs,
            "group": st.sampled_from(("", "apps", "batch")),
            "resource": st.sampled_from(("pods", "deployments")),
            "subresource": st.sampled_from(("", "", "log", "scale")),
            "namespace": st.sampled_from(("", *NAMESPACES)),
            "name": st.sampled_from(("", *OBJECT_NAMES, "c")),
        }
    ),
    st.fixed_dictionaries({"verb": _requested_verbs, "path": st.sampled_from(PATHS)}),
)
"""What a request asks for: the fields of `AccessAttributes` without the user."""


class RbacModel:
    """Looks at everything for every question."""

    def __init__(self, objects: Mapping[str, JSON]) -> None:
        self._objects = objects

    def allows(self, user: UserInfo, attributes: Mapping[str, Any]) -> bool:
        if "system:masters" in user.groups:
            return True
        rules = self._rules_of(user, attributes.get("namespace", ""))
        return any(_allows(rule, attributes) for rule in rules)

    def _rules_of(self, user: UserInfo, namespace: str) -> Iterator[JSON]:
        for path, binding in self._objects.items():
            plural, scope, _ = path.split("/")
            applies = plural == "clusterrolebindings" or (plural == "rolebindings" and scope == namespace)
            if not applies or not any(_is_subject(user, subject) for subject in binding["subjects"]):
                continue
            reference = binding["roleRef"]
            role_path = f"roles/{scope}/{reference['name']}"
            if reference["kind"] == "ClusterRole":
                role_path = f"clusterroles//{reference['name']}"
            yield from self._objects.get(role_path, {"rules": []})["rules"]


def _is_subject(user: UserInfo, subject: JSON) -> bool:
    match subject["kind"]:
        case "User":
            return bool(user.name == subject["name"])
        case "Group":
            return subject["name"] in user.groups
        case _:
            return user.name == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


def _allows(rule: JSON, attributes: Mapping[str, Any]) -> bool:
    if not {attributes["verb"], "*"} & set(rule["verbs"]):
        return False
    if "path" in attributes:
        return any(_matches_url(url, attributes["path"]) for url in rule.get("nonResourceURLs", ()))
    wanted = {"*", attributes["resource"]}
    if attributes["subresource"]:
        wanted = {"*", f"{attributes['resource']}/{attributes['subresource']}", f"*/{attributes['subresource']}"}
    return bool(
        {attributes["group"], "*"} & set(rule.get("apiGroups", ()))
        and wanted & set(rule.get("resources", ()))
        and ("resourceNames" not in rule or attributes["name"] in rule["resourceNames"])
    )


def _matches_url(url: str, path: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith("*") else path == url
