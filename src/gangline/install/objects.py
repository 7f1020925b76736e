"""The objects of an installation, for `gangline install`, the Helm chart and kustomize alike."""

from collections.abc import Mapping

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON
from gangline.install.access import (
    ACCOUNT_OBJECTS,
    DASHBOARD_ROLES,
    METRICS_ROLES,
    NAMESPACE_OBJECT,
    OPERATOR_ROLES,
    SCHEDULER_ROLES,
    USER_ROLES,
)
from gangline.install.dashboard_objects import DASHBOARD_OBJECTS
from gangline.install.evaluate import Evaluation
from gangline.install.monitoring_objects import MONITORING_OBJECTS
from gangline.install.naming import FULL_NAME, labels
from gangline.install.nodes import (
    Above,
    Both,
    Equal,
    Matches,
    Node,
    Not,
    OneOf,
    ReleaseField,
    Required,
    Spread,
    Value,
    When,
)
from gangline.install.values import DEFAULT_RELEASE, InstallValues, Release
from gangline.install.workloads import NETWORK_POLICY, OPERATOR_OBJECTS, SCHEDULER_OBJECTS
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd
from gangline.schema.crds.job_crds import crd

REQUIREMENTS: tuple[Required, ...] = (
    Required(
        Matches(FULL_NAME, r"^[a-z][-a-z0-9]*$"),
        "the name of the release begins the names of Services, which begin with a letter and have no dots: choose "
        "another, or set fullnameOverride, as in fullnameOverride=gangline",
    ),
    Required(
        OneOf(Value("leaderElection.enabled"), Not(Above(Value("replicaCount"), 1))),
        "replicaCount above 1 needs leaderElection.enabled: several operators would act on each job",
    ),
    Required(
        OneOf(
            Value("leaderElection.enabled"),
            Not(Both(Value("scheduler.enabled"), Above(Value("scheduler.replicaCount"), 1))),
        ),
        "scheduler.replicaCount above 1 needs leaderElection.enabled: several schedulers would place each pod",
    ),
    Required(
        OneOf(
            Value("metrics.enabled"),
            Not(OneOf(Value("metrics.serviceMonitor.enabled"), Value("metrics.podMonitor.enabled"))),
        ),
        "metrics.serviceMonitor and metrics.podMonitor need metrics.enabled",
    ),
    Required(
        Not(Both(Value("metrics.secure.enabled"), Value("metrics.podMonitor.enabled"))),
        "metrics.podMonitor has no token to show with metrics.secure: use metrics.serviceMonitor",
    ),
    Required(
        Not(Both(Value("dashboard.history.enabled"), Value("watchNamespaces"))),
        "dashboard.history reads the whole cluster: leave it out with watchNamespaces",
    ),
)
"""What the types of the values cannot say."""

OBJECT_FILES: Mapping[str, tuple[Node, ...]] = {
    "namespace": (NAMESPACE_OBJECT,),
    "serviceaccounts": ACCOUNT_OBJECTS,
    "operator-rbac": OPERATOR_ROLES,
    "user-roles": USER_ROLES,
    "scheduler-rbac": SCHEDULER_ROLES,
    "metrics-rbac": METRICS_ROLES,
    "network-policy": (NETWORK_POLICY,),
    "operator": OPERATOR_OBJECTS,
    "scheduler": SCHEDULER_OBJECTS,
    "dashboard-rbac": DASHBOARD_ROLES,
    "dashboard": DASHBOARD_OBJECTS,
    "monitoring": MONITORING_OBJECTS,
    "extra-objects": (Spread(Value("extraObjects")),),
}
"""All objects but the CRDs, by the file in which the chart has them, in the order in which to apply them."""


def crd_nodes() -> dict[str, Node]:
    """The CRDs by their name."""
    definitions = [*(crd(kind) for kind in TRAINING_KINDS), *(gang_crd(one) for one in GANG_RESOURCES)]
    return {definition["metadata"]["name"]: _crd_node(definition) for definition in definitions}


def _crd_node(definition: JSON) -> Node:
    kept = Both(Value("crds.keep"), Equal(ReleaseField("service"), "Helm"))
    metadata = {
        **definition["metadata"],
        "labels": labels("crds"),
        "annotations": When(kept, {"helm.sh/resource-policy": "keep"}),
    }
    return When(Value("crds.install"), {**definition, "metadata": metadata})


def install_objects(values: InstallValues, release: Release = DEFAULT_RELEASE) -> list[JSON]:
    """Everything but the CRDs, in the order in which to apply it.

    Raises:
        InputError: values that contradict each other, in one line.
    """
    evaluation = Evaluation(values, release)
    evaluation.check(REQUIREMENTS)
    return evaluation.objects(node for nodes in OBJECT_FILES.values() for node in nodes)


def install_crds(values: InstallValues, release: Release = DEFAULT_RELEASE) -> list[JSON]:
    """The custom resource definitions, if they are to be installed."""
    return Evaluation(values, release).objects(crd_nodes().values())
