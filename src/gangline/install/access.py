"""Namespace, accounts, roles and their bindings."""

from collections.abc import Sequence

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
from gangline.install.nodes import Both, Condition, Each, Item, Node, Not, Value, When
from gangline.install.rules import (
    INSTALL_CRDS_RULES,
    OPERATOR_HOME_RULES,
    OPERATOR_RULES,
    RBAC,
    SCHEDULER_HOME_RULES,
    SCHEDULER_RULES,
)
from gangline.schema.crds.job_roles import job_roles

CLUSTER_WIDE = Not(Value("watchNamespaces"))
_RBAC_VERSION = f"{RBAC}/v1"

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
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
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

OPERATOR_ROLES: tuple[Node, ...] = (
    *_granted(CLUSTER_WIDE, OPERATOR, OPERATOR_RULES, None),
    *(
        Each(Value("watchNamespaces"), node)
        for node in _granted(Value("watchNamespaces"), OPERATOR, OPERATOR_RULES, Item())
    ),
    *_granted(Value("watchNamespaces"), OPERATOR, OPERATOR_HOME_RULES, NAMESPACE, "-election"),
    *_granted(Value("rbac.installCrds"), OPERATOR, INSTALL_CRDS_RULES, None, "-install-crds"),
)

USER_ROLES: tuple[Node, ...] = tuple(_user_role(role) for role in job_roles(TRAINING_KINDS))
"""Added to Kubernetes' own roles admin, edit and view: whoever may edit pods in a namespace may edit jobs there."""

SCHEDULER_ROLES: tuple[Node, ...] = (
    *_granted(Value("scheduler.enabled"), SCHEDULER, SCHEDULER_RULES, None),
    *_granted(Value("scheduler.enabled"), SCHEDULER, SCHEDULER_HOME_RULES, NAMESPACE),
)
