"""Validation of security contexts of pods and containers."""

import re

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct
from gangline.apiserver.kinds.pod import volumes
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required, unsupported

_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL_PART_PATTERN = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_PATTERN = rf"^({_SYSCTL_PART_PATTERN}[\./])*{_SYSCTL_PART_PATTERN}$"
_is_sysctl = re.compile(_SYSCTL_PATTERN).match


def validate_pod_security_context(context: JSON, spec: JSON, path: str) -> list[FieldProblem]:
    """`securityContext` of a pod spec."""
    if not context:
        return _validate_process_namespace(spec, path)
    found: list[FieldProblem] = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        if name in context:
            found += invalid_each(f"{path}.{name}", context[name], formats.user_id_errors(context[name]))
    for index, group in enumerate(context.get("supplementalGroups", ())):
        found += invalid_each(f"{path}.supplementalGroups[{index}]", group, formats.user_id_errors(group))
    found += _validate_process_namespace(spec, path)
    found += _validate_sysctls(context.get("sysctls", ()), spec, f"{path}.sysctls")
    found += _validate_enum(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path)
    found += _validate_profiles(context, path)
    found += _validate_enum(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path)
    found += _validate_enum(context, "seLinuxChangePolicy", ("Recursive",), path)
    return found


def _validate_process_namespace(spec: JSON, path: str) -> list[FieldProblem]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        told = "ShareProcessNamespace and HostPID cannot both be enabled"
        return [invalid(f"{path}.shareProcessNamespace", spec["shareProcessNamespace"], told)]
    return []


def _validate_enum(context: JSON, name: str, known: tuple[str, ...], path: str) -> list[FieldProblem]:
    if name in context and context[name] not in known:
        return [unsupported(f"{path}.{name}", context[name], known)]
    return []


def _validate_sysctls(sysctls: list[JSON] | tuple[()], spec: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, here = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            found.append(required(here))
        elif len(name) > 253 or not _is_sysctl(name):
            found.append(invalid(here, name, f"must have at most 253 characters and match regex {_SYSCTL_PATTERN}"))
        elif name in seen:
            found.append(duplicate(here, name))
        if spec.get("hostNetwork") and name.startswith("net."):
            found.append(invalid(here, name, "may not be specified when 'hostNetwork' is true"))
        if spec.get("hostIPC") and name.startswith(("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")):
            found.append(invalid(here, name, "may not be specified when 'hostIPC' is true"))
        seen.add(name)
    return found


def _validate_profiles(context: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if "seccompProfile" in context:
        found += _validate_seccomp_profile(context["seccompProfile"], f"{path}.seccompProfile")
    if "appArmorProfile" in context:
        found += _validate_app_armor_profile(context["appArmorProfile"], f"{path}.appArmorProfile")
    return found


def _validate_seccomp_profile(profile: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    kind = profile.get("type", "")
    if not kind:
        found.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILE_TYPES:
        found.append(unsupported(f"{path}.type", kind, _PROFILE_TYPES))
    if kind == "Localhost":
        if "localhostProfile" not in profile:
            told = "must be set when seccomp type is Localhost"
            found.append(required(f"{path}.localhostProfile", told))
        else:
            found += volumes.validate_descending_path(profile["localhostProfile"], f"{path}.localhostProfile")
    elif "localhostProfile" in profile:
        told = "can only be set when seccomp type is Localhost"
        found.append(
            invalid(f"{path}.localhostProfile", gostruct.go_struct(profile, gostruct.SECCOMP_PROFILE_FIELDS), told)
        )
    return found


def _validate_app_armor_profile(profile: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
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
        found.append(unsupported(f"{path}.type", kind, _PROFILE_TYPES))
    return found


def validate_container_security_context(context: JSON, path: str, *, host_users: bool) -> list[FieldProblem]:
    """`securityContext` of a container."""
    found: list[FieldProblem] = []
    for name in ("runAsUser", "runAsGroup"):
        if name in context:
            found += invalid_each(f"{path}.{name}", context[name], formats.user_id_errors(context[name]))
    if "procMount" in context:
        found += _validate_enum(context, "procMount", ("Default", "Unmasked"), path)
        if host_users and context["procMount"] == "Unmasked":
            told = "`hostUsers` must be false to use `Unmasked`"
            found.append(invalid(f"{path}.procMount", context["procMount"], told))
    if "seccompProfile" in context:
        found += _validate_seccomp_profile(context["seccompProfile"], f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        found += _validate_privilege_escalation(context, path)
    if "appArmorProfile" in context:
        found += _validate_app_armor_profile(context["appArmorProfile"], f"{path}.appArmorProfile")
    return found


def _validate_privilege_escalation(context: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    shown = gostruct.go_struct(context, gostruct.SECURITY_CONTEXT_FIELDS)
    if context.get("privileged"):
        told = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        found.append(invalid(path, shown, told))
    told = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
    added = context.get("capabilities", {}).get("add", [])
    found += [invalid(path, shown, told) for _ in range(added.count("CAP_SYS_ADMIN"))]
    return found


def validate_host_namespaces(spec: JSON, path: str) -> list[FieldProblem]:
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
