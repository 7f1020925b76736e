"""Structs as kube-apiserver's messages print them: fields in the order of their declaration in Go.

Some are printed with their names on the wire, some with the names of the server's internal structs, where an unset
field is null.
"""

import re
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.schema.go_text import json_text

_FIELD_PATTERN = re.compile(r"(\w+)(?:\(([^()]*)\))?")
OWNER_REFERENCE_FIELDS = "apiVersion kind name uid controller blockOwnerDeletion"
LABEL_SELECTOR_FIELDS = "matchLabels matchExpressions"
RESOURCE_CLAIM_FIELDS = "Name ResourceClaimName ResourceClaimTemplateName"
SECCOMP_PROFILE_FIELDS = "Type LocalhostProfile"
SECURITY_CONTEXT_FIELDS = (
    "Capabilities(Add Drop) Privileged SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot "
    "ReadOnlyRootFilesystem AllowPrivilegeEscalation ProcMount SeccompProfile(Type LocalhostProfile) "
    "AppArmorProfile(Type LocalhostProfile)"
)
SUCCESS_RULE_FIELDS = "SucceededIndexes SucceededCount"


def json_struct(value: JSON | None, names: str) -> Any:
    """A struct with its names on the wire. Absent fields stay absent; None stays None."""
    if value is None:
        return None
    parts = (f'"{name}":{json_text(value[name])}' for name in names.split() if name in value)
    return msgspec.Raw(f"{{{','.join(parts)}}}".encode())


def go_struct(value: JSON, names: str) -> Any:
    """A struct with the names of the server's internal struct, all fields printed.

    `names` lists the fields, separated by spaces; those of a struct inside follow its name in parentheses.
    """
    parts: list[str] = []
    for name, inner in _FIELD_PATTERN.findall(names):
        field = value.get(_wire_name(name))
        text = go_struct(field, inner) if inner and field is not None else field
        encoded = bytes(text).decode() if isinstance(text, msgspec.Raw) else json_text(text)
        parts.append(f'"{name}":{encoded}')
    return msgspec.Raw(f"{{{','.join(parts)}}}".encode())


def _wire_name(name: str) -> str:
    capitals = re.match("[A-Z]+", name)
    length = len(capitals[0]) if capitals else 0
    if length == len(name):
        return name.lower()
    if name.startswith("SEL"):
        return f"se{name[2:]}"
    return name[: max(1, length - 1)].lower() + name[max(1, length - 1) :]
