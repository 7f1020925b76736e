"""Validation of containers: regular, init, ephemeral."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, quantities
from gangline.apiserver.kinds.pod import downward_api, mounts, probes, security, volumes
from gangline.schema.problems import (
    FieldProblem,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    required,
    unsupported,
)

PROTOCOLS = ("SCTP", "TCP", "UDP")
_TERMINATION_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROBE_FIELDS = ("lifecycle", *probes.PROBE_FIELDS)
_EPHEMERAL_FIELDS = frozenset(
    [
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "envFrom",
        "env",
        "volumeMounts",
        "volumeDevices",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
        "targetContainerName",
    ]
)
_FORBIDDEN_EPHEMERAL_FIELDS = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
]


class ContainerContext:
    """What checks of a container need to know of its pod."""

    __slots__ = ("claims", "grace_period", "host_users", "os_name", "restart_policy", "volumes")

    def __init__(self, spec: JSON, good_volumes: dict[str, JSON]) -> None:
        self.volumes = good_volumes
        self.claims = frozenset(one.get("name", "") for one in spec.get("resourceClaims", ())) - {""}
        self.grace_period: int | None = spec.get("terminationGracePeriodSeconds")
        self.os_name: str | None = spec["os"].get("name", "") if "os" in spec else None
        self.restart_policy: str = spec.get("restartPolicy", "")
        self.host_users: bool = spec.get("hostUsers") is not False


def validate_containers(listed: list[JSON], pod: ContainerContext, path: str) -> list[FieldProblem]:
    """`containers` of a pod spec."""
    if not listed:
        return [required(path)]
    found: list[FieldProblem] = []
    names: set[str] = set()
    with_host_ports = False
    for index, container in enumerate(listed):
        here, name = f"{path}[{index}]", container["name"]
        found += _validate_container(container, pod, here)
        if name in names:
            found.append(duplicate(f"{here}.name", name))
        names.add(name)
        if not container.keys().isdisjoint(_PROBE_FIELDS):
            if "lifecycle" in container:
                found += probes.validate_lifecycle(
                    container["lifecycle"], f"{here}.lifecycle", pod.grace_period, pod.os_name
                )
            found += probes.validate_probes(container, here, pod.grace_period)
        if "restartPolicy" in container:
            found.append(forbidden(f"{here}.restartPolicy", "may not be set for non-init containers"))
        with_host_ports = with_host_ports or any("hostPort" in port for port in container.get("ports", ()))
    return found + (_validate_host_ports(listed, path) if with_host_ports else [])


def validate_init_containers(
    listed: list[JSON], regular_ones: list[JSON], pod: ContainerContext, path: str
) -> list[FieldProblem]:
    """`initContainers` of a pod spec, sidecars among them."""
    found: list[FieldProblem] = []
    names = {container["name"] for container in regular_ones}
    for index, container in enumerate(listed):
        here, name = f"{path}[{index}]", container["name"]
        found += _validate_container(container, pod, here)
        policy = container.get("restartPolicy")
        if policy is not None and policy != "Always":
            found.append(unsupported(f"{here}.restartPolicy", policy, ("Always",)))
        if name in names:
            found.append(duplicate(f"{here}.name", name))
        if name:
            names.add(name)
        found += _validate_host_ports([container], path)
        if policy == "Always":
            if "lifecycle" in container:
                found += probes.validate_lifecycle(
                    container["lifecycle"], f"{here}.lifecycle", pod.grace_period, pod.os_name
                )
            found += probes.validate_probes(container, here, pod.grace_period)
        else:
            told = "may not be set for init containers without restartPolicy=Always"
            found += [forbidden(f"{here}.{probe}", told) for probe in _PROBE_FIELDS if probe in container]
        if policy != "Always" and container.get("resizePolicy"):
            told = "must not be set for init containers"
            found.append(invalid(f"{here}.resizePolicy", container["resizePolicy"], told))
    return found


def validate_ephemeral_containers(
    listed: list[JSON], others: list[JSON], pod: ContainerContext, path: str
) -> list[FieldProblem]:
    """`ephemeralContainers` of a pod spec; `others` are its lasting containers."""
    found: list[FieldProblem] = []
    lasting = {container["name"] for container in others}
    names = set(lasting)
    told = "cannot be set for an Ephemeral Container"
    for index, container in enumerate(listed):
        here, name = f"{path}[{index}]", container["name"]
        found += _validate_container(container, pod, here)
        found += validate_image_whitespace(container, here)
        if name in names:
            found.append(duplicate(f"{here}.name", name))
        names.add(name)
        target = container.get("targetContainerName")
        if target and target not in lasting:
            found.append(not_found(f"{here}.targetContainerName", target))
        found += [
            forbidden(f"{here}.{field}", told)
            for field in _FORBIDDEN_EPHEMERAL_FIELDS
            if container.get(field) and field not in _EPHEMERAL_FIELDS
        ]
        for number, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    found.append(forbidden(f"{here}.volumeMounts[{number}].{field}", told))
    return found


def validate_image_whitespace(container: JSON, path: str) -> list[FieldProblem]:
    """In pods, unlike in templates, an image's name has no blanks around it."""
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]


