"""The Deployments of operator and scheduler, and what belongs to them: Service, PodDisruptionBudget, NetworkPolicy."""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from gangline.api.kubeflow.kinds import MPIJOB_V2
from gangline.install.naming import (
    ALL_COMPONENTS,
    OPERATOR,
    SCHEDULER,
    account_name,
    full_name,
    labels,
    metadata,
    selector,
)
from gangline.install.nodes import (
    AppVersion,
    Both,
    Condition,
    Either,
    Extended,
    ForEach,
    Item,
    Joined,
    Named,
    Node,
    Not,
    Note,
    NumberText,
    OneOf,
    ReleaseField,
    Spread,
    Text,
    Value,
    When,
)
from gangline.operator.settings import ALL_V1, NOTIFICATIONS_VARIABLE

METRICS_PORT, PROBES_PORT, PROGRESS_PORT = 8080, 8081, 8082
PROGRESS: Condition = Value("progress.enabled")
_PROGRESS_CERT: Condition = Both(PROGRESS, Value("progress.certSecret"))
_PROGRESS_CERT_FOLDER = "/etc/gangline/progress"
SECURE_METRICS: Condition = Both(Value("metrics.enabled"), Value("metrics.secure.enabled"))
_METRICS_CERT: Condition = Both(SECURE_METRICS, Value("metrics.secure.certSecret"))
_CERT_FOLDER = "/etc/gangline/metrics"
_NOTIFICATIONS = Value("notifications.config")
_NOTIFICATION_SECRET: Condition = Both(_NOTIFICATIONS, Value("notifications.secret"))
_NOTIFICATION_FOLDER = "/etc/gangline/notifications"
HANG_WATCH: Condition = Value("hangWatch.enabled")
HANG_STACKS: Condition = Both(HANG_WATCH, Value("hangWatch.stacks"))
_SCRAPED: Condition = Both(Value("metrics.enabled"), Value("metrics.annotations"))

# By this label an operator sees another one.
ROLE_LABELS: Mapping[str, Node] = {"control-plane": "gangline-operator"}

IMAGE = Named(
    "gangline.image",
    Text(
        (
            Either(Value("image.registry"), Text((Value("image.registry"), "/")), ""),
            Value("image.repository"),
            Either(
                Value("image.digest"),
                Text(("@", Value("image.digest"))),
                Text((":", Either(Value("image.tag"), Value("image.tag"), AppVersion()))),
            ),
        )
    ),
)

PULL_SECRETS: Node = When(Value("image.pullSecrets"), [ForEach(Value("image.pullSecrets"), ({"name": Item()},))])
_LEASE_NAMESPACE = Text(("--leader-election-namespace=", ReleaseField("namespace")))

_COMMON_ARGS: tuple[Node, ...] = (
    "--log-format=json",
    Text(("--log-level=", Value("logLevel"))),
    Either(Value("leaderElection.enabled"), "--leader-elect", "--leader-elect=false"),
    When(Value("leaderElection.enabled"), _LEASE_NAMESPACE),
    Either(Value("metrics.enabled"), f"--metrics-bind-address=:{METRICS_PORT}", "--metrics-bind-address=0"),
    When(SECURE_METRICS, "--metrics-secure"),
    When(_METRICS_CERT, f"--metrics-cert-path={_CERT_FOLDER}"),
    When(Value("watchNamespaces"), Text(("--namespace=", Joined(Value("watchNamespaces"))))),
)


def _progress_url(scheme: str) -> Node:
    """The flag with the URL of the operator's endpoint for progress."""
    service = (full_name("progress"), ".", ReleaseField("namespace"), f".svc:{PROGRESS_PORT}")
    return Text((f"--progress-url={scheme}://", *service))


