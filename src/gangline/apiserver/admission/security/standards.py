"""Which checks a level has in a version of Kubernetes, and what they say of a pod."""

from functools import cache

import msgspec

from gangline.apiserver.admission.security import baseline, restricted
from gangline.apiserver.admission.security.baseline import PodCheck, PodTemplate, SecurityViolation
from gangline.apiserver.admission.security.policy import LeveledVersion, SecurityLevel

LATEST_MINOR = 34


class SecurityCheck(msgspec.Struct, frozen=True):
    """A check of the pod security standards."""

    level: SecurityLevel
    by_minor: tuple[tuple[int, PodCheck], ...]
    """The check since minor versions of Kubernetes, the oldest first."""
    replaces: str = ""
    """The check of the baseline level that the restricted level does without."""

    def at(self, minor: int) -> PodCheck | None:
        """The check as that version has it."""
        return next((check for since, check in reversed(self.by_minor) if since <= minor), None)


_BASELINE, _RESTRICTED = SecurityLevel.BASELINE, SecurityLevel.RESTRICTED

CHECKS: dict[str, SecurityCheck] = {
    # Violations are listed in this order: baseline, then restricted, each by name.
    "appArmorProfile": SecurityCheck(_BASELINE, ((0, baseline.app_armor_profile),)),
    "capabilities_baseline": SecurityCheck(_BASELINE, ((0, baseline.default_capabilities),)),
    "hostNamespaces": SecurityCheck(_BASELINE, ((0, baseline.host_namespaces),)),
    "hostPathVolumes": SecurityCheck(_BASELINE, ((0, baseline.host_path_volumes),)),
    "hostPorts": SecurityCheck(_BASELINE, ((0, baseline.host_ports),)),
    "hostProbesAndHostLifecycle": SecurityCheck(_BASELINE, ((34, baseline.probe_hosts),)),
    "privileged": SecurityCheck(_BASELINE, ((0, baseline.privileged),)),
    "procMount": SecurityCheck(_BASELINE, ((0, baseline.proc_mount),)),
    "seLinuxOptions": SecurityCheck(_BASELINE, ((0, baseline.selinux_options), (31, baseline.selinux_options_1_31))),
    "seccompProfile_baseline": SecurityCheck(
        _BASELINE, ((0, baseline.seccomp_annotations), (19, baseline.seccomp_profile))
    ),
    "sysctls": SecurityCheck(
        _BASELINE,
        ((0, baseline.sysctls), (27, baseline.sysctls_1_27), (29, baseline.sysctls_1_29), (32, baseline.sysctls_1_32)),
    ),
    "windowsHostProcess": SecurityCheck(_BASELINE, ((0, baseline.windows_host_process),)),
    "allowPrivilegeEscalation": SecurityCheck(
        _RESTRICTED, ((8, restricted.privilege_escalation), (25, restricted.privilege_escalation_1_25))
    ),
    "capabilities_restricted": SecurityCheck(
        _RESTRICTED,
        ((22, restricted.dropped_capabilities), (25, restricted.dropped_capabilities_1_25)),
        replaces="capabilities_baseline",
    ),
    "restrictedVolumes": SecurityCheck(_RESTRICTED, ((0, restricted.restricted_volumes),), replaces="hostPathVolumes"),
    "runAsNonRoot": SecurityCheck(_RESTRICTED, ((0, restricted.run_as_non_root),)),
    "runAsUser": SecurityCheck(_RESTRICTED, ((23, restricted.run_as_user),)),
    "seccompProfile_restricted": SecurityCheck(
        _RESTRICTED,
        ((19, restricted.required_seccomp_profile), (25, restricted.required_seccomp_profile_1_25)),
        replaces="seccompProfile_baseline",
    ),
}


@cache
def _checks_of(level: SecurityLevel, minor: int) -> tuple[PodCheck, ...]:
    active = {
        name: check for name, entry in CHECKS.items() if entry.level <= level and (check := entry.at(minor)) is not None
    }
    replaced = {CHECKS[name].replaces for name in active}
    return tuple(check for name, check in active.items() if name not in replaced)


def violations(policy: LeveledVersion, template: PodTemplate) -> tuple[SecurityViolation, ...]:
    """What in a pod or a template violates a policy. A version that is not known yet is the latest."""
    if policy.level is SecurityLevel.PRIVILEGED:
        return ()
    minor = LATEST_MINOR if policy.minor is None else min(policy.minor, LATEST_MINOR)
    results = (check(template) for check in _checks_of(policy.level, minor))
    return tuple(result for result in results if result is not None)


def reasons_text(found: tuple[SecurityViolation, ...]) -> str:
    return ", ".join(violation.reason for violation in found)


def details_text(found: tuple[SecurityViolation, ...]) -> str:
    return ", ".join(
        f"{violation.reason} ({violation.detail})" if violation.detail else violation.reason for violation in found
    )
