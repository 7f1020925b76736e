"""The init container with which a PyTorch worker waits until its master's name resolves.

An administrator may configure another one: a Go template (`{{.MasterAddr}}`) of a YAML list of containers, because such
files exist. Of the template language only the three variables and comments are supported.
"""

import re
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import InputError

# A dash inside the braces removes the white space on its side.
_ACTION = re.compile(r"(?:\s*\{\{-\s+|\{\{\s*)(.*?)(?:\s+-\}\}\s*|\s*\}\})", re.DOTALL)
_COMMENT = re.compile(r"/\*.*\*/", re.DOTALL)
# As Go's html/template escapes values in text. That is wrong in YAML, but existing files may rely on it.
_ESCAPES = str.maketrans(
    {'"': "&#34;", "&": "&amp;", "'": "&#39;", "+": "&#43;", "<": "&lt;", ">": "&gt;", "\0": "\ufffd"}
)


class InitContainers:
    """The init containers that wait for a master. The constructor raises `InputError` for an invalid template."""

    def __init__(self, image: str, tries: int, template: str | None = None) -> None:
        self._image, self._tries, self._template = image, tries, template
        # Fails here, and not at the first pod.
        self.waiting_for("master")

    def waiting_for(self, master: str) -> tuple[JSON, ...]:
        """The containers that wait until the name of the master resolves; none without an image."""
        if not self._image:
            return ()
        if self._template is None:
            return (_default_container(master, self._image, self._tries),)
        values = {".MasterAddr": master, ".InitContainerImage": self._image, ".MaxTries": str(self._tries)}
        return _parsed_containers(rendered_template(self._template, values))


def rendered_template(template: str, values: dict[str, str]) -> str:
    """The template with its variables filled in. Raises `InputError` for any other action."""

    def value(match: re.Match[str]) -> str:
        action = match[1]
        if _COMMENT.fullmatch(action):
            return ""
        if action not in values:
            variables = ", ".join(f"{{{{{name}}}}}" for name in values)
            raise InputError(f"init container template: {{{{{action}}}}} is not known; write one of {variables}")
        return values[action].translate(_ESCAPES)

    return _ACTION.sub(value, template)


def _parsed_containers(text: str) -> tuple[JSON, ...]:
    import yaml  # slow to import, and hardly an operator has a template

    try:
        return tuple(msgspec.yaml.decode(text, type=list[dict[str, Any]]))
    except (msgspec.MsgspecError, yaml.YAMLError) as error:
        raise InputError(f"init container template: not a YAML list of containers: {error}") from error


def _default_container(master: str, image: str, tries: int) -> JSON:
    script = (
        f"err=1;for i in $(seq {tries}); do if nslookup {master}; then err=0 && break; fi;"
        "echo waiting for master; sleep 2; done; exit $err"
    )
    return {
        "name": "init-pytorch",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
        "command": ["sh", "-c", script],
    }
