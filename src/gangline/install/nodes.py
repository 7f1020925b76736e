"""The words in which an installation is described once, for two readers.

A tree of these nodes and of plain dicts, lists, strings, numbers and booleans describes an object that depends on values.
`gangline.install.evaluate` makes objects of it; `gangline.install.template_text` writes it as a Helm template. Nodes have only what
both can do in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Value:
    """The value at a path, as in `image.repository`."""

    path: str


@dataclass(frozen=True)
class ReleaseField:
    """The name or the namespace of the release, or the program that installs it."""

    name: Literal["name", "namespace", "service"]


@dataclass(frozen=True)
class AppVersion:
    """The version of gangline."""


@dataclass(frozen=True)
class Item:
    """The current item of the innermost `ForEach`."""


@dataclass(frozen=True)
class Text:
    """Strings, one after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Joined:
    """The strings of a list with commas between them."""

    items: Value


@dataclass(frozen=True)
class NumberText:
    """A whole number as a string, for a text around it."""

    number: Value


@dataclass(frozen=True)
class Shortened:
    """A string cut to a length, without a dash at its end."""

    text: "Node"
    length: int


@dataclass(frozen=True)
class FileText:
    """The content of a file in `gangline/install/monitoring`."""

    name: str


@dataclass(frozen=True)
class FileField:
    """What is at a key of such a file, which is YAML."""

    name: str
    key: str


@dataclass(frozen=True)
class Either:
    """One node where a condition holds, another where not."""

    condition: "Condition"
    node: "Node"
    otherwise: "Node"


@dataclass(frozen=True)
class When:
    """A node where a condition holds; else nothing: no key, no item, no object."""

    condition: "Condition"
    node: "Node"


@dataclass(frozen=True)
class ForEach:
    """Nodes for every string of a list, as items of a list or as objects."""

    items: Value
    nodes: tuple["Node", ...]


@dataclass(frozen=True)
class Spread:
    """The items of a list, as items of the list around it or as objects."""

    items: Value


@dataclass(frozen=True)
class Extended:
    """Mappings one after the other, and what the values add to them. Of two that have a key, the first wins."""

    own: tuple["Named | Mapping[str, Node]", ...]
    extra: tuple[Value, ...]


@dataclass(frozen=True)
class Named:
    """A node that has a name, because it is used in several places. In Helm it is a template of its own."""

    name: str
    node: "Node"


@dataclass(frozen=True)
class Note:
    """A node with a comment above it."""

    text: str
    node: "Node"


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    condition: "Condition"


@dataclass(frozen=True)
class Both:
    """Two conditions hold."""

    first: "Condition"
    second: "Condition"


@dataclass(frozen=True)
class OneOf:
    """One of two conditions holds."""

    first: "Condition"
    second: "Condition"


@dataclass(frozen=True)
class Equal:
    """A string is this one."""

    node: "Node"
    text: str


@dataclass(frozen=True)
class Contains:
    """A string contains another."""

    text: "Node"
    part: "Node"


@dataclass(frozen=True)
class Matches:
    """A string matches a regular expression, of those that Python and Go read alike."""

    node: "Node"
    pattern: str


@dataclass(frozen=True)
class Above:
    """A number is greater than this one."""

    number: Value
    limit: int


@dataclass(frozen=True)
class Required:
    """A condition that values must meet, and what to say if they do not."""

    condition: "Condition"
    message: str


Condition: TypeAlias = Value | Not | Both | OneOf | Equal | Contains | Matches | Above
"""A value is true unless it is false, 0 or empty."""

Leaf: TypeAlias = (
    Value | ReleaseField | AppVersion | Item | Text | Joined | NumberText | Shortened | FileText | FileField
)
"""A node that stands for one value, whatever is around it."""

Node: TypeAlias = (
    str
    | int
    | bool
    | Mapping[str, "Node"]
    | Sequence["Node"]
    | Leaf
    | Either
    | When
    | ForEach
    | Spread
    | Extended
    | Named
    | Note
)
