"""Warnings about pods and pod templates: valid fields that do not do what they seem to."""

from collections.abc import Iterator

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, quantities
from gangline.schema.go_text import value_text

_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP_WARNING = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER_PREFIX = "container.seccomp.security.alpha.kubernetes.io/"
_DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_DEPRECATED_VOLUMES = (
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
)
_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_NULL_SELECTOR_WARNING = "a null labelSelector results in matching no pod"


def name_warnings(name: str) -> Iterator[str]:
    """A warning about a pod's name that is no DNS label: it becomes the pod's host name."""
    if errors := formats.dns_label_errors(name):
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is "
            f"recommended: [{' '.join(errors)}]"
        )


def pod_warnings(meta: JSON, spec: JSON, prefix: str = "") -> Iterator[str]:
    """Warnings about a pod, or about a template at `prefix` (`spec.template.`)."""
    path = f"{prefix}spec"
    if not spec.keys().isdisjoint({"nodeSelector", "affinity", "topologySpreadConstraints"}):
        yield from _placement_warnings(spec, path)
    annotations = meta.get("annotations", {})
    for key, message in _DEPRECATED_ANNOTATIONS.items():
        if key in annotations:
            yield f"{prefix}metadata.annotations[{key}]: {message}"
    if "volumes" in spec:
        yield from _volume_warnings(spec["volumes"], f"{path}.volumes")
    yield from _duplicate_entry_warnings(spec, path)
    if _SECCOMP_POD_ANNOTATION in annotations and "seccompProfile" not in spec.get("securityContext", {}):
        yield f"{prefix}metadata.annotations[{_SECCOMP_POD_ANNOTATION}]: {_SECCOMP_WARNING}"
    for container_path, container in _containers_with_paths(spec, path):
        key = _SECCOMP_CONTAINER_PREFIX + container["name"]
        if key in annotations and "seccompProfile" not in container.get("securityContext", {}):
            yield f"{prefix}metadata.annotations[{key}]: {_SECCOMP_WARNING}"
        yield from _container_warnings(container, container_path)
    yield from _port_warnings(spec, path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        )
    if "affinity" in spec:
        yield from _pod_affinity_warnings(spec["affinity"], f"{path}.affinity")


