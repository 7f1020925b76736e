"""The plugins that a server has by default, in kube-apiserver's order."""

from collections.abc import Collection

from gangline.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateRequester,
    CertificateSigning,
    CertificateSubjectRestriction,
)
from gangline.apiserver.admission.lifecycle import CustomResourceLifecycle, NamespaceLifecycle
from gangline.apiserver.admission.limit_ranger import LimitRanger
from gangline.apiserver.admission.node_taints import TaintNodesByCondition
from gangline.apiserver.admission.pod_security import PodSecurity
from gangline.apiserver.admission.policies import ValidatingAdmissionPolicy
from gangline.apiserver.admission.priority import PodPriority
from gangline.apiserver.admission.resource_quota import ResourceQuotaAdmission
from gangline.apiserver.admission.role_escalation import RoleEscalation
from gangline.apiserver.admission.service_account import ServiceAccountAdmission
from gangline.apiserver.admission.storage_classes import DefaultStorageClass, PersistentVolumeClaimResize
from gangline.apiserver.admission.webhooks.calls import WebhookCaller
from gangline.apiserver.admission.webhooks.configurations import AdmissionConfigurations
from gangline.apiserver.admission.webhooks.plugins import (
    AdmissionSources,
    MutatingAdmissionWebhook,
    ValidatingAdmissionWebhook,
)
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
        "CertificateApproval",
        "CertificateSigning",
        "CertificateSubjectRestriction",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
        "ResourceQuota",
    ]
)
"""The plugins that can be left out. The others are no plugins in kube-apiserver."""
ABSENT_PLUGINS = frozenset(
    [
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "ClusterTrustBundleAttest",
        "DefaultIngressClass",
        "DefaultTolerationSeconds",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "MutatingAdmissionPolicy",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "NodeRestriction",
        "OwnerReferencesPermissionEnforcement",
        "PodNodeSelector",
        "PodTolerationRestriction",
        "PodTopologyLabels",
        "RuntimeClass",
        "StorageObjectInUseProtection",
    ]
)
"""Plugins of kube-apiserver that are not here. Who leaves one out gets what was asked for."""


def default_admission(
    store: Store,
    catalog: Catalog,
    clock: Clock,
    authorizer: Authorizer,
    roles: RoleIndex,
    webhooks: WebhookCaller,
    disabled: Collection[str] = (),
) -> AdmissionChain:
    """The default plugins without those that are disabled by name."""
    sources = AdmissionSources(store, catalog, authorizer, AdmissionConfigurations(store))
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
        CertificateRequester(clock),
        CertificateApproval(authorizer),
        CertificateSigning(authorizer),
        CertificateSubjectRestriction(),
        MutatingAdmissionWebhook(sources, webhooks),
        ValidatingAdmissionPolicy(sources),
        ValidatingAdmissionWebhook(sources, webhooks),
        ResourceQuotaAdmission(store, catalog, clock),
    )
    return AdmissionChain(plugin for plugin in plugins if plugin.name not in disabled)
