"""Makes objects of a tree of nodes: what Helm makes of the templates that are written from the same tree."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec
import yaml

from gangline import __version__
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.install.nodes import (
    Above,
    AppVersion,
    Both,
    Condition,
    Contains,
    Either,
    Equal,
    Extended,
    FileField,
    FileText,
    ForEach,
    Item,
    Joined,
    Leaf,
    Matches,
    Named,
    Node,
    Not,
    Note,
    NumberText,
    OneOf,
    ReleaseField,
    Required,
    Shortened,
    Spread,
    Text,
    Value,
    When,
)
from gangline.install.values import InstallValues, Release


class Evaluation:
    """Evaluates nodes for the values of one release.

    Args:
        notes: keep the comments, for a writer that prints them.
    """

    def __init__(self, values: InstallValues, release: Release, *, notes: bool = False) -> None:
        self._values: JSON = msgspec.to_builtins(values)
        self._release = release
        self._notes = notes

    def check(self, requirements: Iterable[Required]) -> None:
        """Raises `InputError` with the message of the first requirement that the values do not meet."""
        for requirement in requirements:
            if not self.holds(requirement.condition):
                raise InputError(requirement.message)

    def objects(self, nodes: Iterable[Node]) -> list[JSON]:
        """The objects that the nodes describe, in their order."""
        return list(self._items(nodes, None))

    def value(self, node: Node, item: str | None = None) -> Any:
        """What one node stands for. `When`, `ForEach` and `Spread` are for the lists and mappings around them."""
        match node:
            case str() | bool() | int():
                return node
            case Mapping():
                return self._mapping(node, item)
            case Either(condition, then, otherwise):
                return self.value(then if self.holds(condition, item) else otherwise, item)
            case Extended(own, extra):
                return self._extended(own, extra, item)
            case Named(_, inner):
                return self.value(inner, item)
            case Note(_, inner) if not self._notes:
                return self.value(inner, item)
            case Note(text, inner):
                return Note(text, self.value(inner, item))
            case When() | ForEach() | Spread():
                raise TypeError(f"{node} stands in no list and no mapping")
            case Sequence():
                return list(self._items(node, item))
            case _:
                return self._leaf(node, item)

    def _leaf(self, node: Leaf, item: str | None) -> Any:
        match node:
            case Value(path):
                return self._at(path)
            case ReleaseField(name):
                return getattr(self._release, name)
            case AppVersion():
                return __version__
            case Item():
                return item
            case Text(parts):
                return "".join(str(self.value(part, item)) for part in parts)
            case Joined(items):
                return ",".join(self._at(items.path))
            case NumberText(number):
                return str(self._at(number.path))
            case Shortened(text, length):
                return self.value(text, item)[:length].removesuffix("-")
            case FileText(name):
                return monitoring_file(name)
            case FileField(name, key):
                return yaml.safe_load(monitoring_file(name))[key]

    def holds(self, condition: Condition, item: str | None = None) -> bool:
        """Whether the values meet a condition."""
        match condition:
            case Value(path):
                return bool(self._at(path))
            case Not(inner):
                return not self.holds(inner, item)
            case Both(first, second):
                return self.holds(first, item) and self.holds(second, item)
            case OneOf(first, second):
                return self.holds(first, item) or self.holds(second, item)
            case Equal(node, text):
                return bool(self.value(node, item) == text)
            case Contains(text, part):
                return self.value(part, item) in self.value(text, item)
            case Matches(node, pattern):
                return re.search(pattern, self.value(node, item)) is not None
            case Above(number, limit):
                return bool(self._at(number.path) > limit)

    def _at(self, path: str) -> Any:
        value: Any = self._values
        for key in path.split("."):
            value = value[key]
        return value

    def _mapping(self, node: Mapping[str, Node], item: str | None) -> JSON:
        return dict(self._entries(node, item))

    def _entries(self, node: Mapping[str, Node], item: str | None) -> Iterator[tuple[str, Any]]:
        for key, inner in node.items():
            while isinstance(inner, When) and self.holds(inner.condition, item):
                inner = inner.node
            if not isinstance(inner, When):
                yield key, self.value(inner, item)

    def _items(self, nodes: Iterable[Node], item: str | None) -> Iterator[Any]:
        for node in nodes:
            match node:
                case When(condition, inner):
                    if self.holds(condition, item):
                        yield from self._items((inner,), item)
                case ForEach(items, inners):
                    for text in self._at(items.path):
                        yield from self._items(inners, text)
                case Spread(items):
                    yield from self._at(items.path)
                case _:
                    yield self.value(node, item)

    def _extended(self, own: Iterable[Node], extra: Iterable[Value], item: str | None) -> JSON:
        result: JSON = {}
        reserved: set[str] = set()
        for mapping in own:
            result |= self.value(mapping, item)
            reserved |= own_keys(mapping)
        for value in extra:
            for key, text in self._at(value.path).items():
                if key not in reserved:
                    result.setdefault(key, text)
        return result


def own_keys(node: Node) -> set[str]:
    """The keys that a mapping may have, whatever the values are."""
    while isinstance(node, Named):
        node = node.node
    assert isinstance(node, Mapping)
    return set(node)


@cache
def monitoring_file(name: str) -> str:
    """The text of a file in `gangline/install/monitoring`."""
    return resources.files("gangline.install").joinpath("monitoring", name).read_text()