def _containers_with_paths(spec: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    for group in _CONTAINER_LISTS:
        for index, container in enumerate(spec.get(group) or ()):
            yield f"{path}.{group}[{index}]", container


def _placement_warnings(spec: JSON, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector", ()):
        if key in _DEPRECATED_NODE_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_DEPRECATED_NODE_LABELS[key]}"
    yield from _node_affinity_warnings(
        spec.get("affinity", {}).get("nodeAffinity", {}), f"{path}.affinity.nodeAffinity"
    )
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        item_path, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in _DEPRECATED_NODE_LABELS:
            yield f"{item_path}.topologyKey: {key} is {_DEPRECATED_NODE_LABELS[key]}"
        if "labelSelector" not in constraint:
            yield f"{item_path}.labelSelector: {_NULL_SELECTOR_WARNING}"


def _node_affinity_warnings(node: JSON, path: str) -> Iterator[str]:
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    terms = node.get(required, {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from _node_term_warnings(term, f"{path}.{required}.nodeSelectorTerms[{index}]")
    for index, weighted in enumerate(node.get(preferred, ())):
        yield from _node_term_warnings(weighted.get("preference", {}), f"{path}.{preferred}[{index}].preference")


def _node_term_warnings(term: JSON, path: str) -> Iterator[str]:
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        key = requirement.get("key", "")
        if key in _DEPRECATED_NODE_LABELS:
            yield f"{path}.matchExpressions[{index}].key: {key} is {_DEPRECATED_NODE_LABELS[key]}"


def _pod_affinity_warnings(affinity: JSON, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind, {})
        name = "requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(pods.get(name, ())):
            if "labelSelector" not in term:
                yield f"{path}.{kind}.{name}[{index}].labelSelector: {_NULL_SELECTOR_WARNING}"
        name = "preferredDuringSchedulingIgnoredDuringExecution"
        for index, weighted in enumerate(pods.get(name, ())):
            if "labelSelector" not in weighted.get("podAffinityTerm", {}):
                yield f"{path}.{kind}.{name}[{index}].podAffinityTerm.labelSelector: {_NULL_SELECTOR_WARNING}"


def _volume_warnings(volumes: list[JSON], path: str) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        for name, shown_name, message in _DEPRECATED_VOLUMES:
            if name in volume:
                yield f"{path}[{index}].{shown_name}: {message}"
    for volume in volumes:
        yield from _path_overlap_warnings(volume)


def _path_overlap_warnings(volume: JSON) -> Iterator[str]:
    """Warnings about files of one volume that hide each other."""
    for kind, name_field, shown_kind in _FILE_SOURCES:
        source = volume.get(kind, {})
        if "items" in source:
            source_name = f"{shown_kind} {value_text(source.get(name_field, ''))}" if name_field else shown_kind
            yield from _overlapping_paths(volume, source_name, [(item.get("path", ""), "") for item in source["items"]])
    if "projected" not in volume:
        return
    paths_with_sources: list[tuple[str, str]] = []
    for source in volume["projected"].get("sources") or ():
        if not source:
            yield f"volume {value_text(volume.get('name', ''))} (Projected) has no sources provided"
        paths_with_sources += _projected_paths(source)
    yield from _overlapping_paths(volume, "Projected", paths_with_sources)


_FILE_SOURCES = (
    ("configMap", "name", "ConfigMap"),
    ("secret", "secretName", "Secret"),
    ("downwardAPI", "", "DownwardAPI"),
)


def _projected_paths(source: JSON) -> list[tuple[str, str]]:
    for kind, name_field, shown_kind in _FILE_SOURCES:
        if "items" in source.get(kind, {}):
            source_name = f"{shown_kind} {value_text(source[kind].get('name', ''))}" if name_field else shown_kind
            return [(item.get("path", ""), source_name) for item in source[kind]["items"]]
    if "serviceAccountToken" in source:
        return [(source["serviceAccountToken"].get("path", ""), "ServiceAccountToken")]
    return []


def _overlapping_paths(volume: JSON, source_name: str, paths_with_sources: list[tuple[str, str]]) -> Iterator[str]:
    def text(place: str, source: str) -> str:
        return f"{value_text(place)} ({source})" if source else value_text(place)

    earlier_paths: list[tuple[str, str]] = []
    for path, source in paths_with_sources:
        place = path.rstrip("/")
        for other, origin in earlier_paths:
            if place and other and (f"{other}/".startswith(f"{place}/") or f"{place}/".startswith(f"{other}/")):
                message = f"{text(place, source)} with {text(other, origin)}"
                yield f"volume {value_text(volume.get('name', ''))} ({source_name}): overlapping paths: {message}"
        earlier_paths.append((place, source))


def _duplicate_entry_warnings(spec: JSON, path: str) -> Iterator[str]:
    for group, field in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        earlier_values: set[str] = set()
        for index, entry in enumerate(spec.get(group, ())):
            value = entry.get(field, "")
            if value in earlier_values:
                yield f"{path}.{group}[{index}].{field}: duplicate {field} {value_text(value)}"
            earlier_values.add(value)
    for index, entry in enumerate(spec.get("imagePullSecrets", ())):
        if not entry.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'


def _container_warnings(container: JSON, path: str) -> Iterator[str]:
    resources = container["resources"]
    for name in ("memory", "ephemeral-storage") if resources else ():
        for kind in ("limits", "requests"):
            text = resources.get(kind, {}).get(name)
            if text is not None and text.endswith("m") and quantities.parse_quantity(text).milli() % 1000:
                yield (
                    f"{path}.resources.{kind}[{name}]: fractional byte value {value_text(text)} is invalid, must be an "
                    "integer"
                )
    variables = container.get("env", ())
    if len(variables) > 1 and len({variable["name"] for variable in variables}) < len(variables):
        yield from _duplicate_env_warnings(variables, path)


def _duplicate_env_warnings(variables: list[JSON], path: str) -> Iterator[str]:
    earlier_names: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable["name"], variable.get("value", "")
        reference = f"$({name})"
        if name in earlier_names and ("valueFrom" in variable or value == reference or reference not in value):
            yield (
                f"{path}.env[{index}]: hides previous definition of {value_text(name)}, which may be dropped when using apply"
            )
        earlier_names.add(name)


def _port_warnings(spec: JSON, path: str) -> Iterator[str]:
    ports_with_paths = [
        (f"{port_path}.ports[{index}]", port)
        for port_path, container in _containers_with_paths(spec, path)
        for index, port in enumerate(container.get("ports", ()))
    ]
    if len(ports_with_paths) < 2:
        return
    earlier_ports: dict[tuple[int, str], list[tuple[str, JSON]]] = {}
    for port_path, port in ports_with_paths:
        others = earlier_ports.setdefault((port["containerPort"], port["protocol"]), [])
        for other, before in others:
            if message := _port_conflict(port, before):
                yield f"{port_path}: {message} port definition with {other}"
        others.append((port_path, port))
    names: dict[str, str] = {}
    for port_path, port in ports_with_paths:
        name = port.get("name")
        if name in names:
            first = names[name]
            yield (
                f"{port_path}: duplicate port name {value_text(name)} with {first}, services and probes that select ports by name "
                f"will use {first}"
            )
        elif name:
            names[name] = port_path


def _port_conflict(port: JSON, other: JSON) -> str:
    number, before = port.get("hostPort", 0), other.get("hostPort", 0)
    address, earlier = port.get("hostIP", ""), other.get("hostIP", "")
    if address == earlier and number == before:
        return "duplicate"
    if not number or not before:
        return "overlapping"
    return "dangerously ambiguous" if number == before and bool(address) != bool(earlier) else ""
