"""The rules of roles."""

import pytest

from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.policy_rules import (
    FULL_AUTHORITY,
    PolicyRule,
    missing_rules_text,
    policy_rules,
    rule_allows,
    uncovered_rules,
)
from gangline.apiserver.users import UserInfo

USER = UserInfo("jane")


@pytest.mark.parametrize(
    ("resource", "subresource", "allowed"),
    [
        ("pods", "", True),
        ("pods", "log", False),
        ("pods", "scale", True),
        ("deployments", "scale", True),
        ("deployments", "", False),
        ("services", "proxy", True),
    ],
)
def test_a_subresource_must_be_named_with_its_resource_or_for_all(
    resource: str, subresource: str, allowed: bool
) -> None:
    rule = PolicyRule(("get",), ("",), ("pods", "*/scale", "services/proxy"))
    attributes = AccessAttributes(USER, "get", resource=resource, subresource=subresource)
    assert rule_allows(rule, attributes) is allowed


@pytest.mark.parametrize(
    ("urls", "path", "allowed"),
    [
        (("/metrics",), "/metrics", True),
        (("/metrics",), "/metrics/", False),
        (("/logs/*",), "/logs/a/b", True),
        (("/logs/*",), "/logs", False),
        (("/logs*",), "/logsandmore", True),
        (("*",), "/anything", True),
        ((), "/metrics", False),
    ],
)
def test_a_path_matches_exactly_or_by_prefix(urls: tuple[str, ...], path: str, allowed: bool) -> None:
    assert rule_allows(PolicyRule(("get",), urls=urls), AccessAttributes(USER, "get", path=path)) is allowed


def test_a_rule_with_names_allows_no_request_without_a_name() -> None:
    rule = PolicyRule(("*",), ("",), ("secrets",), ("a",))
    for name, allowed in (("a", True), ("b", False), ("", False)):
        assert rule_allows(rule, AccessAttributes(USER, "list", resource="secrets", name=name)) is allowed


def test_rules_for_resources_allow_no_paths_and_the_other_way_round() -> None:
    resources, paths = FULL_AUTHORITY
    assert not rule_allows(resources, AccessAttributes(USER, "get", path="/"))
    assert not rule_allows(paths, AccessAttributes(USER, "get", resource="pods"))


def test_missing_rights_are_listed_by_resource_in_order() -> None:
    wanted = [
        PolicyRule(("get", "list"), ("", "apps"), ("pods",)),
        PolicyRule(("get",), ("",), ("secrets",), ("b", "a")),
        PolicyRule(("get", "post"), urls=("/x",)),
    ]
    owned = [PolicyRule(("get",), ("",), ("pods",)), PolicyRule(("*",), ("*",), ("*",), ("a",))]
    assert missing_rules_text(uncovered_rules(owned, wanted)).splitlines() == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
        '{NonResourceURLs:["/x"], Verbs:["post"]}',
    ]


@pytest.mark.parametrize(
    ("owned", "wanted"),
    [
        (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("get",), ("x",), ("a/b",), ("n",))),
        (PolicyRule(("get",), ("",), ("*/log",)), PolicyRule(("get",), ("",), ("pods/log",))),
        (PolicyRule(("get",), urls=("/a*",)), PolicyRule(("get",), urls=("/a/b", "/a/b*"))),
    ],
)
def test_wildcards_cover_what_they_match(owned: PolicyRule, wanted: PolicyRule) -> None:
    assert uncovered_rules([owned], [wanted]) == []
    assert uncovered_rules([wanted], [owned]) != []


def test_rules_of_an_invalid_role_have_empty_lists() -> None:
    assert policy_rules({"rules": [{"verbs": None, "resources": ["pods"]}]}) == (PolicyRule(resources=("pods",)),)
    assert policy_rules({"rules": None}) == ()
