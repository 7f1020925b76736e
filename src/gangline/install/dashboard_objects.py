"""The dashboard in a cluster: a Deployment and a Service. No role: it uses the tokens of those who look.

With a history it has a volume, and an account that reads what is recorded.
"""

from gangline.install.naming import DASHBOARD, full_name, labels, metadata, selector
from gangline.install.nodes import Both, Either, Extended, ForEach, Item, Node, Not, Note, Spread, Text, Value, When
from gangline.install.workloads import IMAGE

DASHBOARD_PORT = 8080
_ROOT_CA_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


_HISTORY_FOLDER = "/var/lib/gangline/history"
_HISTORY = Value("dashboard.history.enabled")


def _value(name: str) -> Value:
    return Value(f"dashboard.{name}")


def _optional(value: Value) -> When:
    return When(value, value)


_PROBE: Node = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}
_CONTAINER: Node = {
    "name": DASHBOARD,
    "image": IMAGE,
    "imagePullPolicy": Value("image.pullPolicy"),
    "command": ["gangline", DASHBOARD],
    "args": [
        "--login=token",
        "--bind=0.0.0.0",
        f"--port={DASHBOARD_PORT}",
        Text(("--allow-host=", full_name(DASHBOARD))),
        ForEach(_value("hosts"), (Text(("--allow-host=", Item())),)),
        When(_HISTORY, f"--history={_HISTORY_FOLDER}"),
        When(_HISTORY, "--record"),
        Spread(_value("extraArgs")),
    ],
    "ports": [{"name": "http", "containerPort": DASHBOARD_PORT}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "resources": _value("resources"),
    "securityContext": Value("securityContext"),
    "volumeMounts": [
        When(Not(_HISTORY), {"name": "cluster-ca", "mountPath": _ROOT_CA_FOLDER, "readOnly": True}),
        When(_HISTORY, {"name": "history", "mountPath": _HISTORY_FOLDER}),
    ],
}
_DEPLOYMENT: Node = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": metadata(DASHBOARD, full_name(DASHBOARD)),
    "spec": {
        "replicas": 1,
        "strategy": When(_HISTORY, Note("Two pods cannot write one history.", {"type": "Recreate"})),
        "selector": {"matchLabels": selector(DASHBOARD)},
        "template": {
            "metadata": {
                "labels": labels(DASHBOARD, extra=(_value("podLabels"),)),
                "annotations": _optional(_value("podAnnotations")),
            },
            "spec": {
                "serviceAccountName": When(_HISTORY, full_name(DASHBOARD)),
                "automountServiceAccountToken": Either(_HISTORY, node=True, otherwise=False),
                "imagePullSecrets": When(
                    Value("image.pullSecrets"), [ForEach(Value("image.pullSecrets"), ({"name": Item()},))]
                ),
                "securityContext": Extended(({"fsGroup": When(_HISTORY, 65532)},), (Value("podSecurityContext"),)),
                "nodeSelector": _optional(_value("nodeSelector")),
                "affinity": _optional(_value("affinity")),
                "tolerations": _optional(_value("tolerations")),
                "containers": [_CONTAINER],
                "volumes": [
                    When(
                        Not(_HISTORY),
                        {
                            "name": "cluster-ca",
                            "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]},
                        },
                    ),
                    When(
                        _HISTORY,
                        {"name": "history", "persistentVolumeClaim": {"claimName": full_name("dashboard-history")}},
                    ),
                ],
            },
        },
    },
}
_SERVICE: Node = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": metadata(DASHBOARD, full_name(DASHBOARD)),
    "spec": {
        "selector": selector(DASHBOARD),
        "ports": [{"name": "http", "port": _value("port"), "targetPort": "http"}],
    },
}

_CLAIM: Node = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": metadata(DASHBOARD, full_name("dashboard-history")),
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": _optional(_value("history.storageClassName")),
        "resources": {"requests": {"storage": _value("history.size")}},
    },
}

DASHBOARD_OBJECTS: tuple[Node, ...] = (
    When(Both(Value("dashboard.enabled"), _HISTORY), _CLAIM),
    When(Value("dashboard.enabled"), _SERVICE),
    When(Value("dashboard.enabled"), _DEPLOYMENT),
)
