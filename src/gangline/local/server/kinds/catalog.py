"""Which kind has which rules."""

from functools import cache

from gangline.local.server.kinds import (
    access,
    autoscaling,
    batch,
    configs,
    cronjob,
    endpoints,
    event,
    namespace,
    node,
    pod,
    policies,
    revisions,
    service,
    storage,
    workloads,
)
from gangline.local.server.kinds.kind import Kind

_RULES: dict[tuple[str, str], type[Kind]] = {
    ("", "Pod"): pod.PodKind,
    ("", "Service"): service.ServiceKind,
    ("", "ConfigMap"): configs.ConfigMapKind,
    ("", "Secret"): configs.SecretKind,
    ("", "ServiceAccount"): configs.ServiceAccountKind,
    ("", "Node"): node.NodeKind,
    ("", "Namespace"): namespace.NamespaceKind,
    ("", "Event"): event.EventKind,
    ("", "PersistentVolumeClaim"): storage.ClaimKind,
    ("", "PersistentVolume"): storage.VolumeKind,
    ("", "ResourceQuota"): policies.ResourceQuotaKind,
    ("", "LimitRange"): policies.LimitRangeKind,
    ("", "Endpoints"): endpoints.EndpointsKind,
    ("", "PodTemplate"): workloads.PodTemplateKind,
    ("apps", "Deployment"): workloads.DeploymentKind,
    ("apps", "ReplicaSet"): workloads.ReplicaSetKind,
    ("apps", "StatefulSet"): workloads.StatefulSetKind,
    ("apps", "DaemonSet"): workloads.DaemonSetKind,
    ("apps", "ControllerRevision"): revisions.ControllerRevisionKind,
    ("batch", "Job"): batch.JobKind,
    ("batch", "CronJob"): cronjob.CronJobKind,
    ("coordination.k8s.io", "Lease"): policies.LeaseKind,
    ("events.k8s.io", "Event"): event.EventsV1Kind,
    ("policy", "PodDisruptionBudget"): policies.DisruptionBudgetKind,
    ("scheduling.k8s.io", "PriorityClass"): policies.PriorityClassKind,
    ("storage.k8s.io", "StorageClass"): storage.StorageClassKind,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaling.AutoscalerKind,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.EndpointSliceKind,
    ("networking.k8s.io", "NetworkPolicy"): endpoints.NetworkPolicyKind,
    (access.GROUP, "Role"): access.RoleKind,
    (access.GROUP, "RoleBinding"): access.RoleBindingKind,
    (access.GROUP, "ClusterRole"): access.ClusterRoleKind,
    (access.GROUP, "ClusterRoleBinding"): access.ClusterRoleBindingKind,
}


@cache
def kind_of(group: str, kind: str, version: str = "") -> Kind:
    """The rules of a built-in kind; a kind without rules for any other. `version` matters for autoscalers only."""
    if (group, kind, version) == ("autoscaling", "HorizontalPodAutoscaler", "v1"):
        return autoscaling.AutoscalerV1Kind()
    return _RULES.get((group, kind), Kind)()
