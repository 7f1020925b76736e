"""`--set spec.tfReplicaSpecs.Worker.replicas=5`: values of a job, changed on the command line. Pure."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from gangline.api.codec.codec import documents
from gangline.api.codec.errors import value_text
from gangline.api.meta import JSON
from gangline.base.errors import InputError

ALLOWED_ROOTS = ("metadata", "spec")
_UNESCAPED_DOT = re.compile(r"(?<!\\)\.")


def with_overrides(body: JSON, settings: Sequence[str]) -> JSON:
    r"""The job with every setting made, in order; what is missing on the way is made. Raises `InputError`.

    A setting is `path=value`: the path with dots, a number for an item of a list, `\.` for a dot in a name; the
    value as YAML has it, so `5` is a number, `"5"` is text and `[a, b]` a list.
    """
    if not settings:
        return body
    changed: JSON = copy.deepcopy(body)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise InputError(f"--set {setting}: expected path=value; write: --set spec.runPolicy.suspend=false")
        words = [word.replace("\\.", ".") for word in _UNESCAPED_DOT.split(path)]
        if words[0] not in ALLOWED_ROOTS or len(words) < 2:
            raise InputError(f"--set {setting}: a path begins with spec. or metadata.; write: --set spec.{path}=...")
        _set_value(changed, words, _parse_value(setting, text), setting)
    return changed


def _parse_value(setting: str, text: str) -> Any:
    try:
        return documents(f"value: {text}")[0].body["value"]
    except InputError as error:
        raise InputError(f"--set {setting}: the value is not YAML; quote it: '\"{text}\"'") from error


def _set_value(root: Any, words: Sequence[str], value: Any, setting: str) -> None:
    here = root
    for depth, word in enumerate(words):
        last = depth == len(words) - 1
        where = ".".join(words[:depth])
        if isinstance(here, list):
            at = _list_index(here, word, where, setting)
            here[at] = value if last else here[at]
            here = here[at]
        elif isinstance(here, dict):
            if here.get(word) is None:
                here[word] = {}
            here[word] = value if last else here[word]
            here = here[word]
        else:
            raise InputError(f"--set {setting}: {where} is {value_text(here)}, which has no parts")


def _list_index(here: list[Any], word: str, where: str, setting: str) -> int:
    if not word.isdigit() or int(word) >= len(here):
        there = f"0 to {len(here) - 1}" if here else "none"
        raise InputError(f"--set {setting}: {where} is a list; its items are {there}, not {word}")
    return int(word)
