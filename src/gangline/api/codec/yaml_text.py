"""JSON values as YAML text that Kubernetes reads as the same values."""

import re
from typing import Any

import yaml

# The C dumper, if PyYAML was built with it, is ten times faster. The subclass also quotes strings that Kubernetes,
# unlike PyYAML, reads as another type: `1e9`, `y`, `0o17`.
_YamlDumper: Any = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})
for _tag, _pattern, _first in (
    ("float", r"[+-]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][+-]?[0-9]+)?", "+-.0123456789"),
    ("int", r"[+-]?0[oObB][0-7]+", "+-0"),
    ("bool", r"[yYnN]", "yYnN"),
):
    _YamlDumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def yaml_text(value: Any) -> str:
    """A value in block style, keys sorted."""
    text: str = yaml.dump(value, Dumper=_YamlDumper, default_flow_style=False, allow_unicode=True)
    return text
