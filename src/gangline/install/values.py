"""The values of an installation: those of the Helm chart, by name and default.

The descriptions become the comments of values.yaml, the texts of values.schema.json and the table in the chart's README.
"""

from copy import deepcopy
from functools import partial
from typing import Annotated, Literal

import msgspec

from gangline.api.meta import JSON

_NAME = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"
_NAMESPACE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LEASE = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"
_DURATION = r"^([0-9]+(ms|s|m|h))*$"
_DIGEST = r"^(sha256:[0-9a-f]{64})?$"
PATTERN_TEXTS = {
    _NAME: "lower-case letters, digits and dashes, as in team-a",
    _NAMESPACE: "the name of a namespace: lower-case letters, digits and dashes, as in team-a",
    _LEASE: "lower-case letters, digits, dashes and dots, as in gangline.example.com",
    _DURATION: "a duration, as in 30s or 1m30s",
    _DIGEST: "sha256: and 64 digits from 0 to f",
}
"""What each pattern of the values asks for, in words."""

Name = Annotated[str, msgspec.Meta(pattern=_NAME, max_length=63)]
"""The name of an object; empty: the default."""
NamespaceName = Annotated[str, msgspec.Meta(pattern=_NAMESPACE, max_length=63)]
LeaseName = Annotated[str, msgspec.Meta(pattern=_LEASE, max_length=253)]
KindName = Literal["TFJob", "PyTorchJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob"]
Labels = dict[str, str]
Count = Annotated[int, msgspec.Meta(ge=0)]
Duration = Annotated[str, msgspec.Meta(pattern=_DURATION)]


class ValuesStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Some values that belong together."""


def _described(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


def _default(value: JSON) -> JSON:
    default: JSON = msgspec.field(default_factory=partial(deepcopy, value))
    return default


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What Helm knows about a release besides its values."""

    name: str = "gangline"
    namespace: str = "gangline"
    # What the label app.kubernetes.io/managed-by says: `Helm` in the chart.
    service: str = "gangline"


DEFAULT_RELEASE = Release()


class NamespaceValues(ValuesStruct, frozen=True, kw_only=True):
    """The namespace in which the components run."""

    create: Annotated[
        bool,
        _described(
            "Make the release's namespace one of the objects. Not with Helm's --create-namespace, which makes it before."
        ),
    ] = False
    pod_security: Annotated[
        Literal["restricted", "baseline", "privileged"],
        _described("Level of Pod Security that the labels of a namespace made here enforce."),
    ] = "restricted"


class ImageValues(ValuesStruct, frozen=True, kw_only=True):
    """The image of all components."""

    registry: Annotated[str, _described("Registry of the image; empty: none is named.")] = ""
    repository: Annotated[str, msgspec.Meta(min_length=1), _described("Repository of the image.")] = "gangline"
    tag: Annotated[str, _described("Tag of the image; empty: the version of this release.")] = ""
    digest: Annotated[
        str,
        msgspec.Meta(pattern=_DIGEST),
        _described("Digest of the image, as in sha256:...; it wins over the tag."),
    ] = ""
    pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"], _described("When a node pulls the image.")] = (
        "IfNotPresent"
    )
    pull_secrets: Annotated[tuple[str, ...], _described("Names of the Secrets with which the image is pulled.")] = ()


class ServiceAccountValues(ValuesStruct, frozen=True, kw_only=True):
    """The account under which a component runs."""

    create: Annotated[bool, _described("Create the account.")] = True
    name: Annotated[Name, _described("Name of the account; empty: the component's name.")] = ""
    annotations: Annotated[Labels, _described("Annotations of the account.")] = {}


class LeaderElectionValues(ValuesStruct, frozen=True, kw_only=True):
    """Which of several replicas acts."""

    enabled: Annotated[
        bool,
        _described("Elect one replica that acts. Needed for more than one replica, and while one replaces another."),
    ] = True
    lease_name: Annotated[
        LeaseName,
        _described(
            "Lease of the operator; empty: that of the Kubeflow training operator, so that only one of both acts."
        ),
    ] = ""


