"""Takes values that look like secrets out of what is recorded, and lists what was taken out. Pure.

Secrets are named by objects, not contained in them: their values are never read. What remains are values that somebody
wrote where they do not belong: in a variable, a command, a ConfigMap, a log. They are recognized by the scan that also
guards folders which are shipped to a cluster, and by the names of variables.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangline.api.meta import JSON
from gangline.replay.bundle import CodeFile, LeftOut
from gangline.sdk.ship.credentials import (
    MASK,
    SCANNED_BYTES,
    credential_form,
    credential_name,
    masked_tokens,
    secret_lines,
)

SECRET_VALUE = "its value looks like a secret"  # noqa: S105 - a sentence
DROPPED_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)
MIN_SECRET_LENGTH = 6
"""Shorter values are not looked for in other texts: they are part of many words."""
_MASK = MASK.decode()
_SECRET_NAME = re.compile(
    r"passw(?:or)?d|passphrase|(?:^|[_.-])pwd(?:$|[_.-])|token(?!i[sz]|s)|secret|credential|api_?key|access_?key"
    r"|private_?key|auth_?key|dsn$|connection_?string|webhook",
    re.IGNORECASE,
)
# A value that begins as an expression of a program is code, and no secret.
_ASSIGNMENT = re.compile(
    r"""(?i)((?:[A-Z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|api_?key|access_?key|private_?key|token(?!i[sz]|s))"""
    r"""[A-Z0-9_-]*["']?\s*[=:]\s*["']?)|\bbearer\s+)(?!os\.|self\.|args\.|cfg\.|config\.|None\b|True\b|False\b)"""
    r"""([^\s"',;&()\[\]{}<>]{4,})(?![\w(\[.])"""
)
_URL_LOGIN = re.compile(r"(?<=://)([^/\s:@]+):([^/\s@]+)(?=@)")
_WHOLE_TEXTS = ("a Secret of Kubernetes", "a private key")


class Scrubber:
    """Takes secrets out of the parts of one recording. `left_out` lists what it took, without the values.

    First all parts are given to `add_values`, so that a value which is known to be a secret in one part is recognized in
    all of them.
    """

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._left_out: dict[tuple[str, str], LeftOut] = {}

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return tuple(self._left_out.values())

    def note(self, what: str, why: str) -> None:
        """List something that is not in the bundle."""
        self._left_out.setdefault((what, why), LeftOut(what, why))

    def add_values(self, value: Any) -> None:
        """Remember the values of variables in an object that are secrets by their names or their form."""
        for variable in _variables(value):
            text = variable.get("value")
            if (
                isinstance(text, str)
                and _is_secret(str(variable.get("name", "")), text)
                and len(text) >= MIN_SECRET_LENGTH
            ):
                self._values.add(text)

    def object(self, body: JSON, where: str) -> JSON:
        """An object without secrets."""
        metadata = dict(body.get("metadata") or {})
        metadata.pop("managedFields", None)
        annotations = {
            name: text for name, text in (metadata.get("annotations") or {}).items() if name not in DROPPED_ANNOTATIONS
        }
        if "annotations" in metadata:
            metadata["annotations"] = annotations
        cleaned: JSON = self._value({**body, **({"metadata": metadata} if metadata else {})}, where)
        return cleaned

    def config_map(self, body: JSON) -> JSON:
        """A ConfigMap without the values that are secrets; the keys stay."""
        name = body["metadata"]["name"]
        rest = {field: value for field, value in body.items() if field not in ("data", "binaryData")}
        kept = self.object(rest, f"ConfigMap {name}")
        kept["data"] = {
            key: self._entry(f"ConfigMap {name}, key {key}", key, text.encode()).decode(errors="replace")
            for key, text in (body.get("data") or {}).items()
        }
        kept["binaryData"] = {
            key: base64.b64encode(self._entry(f"ConfigMap {name}, key {key}", key, _decoded(text))).decode()
            for key, text in (body.get("binaryData") or {}).items()
        }
        return kept

    def code(self, files: Mapping[str, CodeFile]) -> dict[str, CodeFile]:
        """The files of a folder without those that are credentials; tokens in others are masked."""
        kept: dict[str, CodeFile] = {}
        for path, file in files.items():
            what = credential_name(path) or _whole_secret(path, file.content)
            if what:
                self.note(f"file {path}", f"it looks like {what}")
                continue
            kept[path] = CodeFile(self._entry(f"file {path}", path, file.content, by_name=False), file.mode)
        return kept

    def lines(self, lines: Sequence[str], where: str) -> tuple[str, ...]:
        """Lines of a log without secrets."""
        whole = _whole_secret("", "\n".join(lines).encode(errors="replace"))
        if whole:
            self.note(where, f"it contains {whole}")
            return ()
        return tuple(self.text(line, where) for line in lines)

    def text(self, text: str, where: str) -> str:
        """A text without secrets."""
        cleaned, found = masked_tokens(text.encode(errors="surrogatepass"))
        result = cleaned.decode(errors="replace") if found else text
        result = _ASSIGNMENT.sub(lambda match: match[1] + _MASK if _MASK not in match[2] else match[0], result)
        result = _URL_LOGIN.sub(_MASK, result)
        for value in sorted(self._values, key=len, reverse=True):
            result = result.replace(value, _MASK)
        if result != text:
            self.note(f"parts of {where}", "they look like secrets")
        return result

    def _entry(self, where: str, name: str, content: bytes, *, by_name: bool = True) -> bytes:
        """The content of a file or key; empty if it is a credential."""
        what = (credential_name(name) if by_name else "") or _whole_secret(name, content)
        if not what and by_name and _SECRET_NAME.search(name) and len(content) <= 4096:
            what = "a secret by its name"
        if what:
            self.note(where, f"it looks like {what}")
            return b""
        masked, found = masked_tokens(content) if len(content) <= SCANNED_BYTES else (content, ())
        for value in self._values:
            if value.encode() in masked:
                masked, found = masked.replace(value.encode(), MASK), (*found, "a secret")
        if found:
            self.note(f"parts of {where}", f"they look like {', '.join(found)}")
        return masked

    def _value(self, value: Any, where: str) -> Any:
        if isinstance(value, str):
            return self.text(value, where)
        if isinstance(value, list | tuple):
            return [self._value(item, where) for item in value]
        if not isinstance(value, dict):
            return value
        if _is_variable(value) and _is_secret(value["name"], value["value"]):
            self.note(f"variable {value['name']} of {where}", SECRET_VALUE)
            return {"name": value["name"], "value": ""}
        return {key: self._value(item, where) for key, item in value.items()}


def _is_variable(value: JSON) -> bool:
    return set(value) == {"name", "value"} and all(isinstance(one, str) for one in value.values())


def _is_secret(name: str, text: str) -> bool:
    if not text or text.startswith("$("):
        return False
    named = bool(_SECRET_NAME.search(name)) and not re.fullmatch(r"\d{1,5}|true|false|/[\w./-]+", text, re.IGNORECASE)
    data = f"{name}={text}".encode(errors="replace")
    return named or bool(masked_tokens(data)[1]) or bool(_whole_secret(name, text.encode(errors="replace")))


def _whole_secret(path: str, content: bytes) -> str:
    """What a text is or contains that cannot be masked: then all of it is left out."""
    head = content[:SCANNED_BYTES]
    what = credential_form(path, head)
    return what or next((one.what for one in secret_lines(path, head) if one.what in _WHOLE_TEXTS), "")


def _variables(value: Any) -> Iterable[JSON]:
    """All entries of lists called `env` in an object."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "env" and isinstance(item, list):
                yield from (one for one in item if isinstance(one, dict))
            else:
                yield from _variables(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _variables(item)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def secret_references(pod_spec: JSON) -> dict[str, set[str]]:
    """The Secrets that a pod spec names, each with the keys it needs."""
    names: dict[str, set[str]] = {}

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            reference = value.get("secretKeyRef")
            if isinstance(reference, dict) and reference.get("name"):
                names.setdefault(str(reference["name"]), set()).add(str(reference.get("key", "")))
            for field, name_field in (("secretRef", "name"), ("secret", "secretName")):
                found = value.get(field)
                if isinstance(found, dict):
                    name = found.get(name_field) or found.get("name")
                    if name:
                        keys = names.setdefault(str(name), set())
                        keys |= {
                            str(item.get("key", "")) for item in found.get("items") or () if isinstance(item, dict)
                        }
            for item in value.values():
                walk(item)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)

    walk(pod_spec)
    return names


def config_map_names(pod_spec: JSON) -> set[str]:
    """The ConfigMaps that a pod spec mounts or reads variables from."""
    names: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for field in ("configMap", "configMapRef", "configMapKeyRef"):
                found = value.get(field)
                if isinstance(found, dict) and found.get("name"):
                    names.add(str(found["name"]))
            for item in value.values():
                walk(item)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)

    walk(pod_spec)
    return names
