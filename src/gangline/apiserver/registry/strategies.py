"""Which kind has which rules."""

from functools import cache

from gangline.apiserver.kinds import autoscaling, policy, rbac
from gangline.apiserver.kinds.apps import revisions, workloads
from gangline.apiserver.kinds.batch import cronjob, job
from gangline.apiserver.kinds.core import configs, endpoints, event, namespace, node, service, storage
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.apiserver.kinds.pod import strategy

_RULES: dict[tuple[str, str], type[Kind]] = {
    ("", "Pod"): strategy.PodKind,
    ("", "Service"): service.ServiceKind,
    ("", "ConfigMap"): configs.ConfigMapKind,
    ("", "Secret"): configs.SecretKind,
    ("", "ServiceAccount"): configs.ServiceAccountKind,
    ("", "Node"): node.NodeKind,
    ("", "Namespace"): namespace.NamespaceKind,
    ("", "Event"): event.EventKind,
    ("", "PersistentVolumeClaim"): storage.ClaimKind,
    ("", "PersistentVolume"): storage.VolumeKind,
    ("", "ResourceQuota"): policy.ResourceQuotaKind,
    ("", "LimitRange"): policy.LimitRangeKind,
    ("", "Endpoints"): endpoints.EndpointsKind,
    ("", "PodTemplate"): workloads.PodTemplateKind,
    ("apps", "Deployment"): workloads.DeploymentKind,
    ("apps", "ReplicaSet"): workloads.ReplicaSetKind,
    ("apps", "StatefulSet"): workloads.StatefulSetKind,
    ("apps", "DaemonSet"): workloads.DaemonSetKind,
    ("apps", "ControllerRevision"): revisions.ControllerRevisionKind,
    ("batch", "Job"): job.JobKind,
    ("batch", "CronJob"): cronjob.CronJobKind,
    ("coordination.k8s.io", "Lease"): policy.LeaseKind,
    ("events.k8s.io", "Event"): event.EventsV1Kind,
    ("policy", "PodDisruptionBudget"): policy.DisruptionBudgetKind,
    ("scheduling.k8s.io", "PriorityClass"): policy.PriorityClassKind,
    ("storage.k8s.io", "StorageClass"): storage.StorageClassKind,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaling.AutoscalerKind,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.EndpointSliceKind,
    ("networking.k8s.io", "NetworkPolicy"): endpoints.NetworkPolicyKind,
    (rbac.GROUP, "Role"): rbac.RoleKind,
    (rbac.GROUP, "RoleBinding"): rbac.RoleBindingKind,
    (rbac.GROUP, "ClusterRole"): rbac.ClusterRoleKind,
    (rbac.GROUP, "ClusterRoleBinding"): rbac.ClusterRoleBindingKind,
}


@cache
def kind_of(group: str, kind: str, version: str = "") -> Kind:
    """The rules of a built-in kind; a kind without rules for any other. `version` matters for autoscalers only."""
    if (group, kind, version) == ("autoscaling", "HorizontalPodAutoscaler", "v1"):
        return autoscaling.AutoscalerV1Kind()
    return _RULES.get((group, kind), Kind)()
