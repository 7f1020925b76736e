"""How Prometheus and Grafana learn of the components: monitors, alert rules, a board."""

from gangline.install.naming import ALL_COMPONENTS, NAMESPACE, full_name, labels
from gangline.install.nodes import FileField, FileText, Node, Value, When

_COREOS = "monitoring.coreos.com/v1"


def _monitor(kind: str, path: str, endpoints: str) -> Node:
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
                endpoints: [{"port": "metrics", "path": "/metrics", "interval": When(interval, interval)}],
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
    _monitor("ServiceMonitor", "metrics.serviceMonitor", "endpoints"),
    _monitor("PodMonitor", "metrics.podMonitor", "podMetricsEndpoints"),
    When(Value("metrics.prometheusRule.enabled"), _RULE),
    When(Value("grafanaDashboard.enabled"), _BOARD),
)
