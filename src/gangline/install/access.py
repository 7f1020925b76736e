"""Namespace, accounts, roles and their bindings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.install.naming import (
    DASHBOARD,
    NAMESPACE,
    OPERATOR,
    SCHEDULER,
    account_name,
    full_name,
    labels,
    metadata,
)
from gangline.install.nodes import (
    Both,
    Condition,
    Contains,
    Either,
    Equal,
    ForEach,
    Item,
    Node,
    Not,
    Note,
    OneOf,
    Text,
    Value,
    When,
)
from gangline.install.rules import (
    DIAGNOSIS_CLUSTER_RULES,
    HISTORY_RULES,
    METRICS_AUTH_RULES,
    METRICS_READER_RULE,
    OPERATOR_RULES,
    PROGRESS_RULES,
    RBAC_GROUP,
    SCHEDULER_CLUSTER_RULES,
    SCHEDULER_RULES,
    Feature,
    Rule,
    crd_rules,
    lease_rules,
    notification_rules,
    operator_rules,
)
from gangline.install.workloads import HANG_STACKS, HANG_WATCH, PROGRESS, SECURE_METRICS
from gangline.operator.settings import KUBEFLOW_LEASE, NOTIFICATIONS_SUFFIX
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
        "subjects": [_subject(component)],
    }


def _subject(component: str) -> Node:
    # The dashboard's account has no other name.
    name = full_name(component) if component == DASHBOARD else account_name(component)
    return {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}


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

_LEASE_NAME = Value("leaderElection.leaseName")
_LEASE: Node = Either(_LEASE_NAME, _LEASE_NAME, KUBEFLOW_LEASE)
_GANG_SCHEDULER = Value("gangSchedulerName")
_OTHER_GANG_SCHEDULER = Both(
    _GANG_SCHEDULER,
    Not(
        OneOf(
            Equal(_GANG_SCHEDULER, "gangline"),
            OneOf(Equal(_GANG_SCHEDULER, "volcano"), Equal(_GANG_SCHEDULER, "kubernetes")),
        )
    ),
)
_DIAGNOSIS: Condition = Value("recovery.diagnosis")
_OPTIONAL_FEATURES: Mapping[Feature, Condition] = {
    Feature.MPI: Value("rbac.mpiJobs"),
    Feature.MPI_ACCOUNT: Value("mpiLauncherServiceAccount"),
    Feature.MPI_V2: Value("mpiV2beta1"),
    Feature.HANG_WATCH: HANG_WATCH,
    Feature.HANG_STACKS: HANG_STACKS,
    Feature.DIAGNOSIS: _DIAGNOSIS,
    Feature.VOLCANO: Contains(_GANG_SCHEDULER, "volcano"),
    Feature.SCHEDULER_PLUGINS: _OTHER_GANG_SCHEDULER,
    Feature.KUBERNETES: Contains(_GANG_SCHEDULER, "kubernetes"),
}
_CRD_NAMES = [resource.name for resource in (*(kind.resource for kind in TRAINING_KINDS), *GANG_RESOURCES)]


def _rule_nodes(rules: Iterable[Rule], *leases: Node) -> tuple[Node, ...]:
    """Rules with their reasons. Those about Leases with names are about these."""
    return tuple(
        Note(rule.why, {**rule.to_json(), "resourceNames": leases} if leases and rule.names else rule.to_json())
        for rule in rules
    )


def _served(condition: Condition | None, rules: Sequence[Node], suffix: str = "") -> Iterator[Node]:
    """Rights in what is served: the cluster, or each of some namespaces."""
    within = Value("watchNamespaces")
    yield from _granted(_both(CLUSTER_WIDE, condition), OPERATOR, rules, None, suffix)
    yield ForEach(within, _granted(_both(within, condition), OPERATOR, rules, Item(), suffix))


def _both(first: Condition, second: Condition | None) -> Condition:
    return first if second is None else Both(first, second)


OPERATOR_ROLES: tuple[Node, ...] = (
    *_served(None, _rule_nodes(operator_rules(), KUBEFLOW_LEASE, When(_LEASE_NAME, _LEASE_NAME))),
    *(
        node
        for feature, condition in _OPTIONAL_FEATURES.items()
        for node in _served(condition, _rule_nodes(OPERATOR_RULES[feature]), f"-{feature}")
    ),
    *_granted(
        Value("leaderElection.enabled"),
        OPERATOR,
        _rule_nodes(lease_rules(KUBEFLOW_LEASE), _LEASE),
        NAMESPACE,
        "-lease",
    ),
    *_granted(
        Value("notifications.config"),
        OPERATOR,
        _rule_nodes(notification_rules(KUBEFLOW_LEASE + NOTIFICATIONS_SUFFIX), Text((_LEASE, NOTIFICATIONS_SUFFIX))),
        NAMESPACE,
        "-notifications",
    ),
    *_granted(Value("crds.byOperator"), OPERATOR, _rule_nodes(crd_rules(_CRD_NAMES)), None, "-install-crds"),
    *_granted(PROGRESS, OPERATOR, _rule_nodes(PROGRESS_RULES), None, "-progress"),
    *_granted(Both(CLUSTER_WIDE, _DIAGNOSIS), OPERATOR, _rule_nodes(DIAGNOSIS_CLUSTER_RULES), None, "-diagnosis-nodes"),
)

USER_ROLES: tuple[Node, ...] = tuple(_user_role(role) for role in job_roles(TRAINING_KINDS))
"""Added to Kubernetes' own roles admin, edit and view: whoever may edit pods in a namespace may edit jobs there."""

