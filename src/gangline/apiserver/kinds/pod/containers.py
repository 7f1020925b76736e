"""Validation of containers: regular, init and ephemeral ones."""

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
    """What the validation of a container needs to know of its pod."""

    __slots__ = ("claims", "grace_period", "host_users", "os_name", "restart_policy", "volumes")

    def __init__(self, spec: JSON, good_volumes: dict[str, JSON]) -> None:
        self.volumes = good_volumes
        self.claims = frozenset(claim.get("name", "") for claim in spec.get("resourceClaims", ())) - {""}
        self.grace_period: int | None = spec.get("terminationGracePeriodSeconds")
        self.os_name: str | None = spec["os"].get("name", "") if "os" in spec else None
        self.restart_policy: str = spec.get("restartPolicy", "")
        self.host_users: bool = spec.get("hostUsers") is not False


def validate_containers(containers: list[JSON], pod: ContainerContext, path: str) -> list[FieldProblem]:
    """Problems of the `containers` of a pod spec."""
    if not containers:
        return [required(path)]
    problems: list[FieldProblem] = []
    names: set[str] = set()
    with_host_ports = False
    for index, container in enumerate(containers):
        item_path, name = f"{path}[{index}]", container["name"]
        problems += _validate_container(container, pod, item_path)
        if name in names:
            problems.append(duplicate(f"{item_path}.name", name))
        names.add(name)
        if not container.keys().isdisjoint(_PROBE_FIELDS):
            if "lifecycle" in container:
                problems += probes.validate_lifecycle(
                    container["lifecycle"], f"{item_path}.lifecycle", pod.grace_period, pod.os_name
                )
            problems += probes.validate_probes(container, item_path, pod.grace_period)
        if "restartPolicy" in container:
            problems.append(forbidden(f"{item_path}.restartPolicy", "may not be set for non-init containers"))
        with_host_ports = with_host_ports or any("hostPort" in port for port in container.get("ports", ()))
    return problems + (_validate_host_ports(containers, path) if with_host_ports else [])


def validate_init_containers(
    containers: list[JSON], regular: list[JSON], pod: ContainerContext, path: str
) -> list[FieldProblem]:
    """Problems of the `initContainers` of a pod spec, sidecars included."""
    problems: list[FieldProblem] = []
    names = {container["name"] for container in regular}
    for index, container in enumerate(containers):
        item_path, name = f"{path}[{index}]", container["name"]
        problems += _validate_container(container, pod, item_path)
        policy = container.get("restartPolicy")
        if policy is not None and policy != "Always":
            problems.append(unsupported(f"{item_path}.restartPolicy", policy, ("Always",)))
        if name in names:
            problems.append(duplicate(f"{item_path}.name", name))
        if name:
            names.add(name)
        problems += _validate_host_ports([container], path)
        if policy == "Always":
            if "lifecycle" in container:
                problems += probes.validate_lifecycle(
                    container["lifecycle"], f"{item_path}.lifecycle", pod.grace_period, pod.os_name
                )
            problems += probes.validate_probes(container, item_path, pod.grace_period)
        else:
            detail = "may not be set for init containers without restartPolicy=Always"
            problems += [forbidden(f"{item_path}.{probe}", detail) for probe in _PROBE_FIELDS if probe in container]
        if policy != "Always" and container.get("resizePolicy"):
            detail = "must not be set for init containers"
            problems.append(invalid(f"{item_path}.resizePolicy", container["resizePolicy"], detail))
    return problems


def validate_ephemeral_containers(
    containers: list[JSON], others: list[JSON], pod: ContainerContext, path: str
) -> list[FieldProblem]:
    """Problems of the `ephemeralContainers` of a pod spec; `others` are its regular and init containers."""
    problems: list[FieldProblem] = []
    other_names = {container["name"] for container in others}
    names = set(other_names)
    detail = "cannot be set for an Ephemeral Container"
    for index, container in enumerate(containers):
        item_path, name = f"{path}[{index}]", container["name"]
        problems += _validate_container(container, pod, item_path)
        problems += validate_image_whitespace(container, item_path)
        if name in names:
            problems.append(duplicate(f"{item_path}.name", name))
        names.add(name)
        target = container.get("targetContainerName")
        if target and target not in other_names:
            problems.append(not_found(f"{item_path}.targetContainerName", target))
        problems += [
            forbidden(f"{item_path}.{field}", detail) for field in _FORBIDDEN_EPHEMERAL_FIELDS if container.get(field)
        ]
        for number, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    problems.append(forbidden(f"{item_path}.volumeMounts[{number}].{field}", detail))
    return problems


def validate_image_whitespace(container: JSON, path: str) -> list[FieldProblem]:
    """A problem if the image has whitespace around it. Pods are checked for this, templates are not."""
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]


