"""The environment of a container, and `$(VAR)` in its command. Pure: ConfigMaps and Secrets are arguments."""

import base64
import re
from collections.abc import Mapping

import msgspec

from gangline.api.core import ConfigMap, Secret
from gangline.api.quantity import Quantity
from gangline.base.errors import GanglineError
from gangline.node.pod_types import (
    ConfigKeyRef,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ResourceFieldRef,
    RunContainer,
    RunPod,
)
from gangline.node.ports import LOOPBACK

HOST_IP = LOOPBACK
"""The address of the node, and of pods that share its network."""
_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class ConfigMissing(GanglineError):
    """A ConfigMap, Secret, field or device that the container needs is not there (yet)."""


class Configuration(msgspec.Struct, frozen=True):
    """The objects that a pod refers to, by name. A missing name means that the object does not exist."""

    config_maps: Mapping[str, ConfigMap] = {}
    secrets: Mapping[str, Secret] = {}
    # The node's resources: the limits of a container that sets none.
    allocatable: Mapping[str, Quantity] = {}
    # The pod's address.
    address: str = HOST_IP


class ConfigRefs(msgspec.Struct, frozen=True):
    """Names of ConfigMaps and Secrets to read."""

    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()


def environment_refs(container: RunContainer) -> ConfigRefs:
    """The ConfigMaps and Secrets that the environment refers to."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for variable in container.env:
        source = variable.value_from or EnvVarSource()
        maps |= {source.config_map_key_ref.name} if source.config_map_key_ref else set()
        secrets |= {source.secret_key_ref.name} if source.secret_key_ref else set()
    for env_from in container.env_from:
        maps |= {env_from.config_map_ref.name} if env_from.config_map_ref else set()
        secrets |= {env_from.secret_ref.name} if env_from.secret_ref else set()
    return ConfigRefs(frozenset(maps), frozenset(secrets))


def container_env(container: RunContainer, pod: RunPod, configuration: Configuration) -> dict[str, str]:
    """The variables of a container's spec. Raises `ConfigMissing`."""
    env: dict[str, str] = {}
    for source in container.env_from:
        env.update(_env_from_values(source, configuration))
    for variable in container.env:
        value = _env_value(variable, container, pod, configuration, env)
        if value is not None:
            env[variable.name] = value
    return env


def expand(text: str, env: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced by its value and `$$` by a dollar. Unknown names stay as written."""

    def value(reference: re.Match[str]) -> str:
        if reference[1] == "$":
            return "$"
        return env.get(reference[2], reference[0])

    return _REFERENCE.sub(value, text)


def _env_from_values(source: EnvFromSource, configuration: Configuration) -> dict[str, str]:
    data: Mapping[str, str] = {}
    if source.config_map_ref is not None:
        config_map = configuration.config_maps.get(source.config_map_ref.name)
        if config_map is None and not source.config_map_ref.optional:
            raise ConfigMissing(f'configmap "{source.config_map_ref.name}" not found')
        data = config_map.data if config_map is not None else {}
    elif source.secret_ref is not None:
        secret = configuration.secrets.get(source.secret_ref.name)
        if secret is None and not source.secret_ref.optional:
            raise ConfigMissing(f'secret "{source.secret_ref.name}" not found')
        data = {name: _decoded_secret(value) for name, value in secret.data.items()} if secret is not None else {}
    return {source.prefix + name: value for name, value in data.items() if "=" not in name}


def _env_value(
    variable: EnvVar, container: RunContainer, pod: RunPod, configuration: Configuration, env: Mapping[str, str]
) -> str | None:
    source = variable.value_from
    if source is None:
        return expand(variable.value, env)
    if source.config_map_key_ref is not None:
        config_map = configuration.config_maps.get(source.config_map_key_ref.name)
        data = config_map.data if config_map else None
        return _key_value(source.config_map_key_ref, "configmap", "ConfigMap", data, pod)
    if source.secret_key_ref is not None:
        secret = configuration.secrets.get(source.secret_key_ref.name)
        text = _key_value(source.secret_key_ref, "secret", "Secret", secret.data if secret else None, pod)
        return None if text is None else _decoded_secret(text)
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, configuration.address)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, configuration.allocatable)
    return ""


def _key_value(
    reference: ConfigKeyRef, kind: str, spelled: str, data: Mapping[str, str] | None, pod: RunPod
) -> str | None:
    """The value of a key; None when it is missing and optional."""
    if data is not None and reference.key in data:
        return data[reference.key]
    if reference.optional:
        return None
    if data is None:
        raise ConfigMissing(f'{kind} "{reference.name}" not found')
    raise ConfigMissing(f"couldn't find key {reference.key} in {spelled} {pod.metadata.namespace}/{reference.name}")


def _decoded_secret(encoded: str) -> str:
    # Bytes that are not UTF-8 reach the process unchanged.
    return base64.b64decode(encoded).decode(errors="surrogateescape")


def field_value(pod: RunPod, path: str, address: str = HOST_IP) -> str:
    """A field of the pod by its downward API path. Raises `ConfigMissing` for an unsupported path."""
    meta = pod.metadata
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        values = meta.labels if subscript[1] == "labels" else meta.annotations
        return values.get(subscript[2], "")
    fields = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "metadata.labels": _downward_map(meta.labels),
        "metadata.annotations": _downward_map(meta.annotations),
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": HOST_IP,
        "status.podIP": address,
        "status.hostIPs": HOST_IP,
        "status.podIPs": address,
    }
    if path not in fields:
        raise ConfigMissing(f"unsupported fieldPath: {path}")
    return fields[path]


def resource_value(
    pod: RunPod, container: RunContainer, reference: ResourceFieldRef, allocatable: Mapping[str, Quantity]
) -> str:
    """A limit or request in units of the divisor, rounded up. A missing limit is the node's allocatable amount."""
    name = reference.container_name or container.name
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    target = next((candidate for candidate in containers if candidate.name == name), container)
    side, _, resource = reference.resource.partition(".")
    limits, requests = target.resources.limits, target.resources.requests
    text = (limits if side == "limits" else requests).get(resource)
    if text is not None:
        amount = Quantity.of(text)
    else:
        amount = allocatable.get(resource, Quantity(0)) if side == "limits" else Quantity(0)
    divisor = Quantity.of(reference.divisor)
    if not divisor:
        divisor = Quantity.of("1")
    return str(-(-amount.nanos // divisor.nanos))


def _downward_map(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in sorted(values.items()))
