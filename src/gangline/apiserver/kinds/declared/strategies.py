"""The strategies of declared kinds: most have the common one, some have rules that are no data."""

from importlib import import_module

from gangline.apiserver.kinds.declared.rules import NO_RULES
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.apiserver.kinds.declared.table import RULES
from gangline.schema.typed.openapi import definition_name

_ADMISSION = "admissionregistration.k8s.io"

# Modules are loaded with the first use of a kind.
_STRATEGIES = {
    (_ADMISSION, "MutatingWebhookConfiguration"): "webhooks:WebhookConfigurationStrategy",
    (_ADMISSION, "ValidatingWebhookConfiguration"): "webhooks:WebhookConfigurationStrategy",
    (_ADMISSION, "ValidatingAdmissionPolicy"): "policies:ValidatingPolicyStrategy",
    ("apiregistration.k8s.io", "APIService"): "api_services:ApiServiceStrategy",
    ("certificates.k8s.io", "CertificateSigningRequest"): "certificates:CertificateRequestStrategy",
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): "flows:PriorityLevelStrategy",
    ("networking.k8s.io", "Ingress"): "networking:IngressStrategy",
    ("networking.k8s.io", "IngressClass"): "networking:IngressClassStrategy",
    ("networking.k8s.io", "ServiceCIDR"): "networking:ServiceCidrStrategy",
    ("resource.k8s.io", "ResourceClaim"): "devices:ClaimStrategy",
    ("resource.k8s.io", "ResourceClaimTemplate"): "devices:ClaimTemplateStrategy",
    ("storage.k8s.io", "CSIDriver"): "storage:CsiDriverStrategy",
}


def declared_strategy(group: str, version: str, kind: str, *, namespaced: bool, status: bool) -> DeclaredStrategy:
    """The strategy of a kind, from its published schema and its rules."""
    strategy: type[DeclaredStrategy] = DeclaredStrategy
    if (own := _STRATEGIES.get((group, kind))) is not None:
        module, _, name = own.partition(":")
        strategy = getattr(import_module(f"gangline.apiserver.kinds.declared.{module}"), name)
    rules = RULES.get((group, kind), NO_RULES)
    return strategy(definition_name(f"{group}/{version}", kind), rules, namespaced=namespaced, status=status)
