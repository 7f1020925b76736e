"""The checks of the baseline level. Each returns what in a pod violates it, in kube-apiserver's words."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from gangline.api.meta import JSON
from gangline.schema.go_text import quoted_text

APPARMOR_ANNOTATION_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER_ANNOTATION_PREFIX = "container.seccomp.security.alpha.kubernetes.io/"
PROFILE_TYPES = frozenset({"RuntimeDefault", "Localhost"})
_DEFAULT_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
_SYSCTLS_1_27 = _SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29 = _SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
_SYSCTLS_1_32 = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


class SecurityViolation(msgspec.Struct, frozen=True):
    """What a pod violates, and where in it."""

    reason: str
    detail: str


class PodTemplate(msgspec.Struct, frozen=True):
    """The metadata and the spec of a pod or of a template."""

    metadata: JSON
    spec: JSON

    @property
    def annotations(self) -> JSON:
        return self.metadata.get("annotations") or {}

    @property
    def security_context(self) -> JSON:
        return self.spec.get("securityContext") or {}

    @property
    def containers(self) -> Iterator[JSON]:
        """All containers: those of the start first, ephemeral ones last."""
        for field in ("initContainers", "containers", "ephemeralContainers"):
            yield from self.spec.get(field) or ()

    @property
    def is_windows(self) -> bool:
        return (self.spec.get("os") or {}).get("name") == "windows"


PodCheck = Callable[[PodTemplate], SecurityViolation | None]


def security_context(container: JSON) -> JSON:
    return container.get("securityContext") or {}


def quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def plural(word: str, items: Sequence[object] | Iterable[object]) -> str:
    """The word, with an s unless there is one item."""
    return word if len(tuple(items)) == 1 else f"{word}s"


def container_list(names: Sequence[str]) -> str:
    return f"{plural('container', names)} {quoted(names)}"


def setters(template: PodTemplate, is_bad: Callable[[JSON], bool]) -> list[str]:
    """Whose security contexts are bad: the pod, containers."""
    bad = ["pod"] if is_bad(template.security_context) else []
    containers = [item["name"] for item in template.containers if is_bad(security_context(item))]
    return bad + ([container_list(containers)] if containers else [])


def app_armor_profile(template: PodTemplate) -> SecurityViolation | None:
    values: set[str] = set()

    def is_bad(context: JSON) -> bool:
        profile = context.get("appArmorProfile")
        if profile is None or profile.get("type", "") in PROFILE_TYPES:
            return False
        values.add(profile.get("type", ""))
        return True

    bad = setters(template, is_bad)
    annotations = sorted(
        f"{name}={quoted_text(value)}"
        for name, value in template.annotations.items()
        if name.startswith(APPARMOR_ANNOTATION_PREFIX)
        and value not in {"", "runtime/default"}
        and not value.startswith("localhost/")
    )
    all_values = [*sorted(values), *annotations]
    if annotations:
        bad.append(plural("annotation", annotations))
    if not bad:
        return None
    detail = f"{' and '.join(bad)} must not set AppArmor profile type to {quoted(all_values)}"
    return SecurityViolation(plural("forbidden AppArmor profile", all_values), detail)


def default_capabilities(template: PodTemplate) -> SecurityViolation | None:
    bad = {
        item["name"]: [name for name in added_capabilities(item) if name not in _DEFAULT_CAPABILITIES]
        for item in template.containers
    }
    containers = [name for name, capabilities in bad.items() if capabilities]
    if not containers:
        return None
    capabilities = sorted({name for names in bad.values() for name in names})
    detail = f"{container_list(containers)} must not include {quoted(capabilities)} in securityContext.capabilities.add"
    return SecurityViolation("non-default capabilities", detail)


def added_capabilities(container: JSON) -> Sequence[str]:
    return (security_context(container).get("capabilities") or {}).get("add") or ()


def host_namespaces(template: PodTemplate) -> SecurityViolation | None:
    used = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if template.spec.get(field)]
    return SecurityViolation("host namespaces", ", ".join(used)) if used else None


def host_path_volumes(template: PodTemplate) -> SecurityViolation | None:
    volumes = [item["name"] for item in template.spec.get("volumes") or () if item.get("hostPath") is not None]
    if not volumes:
        return None
    return SecurityViolation("hostPath volumes", f"{plural('volume', volumes)} {quoted(volumes)}")


def host_ports(template: PodTemplate) -> SecurityViolation | None:
    used = {
        item["name"]: [port["hostPort"] for port in item.get("ports") or () if port.get("hostPort")]
        for item in template.containers
    }
    containers = [name for name, ports in used.items() if ports]
    if not containers:
        return None
    ports = sorted({str(port) for ports in used.values() for port in ports})
    verb = "uses" if len(containers) == 1 else "use"
    return SecurityViolation(
        "hostPort", f"{container_list(containers)} {verb} {plural('hostPort', ports)} {', '.join(ports)}"
    )


def probe_hosts(template: PodTemplate) -> SecurityViolation | None:
    used = {item["name"]: set(_hosts(item)) for item in template.containers}
    containers = sorted(name for name, hosts in used.items() if hosts)
    if not containers:
        return None
    hosts = sorted(set().union(*used.values()))
    verb = "uses" if len(containers) == 1 else "use"
    what = plural("probe or lifecycle host", hosts)
    return SecurityViolation("probe or lifecycle host", f"{container_list(containers)} {verb} {what} {quoted(hosts)}")


def _hosts(container: JSON) -> Iterator[str]:
    lifecycle = container.get("lifecycle") or {}
    handlers = [container.get(field) for field in ("livenessProbe", "readinessProbe", "startupProbe")]
    for handler in (*handlers, lifecycle.get("postStart"), lifecycle.get("preStop")):
        for kind in ("httpGet", "tcpSocket"):
            if host := ((handler or {}).get(kind) or {}).get("host"):
                yield host


def privileged(template: PodTemplate) -> SecurityViolation | None:
    containers = [item["name"] for item in template.containers if security_context(item).get("privileged")]
    if not containers:
        return None
    return SecurityViolation("privileged", f"{container_list(containers)} must not set securityContext.privileged=true")


def proc_mount(template: PodTemplate) -> SecurityViolation | None:
    types = {item["name"]: security_context(item).get("procMount", "Default") for item in template.containers}
    containers = [name for name, mount in types.items() if mount != "Default"]
    if not containers:
        return None
    bad = sorted({mount for mount in types.values() if mount != "Default"})
    detail = f"{container_list(containers)} must not set securityContext.procMount to {quoted(bad)}"
    return SecurityViolation("procMount", detail)


def _selinux_options(template: PodTemplate, allowed_types: frozenset[str]) -> SecurityViolation | None:
    bad_types: set[str] = set()
    fields: set[str] = set()

    def is_bad(context: JSON) -> bool:
        options = context.get("seLinuxOptions") or {}
        bad_type = options.get("type", "") not in allowed_types
        bad_fields = {field for field in ("user", "role") if options.get(field)}
        bad_types.update([options["type"]] if bad_type else ())
        fields.update(bad_fields)
        return bad_type or bool(bad_fields)

    bad = setters(template, is_bad)
    if not bad:
        return None
    what = [f"{plural('type', bad_types)} {quoted(sorted(bad_types))}"] if bad_types else []
    what += [f"{field} may not be set" for field in ("user", "role") if field in fields]
    detail = f"{' and '.join(bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(what)}"
    return SecurityViolation("seLinuxOptions", detail)


def selinux_options(template: PodTemplate) -> SecurityViolation | None:
    return _selinux_options(template, _SELINUX_TYPES)


def selinux_options_1_31(template: PodTemplate) -> SecurityViolation | None:
    return _selinux_options(template, _SELINUX_TYPES | {"container_engine_t"})


def seccomp_annotations(template: PodTemplate) -> SecurityViolation | None:
    names = [SECCOMP_POD_ANNOTATION]
    names += [f"{SECCOMP_CONTAINER_ANNOTATION_PREFIX}{item['name']}" for item in template.containers]
    bad = {
        f"{name}={quoted_text(value)}"
        for name in names
        if (value := template.annotations.get(name)) is not None
        and value not in {"runtime/default", "docker/default"}
        and not value.startswith("localhost/")
    }
    if not bad:
        return None
    return SecurityViolation("seccompProfile", f"forbidden {plural('annotation', bad)} {', '.join(sorted(bad))}")


def seccomp_profile(template: PodTemplate) -> SecurityViolation | None:
    values: set[str] = set()

    def is_bad(context: JSON) -> bool:
        profile = context.get("seccompProfile")
        if profile is None or profile.get("type", "") in PROFILE_TYPES:
            return False
        values.add(profile.get("type", ""))
        return True

    bad = setters(template, is_bad)
    if not bad:
        return None
    detail = f"{' and '.join(bad)} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    return SecurityViolation("seccompProfile", detail)


def _sysctls(template: PodTemplate, allowed: frozenset[str]) -> SecurityViolation | None:
    names = [item.get("name", "") for item in template.security_context.get("sysctls") or ()]
    bad = [name for name in names if name not in allowed]
    return SecurityViolation("forbidden sysctls", ", ".join(bad)) if bad else None


def sysctls(template: PodTemplate) -> SecurityViolation | None:
    return _sysctls(template, _SYSCTLS)


def sysctls_1_27(template: PodTemplate) -> SecurityViolation | None:
    return _sysctls(template, _SYSCTLS_1_27)


def sysctls_1_29(template: PodTemplate) -> SecurityViolation | None:
    return _sysctls(template, _SYSCTLS_1_29)


def sysctls_1_32(template: PodTemplate) -> SecurityViolation | None:
    return _sysctls(template, _SYSCTLS_1_32)


def windows_host_process(template: PodTemplate) -> SecurityViolation | None:
    bad = setters(template, lambda context: bool((context.get("windowsOptions") or {}).get("hostProcess")))
    if not bad:
        return None
    detail = f"{' and '.join(bad)} must not set securityContext.windowsOptions.hostProcess=true"
    return SecurityViolation("hostProcess", detail)
