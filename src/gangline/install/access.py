"""Namespace, accounts, roles and their bindings."""

from collections.abc import Iterable, Sequence

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.install.naming import (
    NAMESPACE,
    OPERATOR,
    SCHEDULER,
    account_name,
    full_name,
    labels,
    metadata,
)
from gangline.install.nodes import Both, Condition, Each, Item, Node, Not, Note, Value, When
from gangline.install.rules import (
    DEFAULT_FEATURES,
    RBAC_GROUP,
    SCHEDULER_CLUSTER_RULES,
    SCHEDULER_RULES,
    Feature,
    Rule,
    crd_rules,
    lease_rules,
    operator_rules,
)
from gangline.operator.settings import KUBEFLOW_LEASE
from gangline.scheduler.settings import LEASE_NAME
from gangline.schema.crds.gang_crds import GANG_RESOURCES
from gangline.schema.crds.job_roles import job_roles

CLUSTER_WIDE = Not(Value("watchNamespaces"))
_RBAC_VERSION = f"{RBAC_GROUP}/v1"

NAMESPACE_OBJECT: Node = When(
    Value("namespace.create"),
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": labels(
                "namespace",
                {
                    "pod-security.kubernetes.io/enforce": Value("namespace.podSecurity"),
                    "pod-security.kubernetes.io/audit": Value("namespace.podSecurity"),
                    "pod-security.kubernetes.io/warn": Value("namespace.podSecurity"),
                },
            ),
        },
    },
)


def _account(component: str, values: str) -> Node:
    return When(
        Value(f"{values}.create"),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(
                component,
                account_name(component),
                annotations=When(Value(f"{values}.annotations"), Value(f"{values}.annotations")),
            ),
        },
    )


def _role(component: str, name: Node, rules: Sequence[Node], namespace: Node | None) -> Node:
    kind = "ClusterRole" if namespace is None else "Role"
    return {
        "apiVersion": _RBAC_VERSION,
        "kind": kind,
        "metadata": metadata(component, name, namespace=namespace),
        "rules": rules,
    }


def _binding(component: str, name: Node, namespace: Node | None) -> Node:
    kind = "ClusterRole" if namespace is None else "Role"
    return {
        "apiVersion": _RBAC_VERSION,
        "kind": f"{kind}Binding",
        "metadata": metadata(component, name, namespace=namespace),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account_name(component), "namespace": NAMESPACE}],
    }


def _granted(
    condition: Condition, component: str, rules: Sequence[Node], namespace: Node | None, suffix: str = ""
) -> tuple[Node, ...]:
    name = full_name(f"{component}{suffix}")
    wanted = Both(Value("rbac.create"), condition)
    return (
        When(wanted, _role(component, name, rules, namespace)),
        When(wanted, _binding(component, name, namespace)),
    )


def _user_role(role: Node) -> Node:
    assert isinstance(role, dict)
    aggregation = role["metadata"]["labels"]
    suffix = role["metadata"]["name"].removeprefix("gangline-")
    return When(
        Both(Value("rbac.userRoles"), CLUSTER_WIDE),
        {**role, "metadata": {"name": full_name(suffix), "labels": labels("access", aggregation)}},
    )


ACCOUNT_OBJECTS: tuple[Node, ...] = (
    _account(OPERATOR, "serviceAccount"),
    When(Value("scheduler.enabled"), _account(SCHEDULER, "scheduler.serviceAccount")),
)


def _rule_nodes(rules: Iterable[Rule]) -> tuple[Node, ...]:
    return tuple(Note(rule.why, rule.to_json()) for rule in rules)


_FEATURES = (*DEFAULT_FEATURES, Feature.MPI, Feature.VOLCANO, Feature.SCHEDULER_PLUGINS, Feature.KUBERNETES)
_CRD_NAMES = [resource.name for resource in (*(kind.resource for kind in TRAINING_KINDS), *GANG_RESOURCES)]

OPERATOR_ROLES: tuple[Node, ...] = (
    *_granted(CLUSTER_WIDE, OPERATOR, _rule_nodes(operator_rules(_FEATURES)), None),
    *(
        Each(Value("watchNamespaces"), node)
        for node in _granted(Value("watchNamespaces"), OPERATOR, _rule_nodes(operator_rules(_FEATURES)), Item())
    ),
    *_granted(Value("leaderElection.enabled"), OPERATOR, _rule_nodes(lease_rules(KUBEFLOW_LEASE)), NAMESPACE, "-lease"),
    *_granted(Value("rbac.installCrds"), OPERATOR, _rule_nodes(crd_rules(_CRD_NAMES)), None, "-install-crds"),
)

USER_ROLES: tuple[Node, ...] = tuple(_user_role(role) for role in job_roles(TRAINING_KINDS))
"""Added to Kubernetes' own roles admin, edit and view: whoever may edit pods in a namespace may edit jobs there."""

SCHEDULER_ROLES: tuple[Node, ...] = (
    *_granted(Value("scheduler.enabled"), SCHEDULER, _rule_nodes((*SCHEDULER_CLUSTER_RULES, *SCHEDULER_RULES)), None),
    *_granted(Value("scheduler.enabled"), SCHEDULER, _rule_nodes(lease_rules(LEASE_NAME)), NAMESPACE),
)
