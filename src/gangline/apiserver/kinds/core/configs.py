"""ConfigMaps, Secrets and ServiceAccounts."""

import base64
import json

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata
from gangline.apiserver.kinds.machinery.problems import each, forbidden, invalid, required, too_long
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.schema.problems import Problem

_MOST_BYTES = 1024 * 1024
_FIXED = "field is immutable when `immutable` is set"


def _immutable(obj: JSON, old: JSON, names: tuple[str, ...]) -> list[Problem]:
    if not old.get("immutable"):
        return []
    found = [] if obj.get("immutable") else [forbidden("immutable", _FIXED)]
    return found + [forbidden(name, _FIXED) for name in names if obj.get(name) != old.get(name)]


def _decoded_size(value: str | None) -> int:
    return len(value or "") * 3 // 4 - (value or "")[-2:].count("=")


class ConfigMapKind(Kind):
    struct = "core.v1.ConfigMap"

    def check(self, obj: JSON) -> list[Problem]:
        data, binary = obj.get("data", {}), obj.get("binaryData", {})
        found: list[Problem] = []
        for key in data:
            if said := formats.config_key(key):
                found += each(f"data[{key}]", key, said)
            if key in binary:
                found.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        for key in binary:
            found += each(f"binaryData[{key}]", key, formats.config_key(key))
        size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
        if size > _MOST_BYTES:
            found.append(too_long("[]", _MOST_BYTES))
        return found

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *self.validate_metadata_update(obj, old),
            *_immutable(obj, old, ("data", "binaryData")),
            *self.validate(obj),
        ]


class SecretKind(Kind):
    struct = "core.v1.Secret"

    def set_defaults(self, obj: JSON) -> None:
        obj.setdefault("type", "Opaque")
        texts = obj.pop("stringData", None)
        if texts:
            data = obj.setdefault("data", {})
            for key, text in texts.items():
                data[key] = base64.b64encode(text.encode()).decode()

    def check(self, obj: JSON) -> list[Problem]:
        data = obj.get("data", {})
        found: list[Problem] = []
        for key in data:
            found += each(f"data[{key}]", key, formats.config_key(key))
        if sum(map(_decoded_size, data.values())) > _MOST_BYTES:
            found.append(too_long("data", _MOST_BYTES))
        return found + _typed(obj["type"], data, obj["metadata"].get("annotations", {}))

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *self.validate_metadata_update(obj, old),
            *metadata.immutable(obj["type"], old["type"], "type"),
            *_immutable(obj, old, ("data",)),
            *self.validate(obj),
        ]


def _typed(kind: str, data: JSON, annotations: dict[str, str]) -> list[Problem]:
    match kind:
        case "kubernetes.io/service-account-token":
            key = "kubernetes.io/service-account.name"
            return [] if annotations.get(key) else [required(f"metadata.annotations[{key}]")]
        case "kubernetes.io/dockercfg":
            return _registry_logins(data, ".dockercfg")
        case "kubernetes.io/dockerconfigjson":
            return _registry_logins(data, ".dockerconfigjson")
        case "kubernetes.io/basic-auth":
            names = ("username", "password")
            return (
                [] if any(name in data for name in names) else [required(f"data[{name}]") for name in names]
            )
        case "kubernetes.io/ssh-auth":
            return [] if data.get("ssh-privatekey") else [required("data[ssh-privatekey]")]
        case "kubernetes.io/tls":
            return [required(f"data[{name}]") for name in ("tls.crt", "tls.key") if name not in data]
        case _:
            return []


def _registry_logins(data: JSON, key: str) -> list[Problem]:
    if key not in data:
        return [required(f"data[{key}]")]
    try:
        if isinstance(json.loads(base64.b64decode(data[key] or "")), dict):
            return []
        told = "json: cannot unmarshal into Go value of type map[string]interface {}"
    except ValueError as error:
        told = str(error)
    return [invalid(f"data[{key}]", "<secret contents redacted>", told)]


class ServiceAccountKind(Kind):
    struct = "core.v1.ServiceAccount"
    validated_whole = True

    def create(self, obj: JSON, now: str) -> None:
        _only_names(obj)

    def update(self, obj: JSON, old: JSON) -> None:
        _only_names(obj)


def _only_names(obj: JSON) -> None:
    """A service account refers to secrets of its own namespace, by name."""
    if "secrets" in obj:
        obj["secrets"] = [{"name": one["name"]} if one.get("name") else {} for one in obj["secrets"]]
