"""`--set spec.tfReplicaSpecs.Worker.replicas=5`: override values of a job on the command line. Pure."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from gangline.api.accelerators import resource_name, with_resource_names
from gangline.api.codec.codec import documents
from gangline.api.codec.errors import value_text
from gangline.api.meta import JSON
from gangline.base.errors import InputError

ALLOWED_ROOTS = ("metadata", "spec")
RESOURCE_FIELDS = ("limits", "requests")
_UNESCAPED_DOT = re.compile(r"(?<!\\)\.")


def with_overrides(body: JSON, settings: Sequence[str]) -> JSON:
    r"""A copy of the job with every setting applied, in order; missing maps on a path are created. Raises `InputError`.

    A setting is `path=value`. The path has dots, a number for an item of a list, `\.` for a dot in a name; the value is
    YAML, so `5` is a number, `"5"` is text and `[a, b]` a list.
    """
    if not settings:
        return body
    changed: JSON = copy.deepcopy(body)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise InputError(f"--set {setting}: expected path=value; write: --set spec.runPolicy.suspend=false")
        words = _with_resource_name([word.replace("\\.", ".") for word in _UNESCAPED_DOT.split(path)])
        if words[0] not in ALLOWED_ROOTS or len(words) < 2:
            raise InputError(f"--set {setting}: a path begins with spec. or metadata.; write: --set spec.{path}=...")
        value = _parse_value(setting, text)
        if words[-1] in RESOURCE_FIELDS and isinstance(value, dict):
            value = with_resource_names(value)
        _set_value(changed, words, value, setting)
    return changed


def _with_resource_name(words: list[str]) -> list[str]:
    """The path with the full name of a resource in its last word: `limits.gpu` is `limits.nvidia.com/gpu`."""
    return [*words[:-1], resource_name(words[-1])] if words[-2:-1] and words[-2] in RESOURCE_FIELDS else words


def _parse_value(setting: str, text: str) -> Any:
    try:
        return documents(f"value: {text}")[0].body["value"]
    except InputError as error:
        raise InputError(f"--set {setting}: the value is not YAML; quote it: '\"{text}\"'") from error


def _set_value(root: Any, words: Sequence[str], value: Any, setting: str) -> None:
    node = root
    for depth, word in enumerate(words):
        last = depth == len(words) - 1
        path = ".".join(words[:depth])
        if isinstance(node, list):
            index = _list_index(node, word, path, setting)
            node[index] = value if last else node[index]
            node = node[index]
        elif isinstance(node, dict):
            if node.get(word) is None:
                node[word] = {}
            node[word] = value if last else node[word]
            node = node[word]
        else:
            raise InputError(f"--set {setting}: {path} is {value_text(node)}, which has no fields")


def _list_index(items: list[Any], word: str, path: str, setting: str) -> int:
    if not word.isdigit() or int(word) >= len(items):
        indices = f"0 to {len(items) - 1}" if items else "none"
        raise InputError(f"--set {setting}: {path} is a list; its items are {indices}, not {word}")
    return int(word)