def _validate_container(container: JSON, pod: ContainerContext, path: str) -> list[FieldProblem]:  # noqa: C901  a list of fields
    problems: list[FieldProblem] = []
    name, policy = container["name"], container["terminationMessagePolicy"]
    if not name:
        problems.append(required(f"{path}.name"))
    elif errors := formats.dns_label_errors(name):
        problems += invalid_each(f"{path}.name", name, errors)
    if not container.get("image"):
        problems.append(required(f"{path}.image"))
    if policy not in _TERMINATION_MESSAGE_POLICIES:
        problems.append(unsupported(f"{path}.terminationMessagePolicy", policy, _TERMINATION_MESSAGE_POLICIES))
    if "ports" in container:
        problems += _validate_ports(container["ports"], f"{path}.ports")
    if "env" in container:
        problems += _validate_env(container["env"], f"{path}.env")
    if "envFrom" in container:
        problems += _validate_env_from(container["envFrom"], f"{path}.envFrom")
    if "volumeMounts" in container:
        problems += mounts.validate_volume_mounts(container, pod.volumes, f"{path}.volumeMounts")
    if "volumeDevices" in container:
        problems += mounts.validate_volume_devices(container, pod.volumes, f"{path}.volumeDevices")
    if container["imagePullPolicy"] not in {"Always", "IfNotPresent", "Never"}:
        problems += volumes.validate_pull_policy(container["imagePullPolicy"], f"{path}.imagePullPolicy")
    if container["resources"]:
        problems += quantities.validate_resource_requirements(container["resources"], f"{path}.resources", pod.claims)
    if "resizePolicy" in container:
        problems += _validate_resize_policy(container["resizePolicy"], pod, f"{path}.resizePolicy")
    if "securityContext" in container:
        context = container["securityContext"]
        problems += security.validate_container_security_context(
            context, f"{path}.securityContext", host_users=pod.host_users
        )
    return problems


def _validate_ports(ports: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        item_path, name, number = f"{path}[{index}]", port.get("name", ""), port["containerPort"]
        if name:
            if errors := formats.port_name_errors(name):
                problems += invalid_each(f"{item_path}.name", name, errors)
            elif name in names:
                problems.append(duplicate(f"{item_path}.name", name))
            names.add(name)
        if number == 0:
            problems.append(required(f"{item_path}.containerPort"))
        elif not 1 <= number <= 65535:
            problems += invalid_each(f"{item_path}.containerPort", number, formats.port_number_errors(number))
        if "hostPort" in port:
            problems += invalid_each(
                f"{item_path}.hostPort", port["hostPort"], formats.port_number_errors(port["hostPort"])
            )
        if port["protocol"] not in PROTOCOLS:
            problems.append(unsupported(f"{item_path}.protocol", port["protocol"], PROTOCOLS))
    return problems


def _validate_host_ports(containers: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_ports: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports", ())):
            if not port.get("hostPort"):
                continue
            key = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
            if key in earlier_ports:
                problems.append(duplicate(f"{path}[{index}].ports[{number}].hostPort", key))
            earlier_ports.add(key)
    return problems


def _validate_env(variables: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, variable in enumerate(variables):
        name = variable["name"]
        if not name:
            problems.append(required(f"{path}[{index}].name"))
        elif errors := formats.env_name_errors(name):
            problems += invalid_each(f"{path}[{index}].name", name, errors)
        if "valueFrom" in variable:
            problems += _validate_value_from(variable, f"{path}[{index}].valueFrom")
    return problems


def _validate_value_from(variable: JSON, path: str) -> list[FieldProblem]:
    source: JSON = variable["valueFrom"]
    problems: list[FieldProblem] = []
    if "fieldRef" in source:
        problems += downward_api.validate_field_ref(
            source["fieldRef"], downward_api.ENV_FIELD_PATHS, f"{path}.fieldRef"
        )
    if "resourceFieldRef" in source:
        reference = source["resourceFieldRef"]
        problems += downward_api.validate_resource_field_ref(reference, f"{path}.resourceFieldRef", of_volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            problems += _validate_key_ref(source[name], f"{path}.{name}")
    if not source:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        problems.append(invalid(path, "", detail))
    elif variable.get("value"):
        problems.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        problems.append(invalid(path, "", "may not have more than one field specified at a time"))
    return problems


def _validate_key_ref(reference: JSON, path: str) -> list[FieldProblem]:
    name, key = reference.get("name", ""), reference.get("key", "")
    problems = invalid_each(f"{path}.name", name, formats.dns_subdomain_errors(name))
    return problems + (
        invalid_each(f"{path}.key", key, formats.config_key_errors(key)) if key else [required(f"{path}.key")]
    )


def _validate_env_from(sources: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, source in enumerate(sources):
        item_path = f"{path}[{index}]"
        if source.get("prefix"):
            problems += invalid_each(f"{item_path}.prefix", source["prefix"], formats.env_name_errors(source["prefix"]))
        source_kinds = [name for name in ("configMapRef", "secretRef") if name in source]
        for kind in source_kinds:
            name = source[kind].get("name", "")
            problems += (
                invalid_each(
                    f"{item_path}.{kind}.name", name, formats.dns_subdomain_errors(formats.name_from_prefix(name))
                )
                if name
                else [required(f"{item_path}.{kind}.name")]
            )
        if not source_kinds:
            problems.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(source_kinds) > 1:
            problems.append(invalid(path, "", "may not have more than one field specified at a time"))
    return problems


def _validate_resize_policy(policies: list[JSON], pod: ContainerContext, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_names: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in earlier_names:
            problems.append(duplicate(f"{path}[{index}]", name))
        earlier_names.add(name)
        for value, supported in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                problems.append(required(path))
            elif value not in supported:
                problems.append(unsupported(path, value, supported))
        if pod.restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            problems.append(invalid(path, restart, detail))
    return problems
