"""The strategies of the built-in kinds."""

from functools import cache

from gangline.apiserver.kinds import autoscaling, coordination, policy, rbac, scheduling
from gangline.apiserver.kinds.apps import workloads
from gangline.apiserver.kinds.batch import cronjob, job
from gangline.apiserver.kinds.core import configs, endpoints, event, namespace, node, quota, service, storage
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.kinds.pod import strategy
from gangline.apiserver.registry.resources import ApiResource

_STRATEGIES: dict[tuple[str, str], type[Strategy]] = {
    ("", "Pod"): strategy.PodStrategy,
    ("", "Service"): service.ServiceStrategy,
    ("", "ConfigMap"): configs.ConfigMapStrategy,
    ("", "Secret"): configs.SecretStrategy,
    ("", "ServiceAccount"): configs.ServiceAccountStrategy,
    ("", "Node"): node.NodeStrategy,
    ("", "Namespace"): namespace.NamespaceStrategy,
    ("", "Event"): event.EventStrategy,
    ("", "PersistentVolumeClaim"): storage.PersistentVolumeClaimStrategy,
    ("", "PersistentVolume"): storage.PersistentVolumeStrategy,
    ("", "ResourceQuota"): quota.ResourceQuotaStrategy,
    ("", "LimitRange"): quota.LimitRangeStrategy,
    ("", "Endpoints"): endpoints.EndpointsStrategy,
    ("", "PodTemplate"): workloads.PodTemplateStrategy,
    ("", "ReplicationController"): workloads.ReplicationControllerStrategy,
    ("apps", "Deployment"): workloads.DeploymentStrategy,
    ("apps", "ReplicaSet"): workloads.ReplicaSetStrategy,
    ("apps", "StatefulSet"): workloads.StatefulSetStrategy,
    ("apps", "DaemonSet"): workloads.DaemonSetStrategy,
    ("apps", "ControllerRevision"): workloads.ControllerRevisionStrategy,
    ("batch", "Job"): job.JobStrategy,
    ("batch", "CronJob"): cronjob.CronJobStrategy,
    ("coordination.k8s.io", "Lease"): coordination.LeaseStrategy,
    ("events.k8s.io", "Event"): event.EventsV1Strategy,
    ("policy", "PodDisruptionBudget"): policy.DisruptionBudgetStrategy,
    ("scheduling.k8s.io", "PriorityClass"): scheduling.PriorityClassStrategy,
    ("storage.k8s.io", "StorageClass"): storage.StorageClassStrategy,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaling.AutoscalerStrategy,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.EndpointSliceStrategy,
    ("networking.k8s.io", "NetworkPolicy"): endpoints.NetworkPolicyStrategy,
    (rbac.RBAC_GROUP, "Role"): rbac.RoleStrategy,
    (rbac.RBAC_GROUP, "RoleBinding"): rbac.RoleBindingStrategy,
    (rbac.RBAC_GROUP, "ClusterRole"): rbac.ClusterRoleStrategy,
    (rbac.RBAC_GROUP, "ClusterRoleBinding"): rbac.ClusterRoleBindingStrategy,
}


@cache
def strategy_for(group: str, kind: str, version: str = "") -> Strategy:
    """The strategy of a built-in kind, or the default strategy. Only autoscalers differ by version."""
    if (group, kind, version) == ("autoscaling", "HorizontalPodAutoscaler", "v1"):
        return autoscaling.AutoscalerV1Strategy()
    return _STRATEGIES.get((group, kind), Strategy)()


def resource_strategy(resource: ApiResource) -> Strategy:
    """The strategy of a stored resource: the kind's own, or the one that its published schema and its rules make."""
    if not resource.is_stored or not resource.group or (resource.group, resource.kind) in _STRATEGIES:
        return strategy_for(resource.group, resource.kind, resource.version)
    # Loaded with the first such kind: few programs use any of them.
    from gangline.apiserver.kinds.declared.strategies import declared_strategy

    return declared_strategy(
        resource.group,
        resource.version,
        resource.kind,
        namespaced=resource.namespaced,
        status=resource.subresource("status") is not None,
    )
