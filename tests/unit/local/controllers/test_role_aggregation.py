"""The rules of aggregated roles."""

from gangline.api.meta import JSON
from gangline.local.controllers.role_aggregation import aggregated_rules


def role(name: str, *verbs: str, **labels: str) -> JSON:
    rules = [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]} for verb in verbs]
    return {"metadata": {"name": name, "labels": labels}, "rules": rules or None}


def aggregated(*selectors: JSON, **labels: str) -> JSON:
    return {**role("all", "own", **labels), "aggregationRule": {"clusterRoleSelectors": list(selectors)}}


def verbs(rules: list[JSON] | None) -> list[str]:
    assert rules is not None
    return [rule["verbs"][0] for rule in rules]


def test_rules_come_by_selector_then_by_name_each_once() -> None:
    roles = [
        role("c", "get", a="1"),
        role("b", "watch", "list", a="1"),
        role("a", "list", "get", b="1"),
        role("d", "x"),
    ]
    first, second = {"matchLabels": {"a": "1"}}, {"matchExpressions": [{"key": "b", "operator": "Exists"}]}
    assert verbs(aggregated_rules(aggregated(first, second), roles)) == ["watch", "list", "get"]
    assert verbs(aggregated_rules(aggregated(second, first), roles)) == ["list", "get", "watch"]


def test_a_role_does_not_aggregate_itself() -> None:
    own = aggregated({"matchLabels": {"a": "1"}}, a="1")
    assert aggregated_rules(own, [own, role("b", a="1")]) == []


def test_a_selector_that_cannot_be_parsed_changes_nothing() -> None:
    assert aggregated_rules(aggregated({"matchExpressions": [{"key": "a", "operator": "Odd"}]}), []) is None