class RbacValues(ValuesStruct, frozen=True, kw_only=True):
    """The permissions of the components and of users."""

    create: Annotated[bool, _described("Create the roles of the components and bind them to their accounts.")] = True
    mpi_jobs: Annotated[
        bool,
        _described(
            "Let the operator make an account and a role for each MPIJob of kubeflow.org/v1, by which its launcher runs "
            "commands in its workers. Without it, and without mpiLauncherServiceAccount, such jobs wait."
        ),
    ] = False
    user_roles: Annotated[
        bool,
        _described(
            "Add jobs to the cluster's own roles admin, edit and view. Not done with watchNamespaces, which needs no "
            "cluster role."
        ),
    ] = True


class CrdValues(ValuesStruct, frozen=True, kw_only=True):
    """The custom resource definitions of jobs, PodGroup and Queue."""

    install: Annotated[bool, _described("Install the CRDs, and update them with each upgrade.")] = True
    by_operator: Annotated[
        bool,
        _described(
            "Let the operator install and update the CRDs when it starts, which needs rights in the whole cluster."
        ),
    ] = False
    keep: Annotated[
        bool, _described("Leave the CRDs, and with them all jobs, in the cluster when the release is uninstalled.")
    ] = True


class DisruptionBudgetValues(ValuesStruct, frozen=True, kw_only=True):
    """How many replicas of a component may be evicted at the same time."""

    enabled: Annotated[bool, _described("Create a PodDisruptionBudget for each component.")] = True
    max_unavailable: Annotated[
        int | str, _described("Replicas that may be evicted at the same time: a number or a percentage.")
    ] = 1


class MonitorValues(ValuesStruct, frozen=True, kw_only=True):
    """A ServiceMonitor or PodMonitor of the Prometheus operator."""

    enabled: Annotated[bool, _described("Create it. Needs the CRDs of the Prometheus operator.")] = False
    interval: Annotated[Duration, _described("How often to scrape; empty: Prometheus' default.")] = ""
    labels: Annotated[Labels, _described("More labels, by which your Prometheus selects it.")] = {}


class PrometheusRuleValues(ValuesStruct, frozen=True, kw_only=True):
    """Alert rules for the Prometheus operator."""

    enabled: Annotated[
        bool, _described("Create a PrometheusRule with our alerts. Needs the CRDs of the Prometheus operator.")
    ] = False
    labels: Annotated[Labels, _described("More labels, by which your Prometheus selects it.")] = {}


class SecureMetricsValues(ValuesStruct, frozen=True, kw_only=True):
    """Metrics by TLS, for those whom the API server allows to read them."""

    enabled: Annotated[
        bool,
        _described(
            "Serve the metrics by TLS to users with the ClusterRole NAME-metrics-reader. The components then ask the API "
            "server about tokens, which needs a cluster role."
        ),
    ] = False
    cert_secret: Annotated[
        Name,
        _described(
            "Secret with tls.crt and tls.key, as cert-manager makes it; empty: the components make certificates that "
            "scrapers cannot verify."
        ),
    ] = ""


class MetricsValues(ValuesStruct, frozen=True, kw_only=True):
    """The metrics of the components."""

    enabled: Annotated[bool, _described("Serve /metrics on port 8080.")] = True
    annotations: Annotated[bool, _described("Annotate the pods with prometheus.io/scrape, path and port.")] = True
    secure: Annotated[
        SecureMetricsValues, _described("Metrics by TLS, for those whom the API server allows to read them.")
    ] = SecureMetricsValues()
    service_monitor: Annotated[
        MonitorValues, _described("A ServiceMonitor for the operator's and the scheduler's Service.")
    ] = MonitorValues()
    pod_monitor: Annotated[MonitorValues, _described("A PodMonitor for their pods, instead of a ServiceMonitor.")] = (
        MonitorValues()
    )
    prometheus_rule: Annotated[PrometheusRuleValues, _described("Alert rules.")] = PrometheusRuleValues()


