"""A container's environment, and `$(VAR)` in its command. Pure: ConfigMaps and Secrets come as values."""

import base64
import re
from collections.abc import Mapping

import msgspec

from gangline.api.core import ConfigMap, Secret
from gangline.api.quantity import Quantity
from gangline.base.errors import GanglineError
from gangline.node.types import (
    ConfigKeyRef,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ResourceFieldRef,
    RunContainer,
    RunPod,
)

HOST_IP = "127.0.0.1"
_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class ConfigMissing(GanglineError):
    """Something that the container needs is not there (yet)."""


class Configuration(msgspec.Struct, frozen=True):
    """What a pod refers to by name; absent names do not exist."""

    config_maps: Mapping[str, ConfigMap] = {}
    secrets: Mapping[str, Secret] = {}
    # What limits are when a container sets none.
    allocatable: Mapping[str, Quantity] = {}
    # Of the pod.
    address: str = HOST_IP


class ConfigRefs(msgspec.Struct, frozen=True):
    """Names that must be read before a container can start."""

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
    for each in container.env_from:
        maps |= {each.config_map_ref.name} if each.config_map_ref else set()
        secrets |= {each.secret_ref.name} if each.secret_ref else set()
    return ConfigRefs(frozenset(maps), frozenset(secrets))


def container_env(container: RunContainer, pod: RunPod, given: Configuration) -> dict[str, str]:
    """The variables that the container asks for. Raises `ConfigMissing`."""
    env: dict[str, str] = {}
    for each in container.env_from:
        env.update(_env_from_values(each, given))
    for variable in container.env:
        value = _env_value(variable, container, pod, given, env)
        if value is not None:
            env[variable.name] = value
    return env


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value, `$$` a dollar; what is not known stays as it is."""

    def value(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return env.get(found[2], found[0])

    return _REFERENCE.sub(value, text)


def _env_from_values(source: EnvFromSource, given: Configuration) -> dict[str, str]:
    data: Mapping[str, str] = {}
    if source.config_map_ref is not None:
        found = given.config_maps.get(source.config_map_ref.name)
        if found is None and not source.config_map_ref.optional:
            raise ConfigMissing(f'configmap "{source.config_map_ref.name}" not found')
        data = found.data if found is not None else {}
    elif source.secret_ref is not None:
        secret = given.secrets.get(source.secret_ref.name)
        if secret is None and not source.secret_ref.optional:
            raise ConfigMissing(f'secret "{source.secret_ref.name}" not found')
        data = {name: _decoded_secret(value) for name, value in secret.data.items()} if secret is not None else {}
    return {source.prefix + name: value for name, value in data.items() if "=" not in name}


def _env_value(
    variable: EnvVar, container: RunContainer, pod: RunPod, given: Configuration, env: Mapping[str, str]
) -> str | None:
    source = variable.value_from
    if source is None:
        return expand(variable.value, env)
    if source.config_map_key_ref is not None:
        found = given.config_maps.get(source.config_map_key_ref.name)
        return _key_value(source.config_map_key_ref, "configmap", "ConfigMap", found.data if found else None, pod)
    if source.secret_key_ref is not None:
        secret = given.secrets.get(source.secret_key_ref.name)
        text = _key_value(source.secret_key_ref, "secret", "Secret", secret.data if secret else None, pod)
        return None if text is None else _decoded_secret(text)
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, given.address)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, given.allocatable)
    return ""


def _key_value(
    reference: ConfigKeyRef, kind: str, spelled: str, data: Mapping[str, str] | None, pod: RunPod
) -> str | None:
    """The value, None when it may be left out."""
    if data is not None and reference.key in data:
        return data[reference.key]
    if reference.optional:
        return None
    if data is None:
        raise ConfigMissing(f'{kind} "{reference.name}" not found')
    place = f"{pod.metadata.namespace}/{reference.name}"
    raise ConfigMissing(f"couldn't find key {reference.key} in {spelled} {place}")


def _decoded_secret(encoded: str) -> str:
    # Bytes that are no text survive the way into the process and out of it.
    return base64.b64decode(encoded).decode(errors="surrogateescape")


def field_value(pod: RunPod, path: str, address: str = HOST_IP) -> str:
    """A field of the pod, as the downward API spells it. Raises `ConfigMissing` for one it does not have."""
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
    """A limit or request in units of the divisor, rounded up. Without a limit: what the node has."""
    named = reference.container_name or container.name
    everyone = (*pod.spec.containers, *pod.spec.init_containers)
    target = next((each for each in everyone if each.name == named), container)
    side, _, resource = reference.resource.partition(".")
    limits, requests = target.resources.limits, target.resources.requests
    found = (limits if side == "limits" else requests).get(resource)
    if found is not None:
        amount = Quantity.of(found)
    else:
        amount = allocatable.get(resource, Quantity(0)) if side == "limits" else Quantity(0)
    divisor = Quantity.of(reference.divisor)
    if not divisor:
        divisor = Quantity.of("1")
    return str(-(-amount.nanos // divisor.nanos))


def _downward_map(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in sorted(values.items()))