def _validate_container(container: JSON, pod: ContainerContext, path: str) -> list[FieldProblem]:  # noqa: C901  a list of fields
    found: list[FieldProblem] = []
    name, policy = container["name"], container["terminationMessagePolicy"]
    if not name:
        found.append(required(f"{path}.name"))
    elif said := formats.dns_label_errors(name):
        found += invalid_each(f"{path}.name", name, said)
    if not container.get("image"):
        found.append(required(f"{path}.image"))
    if policy not in _TERMINATION_MESSAGE_POLICIES:
        found.append(unsupported(f"{path}.terminationMessagePolicy", policy, _TERMINATION_MESSAGE_POLICIES))
    if "ports" in container:
        found += _validate_ports(container["ports"], f"{path}.ports")
    if "env" in container:
        found += _validate_env(container["env"], f"{path}.env")
    if "envFrom" in container:
        found += _validate_env_from(container["envFrom"], f"{path}.envFrom")
    if "volumeMounts" in container:
        found += mounts.validate_volume_mounts(container, pod.volumes, f"{path}.volumeMounts")
    if "volumeDevices" in container:
        found += mounts.validate_volume_devices(container, pod.volumes, f"{path}.volumeDevices")
    if container["imagePullPolicy"] not in {"Always", "IfNotPresent", "Never"}:
        found += volumes.validate_pull_policy(container["imagePullPolicy"], f"{path}.imagePullPolicy")
    if container["resources"]:
        found += quantities.validate_resource_requirements(container["resources"], f"{path}.resources", pod.claims)
    if "resizePolicy" in container:
        found += _validate_resize_policy(container["resizePolicy"], pod, f"{path}.resizePolicy")
    if "securityContext" in container:
        context = container["securityContext"]
        found += security.validate_container_security_context(
            context, f"{path}.securityContext", host_users=pod.host_users
        )
    return found


def _validate_ports(ports: list[JSON], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name, number = f"{path}[{index}]", port.get("name", ""), port["containerPort"]
        if name:
            if said := formats.port_name_errors(name):
                found += invalid_each(f"{here}.name", name, said)
            elif name in names:
                found.append(duplicate(f"{here}.name", name))
            names.add(name)
        if number == 0:
            found.append(required(f"{here}.containerPort"))
        elif not 1 <= number <= 65535:
            found += invalid_each(f"{here}.containerPort", number, formats.port_number_errors(number))
        if "hostPort" in port:
            found += invalid_each(f"{here}.hostPort", port["hostPort"], formats.port_number_errors(port["hostPort"]))
        if port["protocol"] not in PROTOCOLS:
            found.append(unsupported(f"{here}.protocol", port["protocol"], PROTOCOLS))
    return found


def _validate_host_ports(listed: list[JSON], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    taken: set[str] = set()
    for index, container in enumerate(listed):
        for number, port in enumerate(container.get("ports", ())):
            if not port.get("hostPort"):
                continue
            key = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in taken:
                found.append(duplicate(f"{path}[{index}].ports[{number}].hostPort", key))
            taken.add(key)
    return found


def _validate_env(variables: list[JSON], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for index, variable in enumerate(variables):
        name = variable["name"]
        if not name:
            found.append(required(f"{path}[{index}].name"))
        elif said := formats.env_name_errors(name):
            found += invalid_each(f"{path}[{index}].name", name, said)
        if "valueFrom" in variable:
            found += _validate_value_from(variable, f"{path}[{index}].valueFrom")
    return found


def _validate_value_from(variable: JSON, path: str) -> list[FieldProblem]:
    source: JSON = variable["valueFrom"]
    found: list[FieldProblem] = []
    if "fieldRef" in source:
        found += downward_api.validate_field_ref(source["fieldRef"], downward_api.ENV_FIELD_PATHS, f"{path}.fieldRef")
    if "resourceFieldRef" in source:
        reference = source["resourceFieldRef"]
        found += downward_api.validate_resource_field_ref(reference, f"{path}.resourceFieldRef", of_volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            found += _validate_key_ref(source[name], f"{path}.{name}")
    if not source:
        told = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        found.append(invalid(path, "", told))
    elif variable.get("value"):
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def _validate_key_ref(reference: JSON, path: str) -> list[FieldProblem]:
    name, key = reference.get("name", ""), reference.get("key", "")
    found = invalid_each(f"{path}.name", name, formats.dns_subdomain_errors(name))
    return found + (
        invalid_each(f"{path}.key", key, formats.config_key_errors(key)) if key else [required(f"{path}.key")]
    )


def _validate_env_from(sources: list[JSON], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for index, source in enumerate(sources):
        here = f"{path}[{index}]"
        if source.get("prefix"):
            found += invalid_each(f"{here}.prefix", source["prefix"], formats.env_name_errors(source["prefix"]))
        chosen = [name for name in ("configMapRef", "secretRef") if name in source]
        for kind in chosen:
            name = source[kind].get("name", "")
            found += (
                invalid_each(f"{here}.{kind}.name", name, formats.dns_subdomain_errors(formats.name_from_prefix(name)))
                if name
                else [required(f"{here}.{kind}.name")]
            )
        if not chosen:
            found.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(chosen) > 1:
            found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def _validate_resize_policy(policies: list[JSON], pod: ContainerContext, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        for value, known in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                found.append(required(path))
            elif value not in known:
                found.append(unsupported(path, value, known))
        if pod.restart_policy == "Never" and restart != "NotRequired":
            told = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            found.append(invalid(path, restart, told))
    return found