class ProgressValues(ValuesStruct, frozen=True, kw_only=True):
    """How the operator receives the progress of trainings."""

    enabled: Annotated[
        bool,
        _described(
            "Receive progress on port 8082, as Kubeflow Trainer does, from pods of jobs with the annotation "
            "training.gangline.dev/report-progress=true. The operator then asks the API server about tokens, which needs "
            "a cluster role."
        ),
    ] = False
    every_job: Annotated[
        bool, _described("Let the pods of all jobs report, except where that annotation is false.")
    ] = False
    cert_secret: Annotated[
        Name,
        _described(
            "Secret with tls.crt, tls.key and ca.crt for NAME-progress.NAMESPACE.svc, as cert-manager makes it; empty: "
            "plain HTTP."
        ),
    ] = ""
    log_streams: Annotated[
        Count,
        _described("Read the progress lines in the logs of running jobs, of so many at most; 0: read no logs for it."),
    ] = 0


class HangWatchValues(ValuesStruct, frozen=True, kw_only=True):
    """How the operator finds jobs that hang."""

    enabled: Annotated[
        bool,
        _described(
            "Look for running jobs that make no progress, which get the condition Stalled. The operator may then read how "
            "much CPU pods use (metrics.k8s.io)."
        ),
    ] = True
    stacks: Annotated[
        bool,
        _described(
            "Read where the processes of such a job stand, to be sure within two minutes and to name the rank that holds "
            "the others up. The operator may then run commands in the pods that it serves (pods/exec)."
        ),
    ] = False


class RecoveryValues(ValuesStruct, frozen=True, kw_only=True):
    """What jobs with runPolicy.recovery may look at."""

    diagnosis: Annotated[
        bool,
        _described(
            "Let runPolicy.recovery decide by the cause of a failure, as events and nodes show it. The operator may then "
            "list the events in the namespaces that it serves and, if it serves all, read nodes. Without it pods and "
            "their logs must do."
        ),
    ] = True


class GrafanaDashboardValues(ValuesStruct, frozen=True, kw_only=True):
    """The Grafana board as a ConfigMap, which Grafana's sidecar loads."""

    enabled: Annotated[bool, _described("Create the ConfigMap.")] = False
    labels: Annotated[Labels, _described("Labels by which the sidecar selects it.")] = _default(
        {"grafana_dashboard": "1"}
    )
    annotations: Annotated[Labels, _described("Annotations, for example the folder of the board.")] = {}


class NetworkPolicyValues(ValuesStruct, frozen=True, kw_only=True):
    """Who may connect to the components."""

    enabled: Annotated[
        bool,
        _described(
            "Allow connections to the ports of metrics and progress only. What the components connect to is not limited."
        ),
    ] = False
    metrics_from: Annotated[
        tuple[JSON, ...], _described("Peers that may read the metrics, as in a NetworkPolicy's from; empty: all.")
    ] = ()


class NotificationValues(ValuesStruct, frozen=True, kw_only=True):
    """Who hears of the states of jobs."""

    config: Annotated[
        str,
        _described(
            "Routes of notifications as YAML, as in docs/notifications.md; empty: nobody is notified. It is part of the "
            "Deployment, so write no secret into it."
        ),
    ] = ""
    secret: Annotated[
        Name,
        _described("Secret with the files that the routes name, which is mounted at /etc/gangline/notifications."),
    ] = ""


