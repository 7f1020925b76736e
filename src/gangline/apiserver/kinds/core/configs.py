"""ConfigMaps, Secrets and ServiceAccounts."""

import base64
import json

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.go_text import json_type_name
from gangline.schema.json_syntax import syntax_error
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, too_long

MOUNTABLE_SECRETS_ANNOTATION = "kubernetes.io/enforce-mountable-secrets"
_MOUNTABLE_SECRETS_WARNING = (
    f"metadata.annotations[{MOUNTABLE_SECRETS_ANNOTATION}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)
_MAX_DATA_BYTES = 1024 * 1024
_IMMUTABLE_SET = "field is immutable when `immutable` is set"


def _validate_immutable_data(obj: JSON, old: JSON, names: tuple[str, ...]) -> list[FieldProblem]:
    if not old.get("immutable"):
        return []
    problems = [] if obj.get("immutable") else [forbidden("immutable", _IMMUTABLE_SET)]
    return problems + [forbidden(name, _IMMUTABLE_SET) for name in names if obj.get(name) != old.get(name)]


def _decoded_size(value: str | None) -> int:
    return len(value or "") * 3 // 4 - (value or "")[-2:].count("=")


class ConfigMapStrategy(Strategy):
    struct = "core.v1.ConfigMap"

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        data, binary = obj.get("data", {}), obj.get("binaryData", {})
        problems: list[FieldProblem] = []
        for key in data:
            if errors := formats.config_key_errors(key):
                problems += invalid_each(f"data[{key}]", key, errors)
            if key in binary:
                problems.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        for key in binary:
            problems += invalid_each(f"binaryData[{key}]", key, formats.config_key_errors(key))
        size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
        if size > _MAX_DATA_BYTES:
            problems.append(too_long("[]", _MAX_DATA_BYTES))
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.metadata.validate_update(obj, old),
            *_validate_immutable_data(obj, old, ("data", "binaryData")),
            *self.validate(obj),
        ]


class SecretStrategy(Strategy):
    struct = "core.v1.Secret"

    def set_defaults(self, obj: JSON) -> None:
        obj.setdefault("type", "Opaque")
        texts = obj.pop("stringData", None)
        if texts:
            data = obj.setdefault("data", {})
            for key, text in texts.items():
                data[key] = base64.b64encode(text.encode()).decode()

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        data = obj.get("data", {})
        problems: list[FieldProblem] = []
        for key in data:
            problems += invalid_each(f"data[{key}]", key, formats.config_key_errors(key))
        if sum(map(_decoded_size, data.values())) > _MAX_DATA_BYTES:
            problems.append(too_long("data", _MAX_DATA_BYTES))
        return problems + _validate_secret_type(obj["type"], data, obj["metadata"].get("annotations", {}))

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.metadata.validate_update(obj, old),
            *metadata.validate_immutable(obj["type"], old["type"], "type"),
            *_validate_immutable_data(obj, old, ("data",)),
            *self.validate(obj),
        ]


def _validate_secret_type(kind: str, data: JSON, annotations: dict[str, str]) -> list[FieldProblem]:
    match kind:
        case "kubernetes.io/service-account-token":
            key = "kubernetes.io/service-account.name"
            return [] if annotations.get(key) else [required(f"metadata.annotations[{key}]")]
        case "kubernetes.io/dockercfg":
            return _validate_docker_config(data, ".dockercfg")
        case "kubernetes.io/dockerconfigjson":
            return _validate_docker_config(data, ".dockerconfigjson")
        case "kubernetes.io/basic-auth":
            names = ("username", "password")
            return [] if any(name in data for name in names) else [required(f"data[{name}]") for name in names]
        case "kubernetes.io/ssh-auth":
            return [] if data.get("ssh-privatekey") else [required("data[ssh-privatekey]")]
        case "kubernetes.io/tls":
            return [required(f"data[{name}]") for name in ("tls.crt", "tls.key") if name not in data]
        case _:
            return []


def _validate_docker_config(data: JSON, key: str) -> list[FieldProblem]:
    if key not in data:
        return [required(f"data[{key}]")]
    raw = base64.b64decode(data[key] or "")
    detail = syntax_error(raw)
    if not detail:
        value = json.loads(raw)
        if value is None or isinstance(value, dict):
            return []
        detail = f"json: cannot unmarshal {json_type_name(value)} into Go value of type map[string]interface {{}}"
    return [invalid(f"data[{key}]", "<secret contents redacted>", detail)]


class ServiceAccountStrategy(Strategy):
    struct = "core.v1.ServiceAccount"
    revalidates_on_update = True

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        _strip_secret_refs(obj)

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        _strip_secret_refs(obj)

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        had_annotation = old is not None and _limits_mountable_secrets(old)
        return [_MOUNTABLE_SECRETS_WARNING] if _limits_mountable_secrets(obj) and not had_annotation else []


def _limits_mountable_secrets(account: JSON) -> bool:
    return MOUNTABLE_SECRETS_ANNOTATION in (account["metadata"].get("annotations") or {})


def _strip_secret_refs(obj: JSON) -> None:
    """Reduce references to secrets to the name: a service account refers to secrets of its own namespace."""
    if "secrets" in obj:
        obj["secrets"] = [{"name": one["name"]} if one.get("name") else {} for one in obj["secrets"]]
