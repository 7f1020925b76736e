"""How Prometheus and Grafana learn of the components: monitors, alert rules, a board."""

from collections.abc import Mapping

from gangline.install.naming import ALL_COMPONENTS, NAMESPACE, full_name, labels
from gangline.install.nodes import FileField, FileText, Node, Value, When
from gangline.install.workloads import SECURE_METRICS

_COREOS = "monitoring.coreos.com/v1"


# Prometheus' own token. A certificate that a component made for itself has nobody who vouches for it.
_SECURE_ACCESS: Mapping[str, Node] = {
    "scheme": When(SECURE_METRICS, "https"),
    "bearerTokenFile": When(SECURE_METRICS, "/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "tlsConfig": When(SECURE_METRICS, {"insecureSkipVerify": True}),
}


def _monitor(kind: str, path: str, endpoints: str, access: Mapping[str, Node]) -> Node:
    interval = Value(f"{path}.interval")
    return When(
        Value(f"{path}.enabled"),
        {
            "apiVersion": _COREOS,
            "kind": kind,
            "metadata": {
                "name": full_name("metrics"),
                "namespace": NAMESPACE,
                "labels": labels("monitoring", extra=(Value(f"{path}.labels"),)),
            },
            "spec": {
                "selector": ALL_COMPONENTS,
                endpoints: [{"port": "metrics", "path": "/metrics", "interval": When(interval, interval), **access}],
            },
        },
    )


_RULES_FILE, _BOARD_FILE = "rules.yaml", "board.json"
MONITORING_FILES = (_RULES_FILE, _BOARD_FILE)

_RULE: Node = {
    "apiVersion": _COREOS,
    "kind": "PrometheusRule",
    "metadata": {
        "name": full_name("alerts"),
        "namespace": NAMESPACE,
        "labels": labels("monitoring", extra=(Value("metrics.prometheusRule.labels"),)),
    },
    "spec": {"groups": FileField(_RULES_FILE, "groups")},
}
_BOARD_ANNOTATIONS = Value("grafanaDashboard.annotations")
_BOARD: Node = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": full_name("board"),
        "namespace": NAMESPACE,
        "labels": labels("monitoring", extra=(Value("grafanaDashboard.labels"),)),
        "annotations": When(_BOARD_ANNOTATIONS, _BOARD_ANNOTATIONS),
    },
    "data": {"gangline.json": FileText(_BOARD_FILE)},
}

MONITORING_OBJECTS: tuple[Node, ...] = (
    _monitor("ServiceMonitor", "metrics.serviceMonitor", "endpoints", _SECURE_ACCESS),
    _monitor("PodMonitor", "metrics.podMonitor", "podMetricsEndpoints", {}),
    When(Value("metrics.prometheusRule.enabled"), _RULE),
    When(Value("grafanaDashboard.enabled"), _BOARD),
)