_WITH_SCHEDULER = Value("scheduler.enabled")

_METRICS_AUTH = full_name("metrics-auth")
_METRICS_BINDING: Node = {
    "apiVersion": _RBAC_VERSION,
    "kind": "ClusterRoleBinding",
    "metadata": metadata("monitoring", _METRICS_AUTH, namespace=None),
    "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": _METRICS_AUTH},
    "subjects": [_subject(OPERATOR), When(_WITH_SCHEDULER, _subject(SCHEDULER))],
}
_WITH_SECURE_METRICS = Both(Value("rbac.create"), SECURE_METRICS)
METRICS_ROLES: tuple[Node, ...] = (
    When(_WITH_SECURE_METRICS, _role("monitoring", _METRICS_AUTH, _rule_nodes(METRICS_AUTH_RULES), None)),
    When(_WITH_SECURE_METRICS, _METRICS_BINDING),
    When(_WITH_SECURE_METRICS, _role("monitoring", full_name("metrics-reader"), [METRICS_READER_RULE], None)),
)
"""For metrics by TLS: the components ask about tokens, and scrapers need the role of a reader."""

SCHEDULER_ROLES: tuple[Node, ...] = (
    *_granted(
        Both(_WITH_SCHEDULER, CLUSTER_WIDE),
        SCHEDULER,
        _rule_nodes((*SCHEDULER_CLUSTER_RULES, *SCHEDULER_RULES)),
        None,
    ),
    *_granted(
        Both(_WITH_SCHEDULER, Value("watchNamespaces")),
        SCHEDULER,
        _rule_nodes(SCHEDULER_CLUSTER_RULES),
        None,
        "-read",
    ),
    ForEach(Value("watchNamespaces"), _granted(_WITH_SCHEDULER, SCHEDULER, _rule_nodes(SCHEDULER_RULES), Item())),
    *_granted(
        Both(_WITH_SCHEDULER, Value("leaderElection.enabled")),
        SCHEDULER,
        _rule_nodes(lease_rules(LEASE_NAME)),
        NAMESPACE,
        "-lease",
    ),
)

_WITH_HISTORY = Both(Value("dashboard.enabled"), Value("dashboard.history.enabled"))
DASHBOARD_ROLES: tuple[Node, ...] = (
    When(
        _WITH_HISTORY,
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(DASHBOARD, full_name(DASHBOARD)),
        },
    ),
    *_granted(_WITH_HISTORY, DASHBOARD, _rule_nodes(HISTORY_RULES), None),
)
"""For the recorder of the dashboard alone: what viewers see is read with their own tokens."""
