"""Validation of security contexts of pods and containers."""

import re

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct
from gangline.apiserver.kinds.machinery.problems import (
    duplicate,
    each,
    forbidden,
    invalid,
    required,
    unsupported,
)
from gangline.apiserver.kinds.pod import volumes
from gangline.schema.problems import Problem

_SECCOMP = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTLS = rf"^({_SYSCTL}[\./])*{_SYSCTL}$"
_is_sysctl = re.compile(_SYSCTLS).match


def pod_security(context: JSON, spec: JSON, path: str) -> list[Problem]:
    """`securityContext` of a pod spec."""
    if not context:
        return _shared_processes(spec, path)
    found: list[Problem] = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        if name in context:
            found += each(f"{path}.{name}", context[name], formats.user_or_group(context[name]))
    for index, group in enumerate(context.get("supplementalGroups", ())):
        found += each(f"{path}.supplementalGroups[{index}]", group, formats.user_or_group(group))
    found += _shared_processes(spec, path)
    found += _sysctls(context.get("sysctls", ()), spec, f"{path}.sysctls")
    found += _one_of(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path)
    found += _profiles(context, path)
    found += _one_of(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path)
    found += _one_of(context, "seLinuxChangePolicy", ("Recursive",), path)
    return found


def _shared_processes(spec: JSON, path: str) -> list[Problem]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        told = "ShareProcessNamespace and HostPID cannot both be enabled"
        return [invalid(f"{path}.shareProcessNamespace", spec["shareProcessNamespace"], told)]
    return []


def _one_of(context: JSON, name: str, known: tuple[str, ...], path: str) -> list[Problem]:
    if name in context and context[name] not in known:
        return [unsupported(f"{path}.{name}", context[name], known)]
    return []


def _sysctls(sysctls: list[JSON] | tuple[()], spec: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, here = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            found.append(required(here))
        elif len(name) > 253 or not _is_sysctl(name):
            found.append(invalid(here, name, f"must have at most 253 characters and match regex {_SYSCTLS}"))
        elif name in seen:
            found.append(duplicate(here, name))
        if spec.get("hostNetwork") and name.startswith("net."):
            found.append(invalid(here, name, "may not be specified when 'hostNetwork' is true"))
        if spec.get("hostIPC") and name.startswith(("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")):
            found.append(invalid(here, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)
    return found


def _profiles(context: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    if "seccompProfile" in context:
        found += _seccomp(context["seccompProfile"], f"{path}.seccompProfile")
    if "appArmorProfile" in context:
        found += _app_armor(context["appArmorProfile"], f"{path}.appArmorProfile")
    return found


def _seccomp(profile: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    kind = profile.get("type", "")
    if not kind:
        found.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _SECCOMP:
        found.append(unsupported(f"{path}.type", kind, _SECCOMP))
    if kind == "Localhost":
        if "localhostProfile" not in profile:
            told = "must be set when seccomp type is Localhost"
            found.append(required(f"{path}.localhostProfile", told))
        else:
            found += volumes.descending(profile["localhostProfile"], f"{path}.localhostProfile")
    elif "localhostProfile" in profile:
        told = "can only be set when seccomp type is Localhost"
        found.append(invalid(f"{path}.localhostProfile", gostruct.internal(profile, gostruct.SECCOMP), told))
    return found


def _app_armor(profile: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    kind, here = profile.get("type", ""), f"{path}.localhostProfile"
    if kind == "Localhost":
        local = profile.get("localhostProfile")
        if local is None:
            found.append(required(here, "must be set when AppArmor type is Localhost"))
        elif local.strip() != local:
            found.append(invalid(here, local, "must not be padded with whitespace"))
        elif not local:
            found.append(required(here, "must be set when AppArmor type is Localhost"))
    elif kind in {"RuntimeDefault", "Unconfined"}:
        if "localhostProfile" in profile:
            told = "can only be set when AppArmor type is Localhost"
            found.append(invalid(here, profile["localhostProfile"], told))
    elif not kind:
        found.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        found.append(unsupported(f"{path}.type", kind, _SECCOMP))
    return found


def container_security(context: JSON, path: str, *, host_users: bool) -> list[Problem]:
    """`securityContext` of a container."""
    found: list[Problem] = []
    for name in ("runAsUser", "runAsGroup"):
        if name in context:
            found += each(f"{path}.{name}", context[name], formats.user_or_group(context[name]))
    if "procMount" in context:
        found += _one_of(context, "procMount", ("Default", "Unmasked"), path)
        if host_users and context["procMount"] == "Unmasked":
            told = "`hostUsers` must be false to use `Unmasked`"
            found.append(invalid(f"{path}.procMount", context["procMount"], told))
    if "seccompProfile" in context:
        found += _seccomp(context["seccompProfile"], f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        found += _no_escalation(context, path)
    if "appArmorProfile" in context:
        found += _app_armor(context["appArmorProfile"], f"{path}.appArmorProfile")
    return found


def _no_escalation(context: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    shown = gostruct.internal(context, gostruct.SECURITY)
    if context.get("privileged"):
        told = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        found.append(invalid(path, shown, told))
    told = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
    added = context.get("capabilities", {}).get("add", [])
    found += [invalid(path, shown, told) for _ in range(added.count("CAP_SYS_ADMIN"))]
    return found


def host_namespaces(spec: JSON, path: str) -> list[Problem]:
    """Users of its own and namespaces of the host do not go together."""
    if spec.get("hostUsers") is not False:
        return []
    told = "when `hostUsers` is false"
    named = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    found = [forbidden(f"{path}.{shown}", told) for name, shown in named if spec.get(name)]
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            if container.get("volumeDevices"):
                found.append(forbidden(f"{path}.{group}[{index}].volumeDevices", told))
    return found