OPERATOR_RESOURCES: JSON = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
SCHEDULER_RESOURCES: JSON = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
DASHBOARD_RESOURCES: JSON = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
POD_SECURITY_CONTEXT: JSON = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SECURITY_CONTEXT: JSON = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class PodValues(ValuesStruct, frozen=True, kw_only=True):
    """What can be set for the pods of a component."""

    replica_count: Annotated[
        Count, _described("Number of pods. One acts, the others are ready to; 0 stops the component.")
    ] = 2
    resources: Annotated[JSON, _described("Requests and limits of the container.")] = _default(OPERATOR_RESOURCES)
    node_selector: Annotated[Labels, _described("Labels of the nodes on which the pods may run.")] = {}
    tolerations: Annotated[tuple[JSON, ...], _described("Tolerations of the pods.")] = ()
    affinity: Annotated[JSON, _described("Affinity of the pods.")] = {}
    topology_spread_constraints: Annotated[
        tuple[JSON, ...], _described("How the pods are spread; empty: over nodes where possible.")
    ] = ()
    pod_annotations: Annotated[Labels, _described("More annotations of the pods.")] = {}
    pod_labels: Annotated[Labels, _described("More labels of the pods.")] = {}
    priority_class_name: Annotated[str, _described("Priority class of the pods.")] = ""
    service_account: Annotated[ServiceAccountValues, _described("The account of the pods.")] = ServiceAccountValues()
    extra_args: Annotated[tuple[str, ...], _described("More arguments of the command, as in --qps=50.")] = ()
    extra_env: Annotated[tuple[JSON, ...], _described("More environment variables of the container.")] = ()


class SchedulerValues(PodValues, frozen=True, kw_only=True):
    """The gang scheduler, beside kube-scheduler."""

    enabled: Annotated[
        bool, _described("Install the gang scheduler. Jobs then use it unless gangSchedulerName is set.")
    ] = False
    resources: Annotated[JSON, _described("Requests and limits of the container.")] = _default(SCHEDULER_RESOURCES)
    priority_class_name: Annotated[
        str, _described("Priority class of the pods: without a scheduler no gang starts.")
    ] = "system-cluster-critical"


class DashboardHistoryValues(ValuesStruct, frozen=True, kw_only=True):
    """What the dashboard keeps of jobs that are gone."""

    enabled: Annotated[
        bool,
        _described(
            "Record the cluster on a volume. The dashboard then has an account that may read jobs, pods, events, nodes and "
            "logs; viewers still see only what they may read."
        ),
    ] = False
    size: Annotated[str, _described("Size of the volume.")] = "10Gi"
    storage_class_name: Annotated[str, _described("Storage class of the volume; empty: the cluster's default.")] = ""


class DashboardValues(ValuesStruct, frozen=True, kw_only=True):
    """The dashboard: a page that shows viewers, with their own tokens, what they may see."""

    enabled: Annotated[bool, _described("Install the dashboard: a Deployment and a Service, without any role.")] = False
    port: Annotated[Count, _described("Port of the Service.")] = 80
    hosts: Annotated[
        tuple[str, ...],
        _described("Names by which browsers reach it, as in an Ingress; requests to other names are refused."),
    ] = ()
    history: Annotated[DashboardHistoryValues, _described("What it keeps of jobs that are gone.")] = (
        DashboardHistoryValues()
    )
    resources: Annotated[JSON, _described("Requests and limits of the container.")] = _default(DASHBOARD_RESOURCES)
    node_selector: Annotated[Labels, _described("Labels of the nodes on which the pod may run.")] = {}
    tolerations: Annotated[tuple[JSON, ...], _described("Tolerations of the pod.")] = ()
    affinity: Annotated[JSON, _described("Affinity of the pod.")] = {}
    pod_annotations: Annotated[Labels, _described("More annotations of the pod.")] = {}
    pod_labels: Annotated[Labels, _described("More labels of the pod.")] = {}
    extra_args: Annotated[tuple[str, ...], _described("More arguments of the command.")] = ()


