"""Type trees, as patches, server-side apply and field validation need them, for built-in and custom kinds alike.

A `TypeNode` describes what a value may contain and how lists and maps merge. Trees are built once from OpenAPI
(built-in kinds) or from the schema of a CRD, and shared. Trees of built-in kinds are lazy, because a pod has thousands
of nodes and most are never used.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property


class TypeShape(StrEnum):
    OBJECT = "object"
    """Named fields; all others are unknown."""
    MAP = "map"
    """Any keys, with values of one type."""
    LIST = "list"
    SCALAR = "scalar"
    ANY = "any"
    """Free-form JSON, which is kept as it is."""


class MergeType(StrEnum):
    """How server-side apply merges: element by element, or as a whole."""

    ATOMIC = "atomic"
    GRANULAR = "granular"
    SET = "set"
    MAP = "map"


class TypeNode:
    """One node of a type tree. Children are made by functions, so that a tree may be lazy and recursive."""

    def __init__(
        self,
        shape: TypeShape,
        *,
        fields: Callable[[], Mapping[str, "TypeNode"]] | None = None,
        element: Callable[[], "TypeNode"] | None = None,
        merge: MergeType | None = None,
        keys: tuple[str, ...] = (),
        patch_merge: bool = False,
        patch_retain_keys: bool = False,
        patch_replace: bool = False,
        patch_key: str = "",
        scalar: str = "",
        key_defaults: Mapping[str, object] | None = None,
        keep_unknown: bool = False,
        go: str = "",
        pointer: bool = False,
        omit: bool = False,
    ) -> None:
        self.shape = shape
        self._load_fields, self._load_element = fields, element
        self.merge = merge or (MergeType.ATOMIC if shape is TypeShape.LIST else MergeType.GRANULAR)
        self.keys = keys
        """Of a list merged as a map: the fields that identify its elements (`x-kubernetes-list-map-keys`)."""
        self.patch_merge = patch_merge
        """Strategic patch: merge this list or map (`x-kubernetes-patch-strategy: merge`) instead of replacing it."""
        self.patch_retain_keys = patch_retain_keys
        self.patch_replace = patch_replace
        """Strategic patch: replace this map (`x-kubernetes-patch-strategy: replace`) instead of merging it."""
        self.patch_key = patch_key
        """Strategic patch: the key of a merged list (`x-kubernetes-patch-merge-key`)."""
        self.scalar = scalar
        """string, integer, number, boolean, quantity, int-or-string ...; empty when not a scalar."""
        self.key_defaults = dict(key_defaults or {})
        """Defaults of optional list map keys (a port's protocol)."""
        self.keep_unknown = keep_unknown
        """An object that keeps fields it does not name (`x-kubernetes-preserve-unknown-fields`)."""
        self.go_type = go
        """Built-in kinds: Go's name of this type (`v1.PullPolicy`), as in the messages of its decoder."""
        self.pointer = pointer
        """Built-in kinds: a pointer in Go, so that zero and absent differ."""
        self.omit_empty = omit
        """Built-in kinds: whether Go omits the field when empty: `omitempty`, or for a struct `omitzero`."""

    @cached_property
    def fields(self) -> Mapping[str, "TypeNode"]:
        return self._load_fields() if self._load_fields is not None else {}

    @cached_property
    def element(self) -> "TypeNode":
        """The type of the values of a list or map."""
        return self._load_element() if self._load_element is not None else UNTYPED_ATOMIC

    def field_type(self, name: str) -> "TypeNode | None":
        """The type of a field or map value; None when there is no such field."""
        if self.shape is TypeShape.OBJECT:
            declared = self.fields.get(name)
            return UNTYPED_DEDUCED if declared is None and self.keep_unknown else declared
        if self.shape is TypeShape.MAP:
            return self.element
        return UNTYPED_DEDUCED if self.merge is MergeType.GRANULAR else UNTYPED_ATOMIC


UNTYPED_ATOMIC = TypeNode(TypeShape.ANY, merge=MergeType.ATOMIC)
"""Free-form JSON that is owned as a whole: `RawExtension`."""

UNTYPED_DEDUCED = TypeNode(TypeShape.ANY)
"""Free-form JSON that is owned field by field, with lists as a whole: for `x-kubernetes-preserve-unknown-fields`."""
