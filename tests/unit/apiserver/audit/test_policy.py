"""Which rule of an audit policy decides, and what is wrong with a policy."""

import pytest

from gangline.apiserver.audit.policy import AuditLevel, AuditStage, parse_policy
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.users import UserInfo
from gangline.base.errors import InputError

ADA = UserInfo("ada", ("system:authenticated", "dev"))
HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def level(rule: str, attributes: AccessAttributes) -> str:
    """The level of a request if this rule says Request and nothing else is said."""
    return parse_policy(f"{HEAD}rules:\n- {{level: Request, {rule}}}\n", "p.yaml").config(attributes).level


def get(resource: str, subresource: str = "", *, namespace: str = "ns", name: str = "a") -> AccessAttributes:
    return AccessAttributes(ADA, "get", "", "v1", resource, subresource, namespace, name)


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ("users: [ada]", True),
        ("users: [bob]", False),
        ("userGroups: [dev]", True),
        ("userGroups: [ops]", False),
        ("verbs: [get, list]", True),
        ("verbs: [list]", False),
        ("namespaces: [ns]", True),
        ('namespaces: [""]', False),
        ('resources: [{group: ""}]', True),
        ("resources: [{group: apps}]", False),
        ('resources: [{group: "", resources: [pods]}]', False),
        ('resources: [{group: "", resources: ["pods/log"]}]', True),
        ('resources: [{group: "", resources: ["pods/*"]}]', True),
        ('resources: [{group: "", resources: ["*/log"]}]', True),
        ('resources: [{group: "", resources: ["*"]}]', True),
        ('resources: [{group: "", resources: ["pods/log"], resourceNames: [b]}]', False),
        ('nonResourceURLs: ["*"]', False),
    ],
)
def test_a_rule_matches_a_request_for_a_log(rule: str, matches: bool) -> None:
    assert level(rule, get("pods", "log")) == (AuditLevel.REQUEST if matches else AuditLevel.NONE)


@pytest.mark.parametrize(("pattern", "matches"), [("/healthz*", True), ("/healthz", False), ("*", True), ("/x", False)])
def test_a_rule_matches_a_path(pattern: str, matches: bool) -> None:
    path = AccessAttributes(ADA, "get", path="/healthz/etcd")
    assert level(f'nonResourceURLs: ["{pattern}"]', path) == (AuditLevel.REQUEST if matches else AuditLevel.NONE)


def test_the_first_rule_that_matches_decides_and_stages_add_up() -> None:
    text = f"""{HEAD}omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
  users: [ada]
  omitStages: [ResponseStarted]
  omitManagedFields: false
- level: Request
"""
    config = parse_policy(text, "p.yaml").config(get("pods"))
    assert config.level == AuditLevel.METADATA
    assert config.omit_stages == {AuditStage.REQUEST_RECEIVED, AuditStage.RESPONSE_STARTED}
    assert not config.omit_managed_fields


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + "rules: []", "p.yaml: rules: is empty"),
        (HEAD + "rules: [{level: All}]", "rules[0].level"),
        (HEAD + "rules: [{level: Metadata, verb: [get]}]", "p.yaml:3: rules[0].verb: unknown field"),
        ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", "audit.k8s.io/v1"),
        (HEAD + "rules: [{level: None, nonResourceURLs: [healthz]}]", "must begin with a '/'"),
        (HEAD + "rules: [{level: None, nonResourceURLs: ['/a*b']}]", "must be the final character"),
        (HEAD + "rules: [{level: None, nonResourceURLs: ['/a'], namespaces: [b]}]", "cannot apply to both"),
        (HEAD + "rules: [{level: None, resources: [{resourceNames: [a]}]}]", "requires at least one resource"),
        (HEAD + "rules: [{level: None, resources: [{group: apps/v1}]}]", "without its version"),
        ("", "has 0 documents"),
    ],
)
def test_a_wrong_policy_gets_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_policy(text, "p.yaml")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