class InstallValues(PodValues, frozen=True, kw_only=True):
    """All values. Those that are not in a block are the operator's, or everybody's."""

    name_override: Annotated[Name, _described("Takes the chart's place in names.")] = ""
    fullname_override: Annotated[
        Name, _described("Takes the place of release and chart in names: the operator is called NAME-operator.")
    ] = ""
    extra_labels: Annotated[Labels, _described("More labels of all objects and pods.")] = {}
    extra_objects: Annotated[tuple[JSON, ...], _described("More objects to install, as they are.")] = ()

    watch_namespaces: Annotated[
        tuple[NamespaceName, ...],
        msgspec.Meta(extra_json_schema={"uniqueItems": True}),
        _described(
            "Namespaces whose jobs are served, with a Role in each and no cluster role; they must exist. The scheduler, if it "
            "is enabled, still reads nodes and pods of the whole cluster. Empty: all."
        ),
    ] = ()
    gang_scheduler_name: Annotated[
        str,
        _described(
            "Scheduler that starts jobs as gangs: gangline, volcano, kubernetes, or the name of a scheduler-plugins "
            "scheduler. Empty: gangline if scheduler.enabled, else none."
        ),
    ] = ""
    kinds: Annotated[
        tuple[KindName, ...], _described("Kinds of jobs to serve, as in TFJob; empty: all of kubeflow.org/v1.")
    ] = ()
    mpi_v2beta1: Annotated[
        bool,
        _described(
            "Serve MPIJobs of kubeflow.org/v2beta1 in place of mpi-operator, too. The operator may then create Jobs, and "
            "Secrets, of which it reads none."
        ),
    ] = msgspec.field(name="mpiV2beta1", default=False)
    mpi_launcher_service_account: Annotated[
        Name,
        _described(
            "Account of all launchers of MPIJobs of kubeflow.org/v1, which you have made in every namespace with jobs, "
            "with the rights to get and create pods/exec; the operator then needs no rbac.mpiJobs. Empty: one for each job."
        ),
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warn", "error"], _described("Lowest level that the components log.")
    ] = "info"

    namespace: Annotated[NamespaceValues, _described("The namespace in which the components run.")] = NamespaceValues()
    image: Annotated[ImageValues, _described("The image of all components.")] = ImageValues()
    leader_election: Annotated[LeaderElectionValues, _described("Which of several replicas acts.")] = (
        LeaderElectionValues()
    )
    pod_security_context: Annotated[JSON, _described("Security context of all pods: restricted Pod Security.")] = (
        _default(POD_SECURITY_CONTEXT)
    )
    security_context: Annotated[JSON, _described("Security context of all containers: restricted Pod Security.")] = (
        _default(SECURITY_CONTEXT)
    )
    rbac: Annotated[RbacValues, _described("The permissions of the components and of users.")] = RbacValues()
    crds: Annotated[CrdValues, _described("The custom resource definitions of jobs, PodGroup and Queue.")] = CrdValues()
    pod_disruption_budget: Annotated[
        DisruptionBudgetValues, _described("How many replicas of a component may be evicted at the same time.")
    ] = DisruptionBudgetValues()
    network_policy: Annotated[NetworkPolicyValues, _described("Who may connect to the components.")] = (
        NetworkPolicyValues()
    )
    metrics: Annotated[MetricsValues, _described("The metrics of the components.")] = MetricsValues()
    progress: Annotated[ProgressValues, _described("How the operator receives the progress of trainings.")] = (
        ProgressValues()
    )
    hang_watch: Annotated[HangWatchValues, _described("How the operator finds jobs that hang.")] = HangWatchValues()
    recovery: Annotated[RecoveryValues, _described("What jobs with runPolicy.recovery may look at.")] = RecoveryValues()
    notifications: Annotated[NotificationValues, _described("Who hears of the states of jobs.")] = NotificationValues()
    grafana_dashboard: Annotated[
        GrafanaDashboardValues, _described("The Grafana board as a ConfigMap, which Grafana's sidecar loads.")
    ] = GrafanaDashboardValues()
    scheduler: Annotated[SchedulerValues, _described("The gang scheduler, beside kube-scheduler.")] = SchedulerValues()
    dashboard: Annotated[
        DashboardValues,
        _described("The dashboard: a page that shows viewers, with their own tokens, what they may see."),
    ] = DashboardValues()
