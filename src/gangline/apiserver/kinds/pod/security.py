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
    """Problems of the `securityContext` of a pod spec."""
    if not context:
        return _validate_process_namespace(spec, path)
    problems: list[FieldProblem] = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        if name in context:
            problems += invalid_each(f"{path}.{name}", context[name], formats.user_id_errors(context[name]))
    for index, group in enumerate(context.get("supplementalGroups", ())):
        problems += invalid_each(f"{path}.supplementalGroups[{index}]", group, formats.user_id_errors(group))
    problems += _validate_process_namespace(spec, path)
    problems += _validate_sysctls(context.get("sysctls", ()), spec, f"{path}.sysctls")
    problems += _validate_enum(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path)
    problems += _validate_profiles(context, path)
    problems += _validate_enum(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path)
    problems += _validate_enum(context, "seLinuxChangePolicy", ("Recursive",), path)
    return problems


def _validate_process_namespace(spec: JSON, path: str) -> list[FieldProblem]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        return [invalid(f"{path}.shareProcessNamespace", spec["shareProcessNamespace"], detail)]
    return []


def _validate_enum(context: JSON, name: str, supported: tuple[str, ...], path: str) -> list[FieldProblem]:
    if name in context and context[name] not in supported:
        return [unsupported(f"{path}.{name}", context[name], supported)]
    return []


def _validate_sysctls(sysctls: list[JSON] | tuple[()], spec: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, item_path = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            problems.append(required(item_path))
        elif len(name) > 253 or not _is_sysctl(name):
            problems.append(
                invalid(item_path, name, f"must have at most 253 characters and match regex {_SYSCTL_PATTERN}")
            )
        elif name in earlier_names:
            problems.append(duplicate(item_path, name))
        if spec.get("hostNetwork") and name.startswith("net."):
            problems.append(invalid(item_path, name, "may not be specified when 'hostNetwork' is true"))
        if spec.get("hostIPC") and name.startswith(("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")):
            problems.append(invalid(item_path, name, "may not be specified when 'hostIPC' is true"))
        earlier_names.add(name)
    return problems


def _validate_profiles(context: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if "seccompProfile" in context:
        problems += _validate_seccomp_profile(context["seccompProfile"], f"{path}.seccompProfile")
    if "appArmorProfile" in context:
        problems += _validate_app_armor_profile(context["appArmorProfile"], f"{path}.appArmorProfile")
    return problems


def _validate_seccomp_profile(profile: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    kind = profile.get("type", "")
    if not kind:
        problems.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILE_TYPES:
        problems.append(unsupported(f"{path}.type", kind, _PROFILE_TYPES))
    if kind == "Localhost":
        if "localhostProfile" not in profile:
            detail = "must be set when seccomp type is Localhost"
            problems.append(required(f"{path}.localhostProfile", detail))
        else:
            problems += volumes.validate_descending_path(profile["localhostProfile"], f"{path}.localhostProfile")
    elif "localhostProfile" in profile:
        detail = "can only be set when seccomp type is Localhost"
        problems.append(
            invalid(f"{path}.localhostProfile", gostruct.go_struct(profile, gostruct.SECCOMP_PROFILE_FIELDS), detail)
        )
    return problems


def _validate_app_armor_profile(profile: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    kind, field_path = profile.get("type", ""), f"{path}.localhostProfile"
    if kind == "Localhost":
        local = profile.get("localhostProfile")
        if local is None:
            problems.append(required(field_path, "must be set when AppArmor type is Localhost"))
        elif local.strip() != local:
            problems.append(invalid(field_path, local, "must not be padded with whitespace"))
        elif not local:
            problems.append(required(field_path, "must be set when AppArmor type is Localhost"))
    elif kind in {"RuntimeDefault", "Unconfined"}:
        if "localhostProfile" in profile:
            detail = "can only be set when AppArmor type is Localhost"
            problems.append(invalid(field_path, profile["localhostProfile"], detail))
    elif not kind:
        problems.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        problems.append(unsupported(f"{path}.type", kind, _PROFILE_TYPES))
    return problems


def validate_container_security_context(context: JSON, path: str, *, host_users: bool) -> list[FieldProblem]:
    """Problems of the `securityContext` of a container."""
    problems: list[FieldProblem] = []
    for name in ("runAsUser", "runAsGroup"):
        if name in context:
            problems += invalid_each(f"{path}.{name}", context[name], formats.user_id_errors(context[name]))
    if "procMount" in context:
        problems += _validate_enum(context, "procMount", ("Default", "Unmasked"), path)
        if host_users and context["procMount"] == "Unmasked":
            detail = "`hostUsers` must be false to use `Unmasked`"
            problems.append(invalid(f"{path}.procMount", context["procMount"], detail))
    if "seccompProfile" in context:
        problems += _validate_seccomp_profile(context["seccompProfile"], f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        problems += _validate_privilege_escalation(context, path)
    if "appArmorProfile" in context:
        problems += _validate_app_armor_profile(context["appArmorProfile"], f"{path}.appArmorProfile")
    return problems


def _validate_privilege_escalation(context: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    printed = gostruct.go_struct(context, gostruct.SECURITY_CONTEXT_FIELDS)
    if context.get("privileged"):
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        problems.append(invalid(path, printed, detail))
    detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
    added = context.get("capabilities", {}).get("add", [])
    problems += [invalid(path, printed, detail) for _ in range(added.count("CAP_SYS_ADMIN"))]
    return problems


def validate_host_namespaces(spec: JSON, path: str) -> list[FieldProblem]:
    """Problems of a pod with a user namespace of its own (`hostUsers: false`) that uses namespaces of the host."""
    if spec.get("hostUsers") is not False:
        return []
    detail = "when `hostUsers` is false"
    fields = (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
    problems = [forbidden(f"{path}.{shown_name}", detail) for name, shown_name in fields if spec.get(name)]
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            if container.get("volumeDevices"):
                problems.append(forbidden(f"{path}.{group}[{index}].volumeDevices", detail))
    return problems