_OPERATOR_ARGS: tuple[Node, ...] = (
    *_COMMON_ARGS,
    When(
        Value("leaderElection.enabled"),
        When(Value("leaderElection.leaseName"), Text(("--leader-election-id=", Value("leaderElection.leaseName")))),
    ),
    When(
        OneOf(Value("gangSchedulerName"), Value("scheduler.enabled")),
        Text(("--gang-scheduler-name=", Either(Value("gangSchedulerName"), Value("gangSchedulerName"), "gangline"))),
    ),
    When(
        Value("mpiLauncherServiceAccount"),
        Text(("--mpi-launcher-service-account=", Value("mpiLauncherServiceAccount"))),
    ),
    When(Value("crds.byOperator"), "--install-crds"),
    # What was delivered is remembered beside the Lease, also without one.
    When(Both(_NOTIFICATIONS, Not(Value("leaderElection.enabled"))), _LEASE_NAMESPACE),
    ForEach(Value("kinds"), (Text(("--enable-scheme=", Item())),)),
    When(Both(Value("mpiV2beta1"), Not(Value("kinds"))), f"--enable-scheme={ALL_V1}"),
    When(Value("mpiV2beta1"), f"--enable-scheme={MPIJOB_V2.scheme.lower()}"),
    When(PROGRESS, f"--progress-bind-address=:{PROGRESS_PORT}"),
    When(PROGRESS, Either(Value("progress.certSecret"), _progress_url("https"), _progress_url("http"))),
    When(Both(PROGRESS, Value("progress.everyJob")), "--inject-progress"),
    When(_PROGRESS_CERT, f"--progress-cert-path={_PROGRESS_CERT_FOLDER}"),
    When(Value("progress.logStreams"), Text(("--progress-log-streams=", NumberText(Value("progress.logStreams"))))),
    When(Not(HANG_WATCH), "--hang-watch=false"),
    When(HANG_STACKS, "--hang-stacks"),
    Spread(Value("extraArgs")),
)
_SCHEDULER_ARGS: tuple[Node, ...] = (*_COMMON_ARGS, Spread(Value("scheduler.extraArgs")))


def _path(component: str, name: str) -> Value:
    return Value(name if component == OPERATOR else f"{component}.{name}")


def _optional(value: Value) -> When:
    return When(value, value)


def _probe(path: str, period: int) -> Node:
    return {"httpGet": {"path": path, "port": "probes"}, "periodSeconds": period, "timeoutSeconds": 5}


def _env(component: str) -> Node:
    extra = _path(component, "extraEnv")
    if component != OPERATOR:
        return When(extra, extra)
    return [
        Note(
            "The init container of MPI launchers has the agent from here.", {"name": "GANGLINE_IMAGE", "value": IMAGE}
        ),
        When(_NOTIFICATIONS, {"name": NOTIFICATIONS_VARIABLE, "value": _NOTIFICATIONS}),
        Spread(extra),
    ]


class _SecretFiles(NamedTuple):
    """Files from a Secret in the pods of a component: on what condition, their volume, where it is mounted."""

    condition: Condition
    volume: str
    secret: Value
    folder: str

    @property
    def mount_node(self) -> Node:
        return When(self.condition, {"name": self.volume, "mountPath": self.folder, "readOnly": True})

    @property
    def volume_node(self) -> Node:
        return When(self.condition, {"name": self.volume, "secret": {"secretName": self.secret}})


_METRICS_FILES = _SecretFiles(_METRICS_CERT, "metrics-cert", Value("metrics.secure.certSecret"), _CERT_FOLDER)
_OPERATOR_FILES = (
    _METRICS_FILES,
    _SecretFiles(_PROGRESS_CERT, "progress-cert", Value("progress.certSecret"), _PROGRESS_CERT_FOLDER),
    _SecretFiles(_NOTIFICATION_SECRET, "notifications", Value("notifications.secret"), _NOTIFICATION_FOLDER),
)


def _files(component: str) -> tuple[Condition, list[Node], list[Node]]:
    """Whether the pods of a component have files from Secrets, where they are mounted, and the volumes."""
    files = _OPERATOR_FILES if component == OPERATOR else (_METRICS_FILES,)
    condition = reduce(OneOf, (one.condition for one in files))
    return condition, [one.mount_node for one in files], [one.volume_node for one in files]


