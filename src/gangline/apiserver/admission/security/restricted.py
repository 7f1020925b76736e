"""The checks that the restricted level adds. Each returns what in a pod violates it, in kube-apiserver's words."""

from gangline.api.meta import JSON
from gangline.apiserver.admission.security.baseline import (
    PROFILE_TYPES,
    PodTemplate,
    SecurityViolation,
    added_capabilities,
    container_list,
    plural,
    quoted,
    seccomp_profile,
    security_context,
    setters,
)

_ALLOWED_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_RESTRICTED_VOLUMES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)


def privilege_escalation(template: PodTemplate) -> SecurityViolation | None:
    containers = [
        item["name"]
        for item in template.containers
        if security_context(item).get("allowPrivilegeEscalation") is not False
    ]
    if not containers:
        return None
    detail = f"{container_list(containers)} must set securityContext.allowPrivilegeEscalation=false"
    return SecurityViolation("allowPrivilegeEscalation != false", detail)


def privilege_escalation_1_25(template: PodTemplate) -> SecurityViolation | None:
    return None if template.is_windows else privilege_escalation(template)


def dropped_capabilities(template: PodTemplate) -> SecurityViolation | None:
    keeping = [item["name"] for item in template.containers if "ALL" not in _dropped_capabilities(item)]
    added = {
        item["name"]: [name for name in added_capabilities(item) if name != "NET_BIND_SERVICE"]
        for item in template.containers
    }
    adding = [name for name, capabilities in added.items() if capabilities]
    details: list[str] = []
    if keeping:
        details.append(f'{container_list(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        bad = quoted(sorted({name for names in added.values() for name in names}))
        details.append(f"{container_list(adding)} must not include {bad} in securityContext.capabilities.add")
    return SecurityViolation("unrestricted capabilities", "; ".join(details)) if details else None


def dropped_capabilities_1_25(template: PodTemplate) -> SecurityViolation | None:
    return None if template.is_windows else dropped_capabilities(template)


def _dropped_capabilities(container: JSON) -> list[str]:
    return (security_context(container).get("capabilities") or {}).get("drop") or []


def restricted_volumes(template: PodTemplate) -> SecurityViolation | None:
    bad = {
        volume["name"]: next((kind for kind in _RESTRICTED_VOLUMES if volume.get(kind) is not None), "unknown")
        for volume in template.spec.get("volumes") or ()
        if not any(volume.get(kind) is not None for kind in _ALLOWED_VOLUMES)
    }
    if not bad:
        return None
    kinds = sorted(set(bad.values()))
    verb = "uses" if len(bad) == 1 else "use"
    detail = f"{plural('volume', bad)} {quoted(bad)} {verb} {plural('restricted volume type', kinds)} {quoted(kinds)}"
    return SecurityViolation("restricted volume types", detail)


def run_as_non_root(template: PodTemplate) -> SecurityViolation | None:
    reason = "runAsNonRoot != true"
    bad = setters(template, lambda context: context.get("runAsNonRoot") is False)
    if bad:
        return SecurityViolation(reason, f"{' and '.join(bad)} must not set securityContext.runAsNonRoot=false")
    silent = [item["name"] for item in template.containers if security_context(item).get("runAsNonRoot") is None]
    if not silent or template.security_context.get("runAsNonRoot"):
        return None
    return SecurityViolation(reason, f"pod or {container_list(silent)} must set securityContext.runAsNonRoot=true")


def run_as_user(template: PodTemplate) -> SecurityViolation | None:
    bad = setters(template, lambda context: context.get("runAsUser") == 0)
    return SecurityViolation("runAsUser=0", f"{' and '.join(bad)} must not set runAsUser=0") if bad else None


def required_seccomp_profile(template: PodTemplate) -> SecurityViolation | None:
    violation = seccomp_profile(template)
    if violation is not None:
        return violation
    if (template.security_context.get("seccompProfile") or {}).get("type") in PROFILE_TYPES:
        return None
    silent = [item["name"] for item in template.containers if security_context(item).get("seccompProfile") is None]
    if not silent:
        return None
    detail = (
        f"pod or {container_list(silent)} must set securityContext.seccompProfile.type "
        'to "RuntimeDefault" or "Localhost"'
    )
    return SecurityViolation("seccompProfile", detail)


def required_seccomp_profile_1_25(template: PodTemplate) -> SecurityViolation | None:
    return None if template.is_windows else required_seccomp_profile(template)
