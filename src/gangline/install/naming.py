"""The names and labels of all objects of an installation."""

from collections.abc import Mapping

from gangline.install.nodes import (
    AppVersion,
    Contains,
    Either,
    Equal,
    Extended,
    Named,
    Node,
    ReleaseField,
    Shortened,
    Text,
    Value,
    When,
)

OPERATOR, SCHEDULER, DASHBOARD = "operator", "scheduler", "dashboard"
_COMPONENT = "app.kubernetes.io/component"

# Leaves room for the component: the name of a Service has at most 63 characters.
_MAX_NAME = 40

NAMESPACE = ReleaseField("namespace")
SHORT_NAME = Named(
    "gangline.name", Shortened(Either(Value("nameOverride"), Value("nameOverride"), "gangline"), _MAX_NAME)
)
FULL_NAME = Named(
    "gangline.fullname",
    Either(
        Value("fullnameOverride"),
        Shortened(Value("fullnameOverride"), _MAX_NAME),
        Either(
            Contains(ReleaseField("name"), SHORT_NAME),
            Shortened(ReleaseField("name"), _MAX_NAME),
            Shortened(Text((ReleaseField("name"), "-", SHORT_NAME)), _MAX_NAME),
        ),
    ),
)
SELECTOR = Named(
    "gangline.selectorLabels",
    {"app.kubernetes.io/name": SHORT_NAME, "app.kubernetes.io/instance": ReleaseField("name")},
)
ALL_COMPONENTS: Node = {
    "matchLabels": SELECTOR,
    "matchExpressions": [{"key": _COMPONENT, "operator": "In", "values": [OPERATOR, SCHEDULER]}],
}
"""A selector of the pods and Services of operator and scheduler."""
_LABELS = Named(
    "gangline.labels",
    {
        "app.kubernetes.io/name": SHORT_NAME,
        "app.kubernetes.io/instance": ReleaseField("name"),
        "app.kubernetes.io/version": AppVersion(),
        "app.kubernetes.io/part-of": "gangline",
        "app.kubernetes.io/managed-by": ReleaseField("service"),
        "helm.sh/chart": When(Equal(ReleaseField("service"), "Helm"), Text(("gangline-", AppVersion()))),
    },
)


def full_name(suffix: str) -> Node:
    """The name of an object: release and chart, and what it is."""
    return Named(f"gangline.{suffix}.fullname", Text((FULL_NAME, f"-{suffix}")))


def account_name(component: str) -> Node:
    """The name of a component's service account."""
    path = "serviceAccount.name" if component == OPERATOR else f"{component}.serviceAccount.name"
    return Named(f"gangline.{component}.serviceAccountName", Either(Value(path), Value(path), full_name(component)))


def labels(component: str, *own: Mapping[str, Node], extra: tuple[Value, ...] = ()) -> Node:
    """The labels of an object or a pod. Nothing that the values add can change those by which it is selected."""
    made = Extended((_LABELS, {_COMPONENT: component}, *own), (*extra, Value("extraLabels")))
    return made if own or extra else Named(f"gangline.{component}.labels", made)


def selector(component: str) -> Node:
    """The labels by which the pods of a component are selected."""
    return Named(f"gangline.{component}.selectorLabels", Extended((SELECTOR, {_COMPONENT: component}), ()))


def metadata(component: str, name: Node, *, namespace: Node | None = NAMESPACE, **more: Node) -> dict[str, Node]:
    """The metadata of an object; without a namespace, of one of the cluster."""
    place = {} if namespace is None else {"namespace": namespace}
    return {"name": name, **place, "labels": labels(component), **more}