def _deployment(component: str, args: tuple[Node, ...], role_labels: Mapping[str, Node]) -> Node:
    spread = _path(component, "topologySpreadConstraints")
    over_nodes: Node = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(component)},
    }
    has_files, mounts, volumes = _files(component)
    container: Node = {
        "name": component,
        "image": IMAGE,
        "imagePullPolicy": Value("image.pullPolicy"),
        "command": ["gangline", component],
        "args": args,
        "env": _env(component),
        "ports": [
            When(Value("metrics.enabled"), {"name": "metrics", "containerPort": METRICS_PORT}),
            {"name": "probes", "containerPort": PROBES_PORT},
            *((When(PROGRESS, {"name": "progress", "containerPort": PROGRESS_PORT}),) if component == OPERATOR else ()),
        ],
        "livenessProbe": _probe("/healthz", 20),
        "readinessProbe": _probe("/readyz", 2),
        "resources": _path(component, "resources"),
        "securityContext": Value("securityContext"),
        "volumeMounts": When(has_files, mounts),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(component, full_name(component)),
        "spec": {
            "replicas": _path(component, "replicaCount"),
            "selector": {"matchLabels": selector(component)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "labels": labels(component, role_labels, extra=(_path(component, "podLabels"),)),
                    "annotations": Extended(
                        (
                            {
                                "kubectl.kubernetes.io/default-container": component,
                                "prometheus.io/scrape": When(_SCRAPED, "true"),
                                "prometheus.io/path": When(_SCRAPED, "/metrics"),
                                "prometheus.io/port": When(_SCRAPED, str(METRICS_PORT)),
                                "prometheus.io/scheme": When(Both(_SCRAPED, SECURE_METRICS), "https"),
                            },
                        ),
                        (_path(component, "podAnnotations"),),
                    ),
                },
                "spec": {
                    "serviceAccountName": account_name(component),
                    "imagePullSecrets": PULL_SECRETS,
                    "priorityClassName": _optional(_path(component, "priorityClassName")),
                    "terminationGracePeriodSeconds": Note("More than --grace, which is 10.", 30),
                    "securityContext": Value("podSecurityContext"),
                    "nodeSelector": _optional(_path(component, "nodeSelector")),
                    "affinity": _optional(_path(component, "affinity")),
                    "tolerations": _optional(_path(component, "tolerations")),
                    "topologySpreadConstraints": Either(spread, spread, [over_nodes]),
                    "containers": [container],
                    "volumes": When(has_files, volumes),
                },
            },
        },
    }


PROGRESS_SERVICE: Node = When(
    PROGRESS,
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("progress", full_name("progress")),
        "spec": {
            "selector": selector(OPERATOR),
            "sessionAffinity": Note("One pod reports to one replica, which need not compare.", "ClientIP"),
            "ports": [{"name": "progress", "port": PROGRESS_PORT, "targetPort": "progress"}],
        },
    },
)


def _service(component: str) -> Node:
    return When(
        Value("metrics.enabled"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(component, full_name(component)),
            "spec": {
                "selector": selector(component),
                "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
            },
        },
    )


def _disruption_budget(component: str) -> Node:
    return When(
        Value("podDisruptionBudget.enabled"),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(component, full_name(component)),
            "spec": {
                "maxUnavailable": Value("podDisruptionBudget.maxUnavailable"),
                "selector": {"matchLabels": selector(component)},
            },
        },
    )


def _component(component: str, args: tuple[Node, ...], role_labels: Mapping[str, Node]) -> tuple[Node, ...]:
    return (
        _disruption_budget(component),
        _service(component),
        _deployment(component, args, role_labels),
    )


OPERATOR_OBJECTS = (*_component(OPERATOR, _OPERATOR_ARGS, ROLE_LABELS), PROGRESS_SERVICE)
SCHEDULER_OBJECTS: tuple[Node, ...] = tuple(
    When(Value("scheduler.enabled"), node) for node in _component(SCHEDULER, _SCHEDULER_ARGS, {})
)

_METRICS_PEERS = Value("networkPolicy.metricsFrom")
NETWORK_POLICY: Node = When(
    Value("networkPolicy.enabled"),
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata("network", full_name("network")),
        "spec": {
            "podSelector": ALL_COMPONENTS,
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "ports": [{"port": METRICS_PORT, "protocol": "TCP"}],
                    "from": When(_METRICS_PEERS, _METRICS_PEERS),
                },
                When(PROGRESS, {"ports": [{"port": PROGRESS_PORT, "protocol": "TCP"}]}),
            ],
        },
    },
)
