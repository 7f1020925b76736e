"""The differences of two JSON values."""

from collections.abc import Iterator
from typing import Any


def changed_values(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The path, the old and the new value of everything that differs. None stands for a field that is absent."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from changed_values(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_values(before, after, f"{path}[{index}]")
    elif old != new:
        yield path, old, new
