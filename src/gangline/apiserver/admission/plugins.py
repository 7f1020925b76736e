"""The plugins that a server has by default, in kube-apiserver's order."""

from collections.abc import Collection

from gangline.apiserver.admission.lifecycle import CustomResourceLifecycle, NamespaceLifecycle
from gangline.apiserver.admission.limit_ranger import LimitRanger
from gangline.apiserver.admission.node_taints import TaintNodesByCondition
from gangline.apiserver.admission.pod_security import PodSecurity
from gangline.apiserver.admission.priority import PodPriority
from gangline.apiserver.admission.resource_quota import ResourceQuotaAdmission
from gangline.apiserver.admission.role_escalation import RoleEscalation
from gangline.apiserver.admission.service_account import ServiceAccountAdmission
from gangline.apiserver.admission.storage_classes import DefaultStorageClass, PersistentVolumeClaimResize
from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.auth.role_index import RoleIndex
from gangline.apiserver.registry.admission import AdmissionChain, AdmissionPlugin
from gangline.apiserver.registry.catalog import Catalog
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock

PLUGIN_NAMES = frozenset(
    [
        "NamespaceLifecycle",
        "LimitRanger",
        "ServiceAccount",
        "TaintNodesByCondition",
        "PodSecurity",
        "Priority",
        "DefaultStorageClass",
        "PersistentVolumeClaimResize",
        "ResourceQuota",
    ]
)
"""The plugins that can be left out. The others are no plugins in kube-apiserver."""
ABSENT_PLUGINS = frozenset(
    [
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
        "ClusterTrustBundleAttest",
        "DefaultIngressClass",
        "DefaultTolerationSeconds",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "NodeRestriction",
        "OwnerReferencesPermissionEnforcement",
        "PodNodeSelector",
        "PodTolerationRestriction",
        "PodTopologyLabels",
        "RuntimeClass",
        "StorageObjectInUseProtection",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    ]
)
"""Plugins of kube-apiserver that are not here. Who leaves one out gets what was asked for."""


def default_admission(
    store: Store,
    catalog: Catalog,
    clock: Clock,
    authorizer: Authorizer,
    roles: RoleIndex,
    disabled: Collection[str] = (),
) -> AdmissionChain:
    """The default plugins without those that are disabled by name."""
    plugins: tuple[AdmissionPlugin, ...] = (
        NamespaceLifecycle(store, catalog),
        CustomResourceLifecycle(store),
        LimitRanger(store),
        ServiceAccountAdmission(store),
        TaintNodesByCondition(),
        PodSecurity(store),
        PodPriority(store),
        DefaultStorageClass(store),
        PersistentVolumeClaimResize(store),
        RoleEscalation(authorizer, roles),
        ResourceQuotaAdmission(store, catalog, clock),
    )
    return AdmissionChain(plugin for plugin in plugins if plugin.name not in disabled)
