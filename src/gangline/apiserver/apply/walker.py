"""Walks over JSON values along their type: the fields of a value, and the fields that differ between two values.

Types are compiled, lazily, into `Walker`s: one per node of the type tree, with the labels (`f:name`) of its fields
prepared. Reuse the walker of a kind: every write of an object comes through here, so the inner loops are plain, avoid
calls for leaves and must not compile again.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from gangline.api.meta import JSON
from gangline.apiserver.apply.fieldset import LEAF, SELF, FieldSet, key_path_element, value_path_element
from gangline.schema.typed.types import UNTYPED_DEDUCED, MergeType, TypeNode, TypeShape

_ABSENT: Any = object()
_MAX_CACHED_LABELS = 512


class Comparison(NamedTuple):
    """The difference of two objects as sets of fields."""

    changed: FieldSet
    """Fields that were added or have another value."""
    removed: FieldSet


class Walker:
    """Walks a value that is owned as a whole: a scalar, an atomic list or map."""

    is_leaf = True

    def added_fields(self, value: Any) -> FieldSet:
        """The node of a new value: the value itself and everything in it."""
        return LEAF

    def applied_fields(self, value: Any) -> FieldSet:
        """The fields that an applied value claims, as the children of its node; empty for a leaf."""
        return LEAF

    def compare(self, old: Any, new: Any, label: str, changed: FieldSet, removed: FieldSet) -> None:
        """Add the differences of two present values to `changed` and `removed`, under `label`."""
        if not values_equal(old, new):
            changed[label] = LEAF

    def with_named_members(self, fields: FieldSet) -> FieldSet:
        """The children of a node, with all declared fields that have children made members."""
        return fields

    def child(self, label: str) -> "Walker":
        """The walker of a field or list element."""
        return _LEAF_WALKER

    def is_owned_whole(self, value: Any) -> bool:
        """Whether applying this value owns it as a whole."""
        return True


class ContainerWalker(Walker):
    """Base of the walkers of values that are owned field by field or element by element."""

    is_leaf = False
    container_type: type = dict

    def __init__(self, tree: TypeNode, *, exact: bool) -> None:
        self._tree, self._exact = tree, exact

    def applied_fields(self, value: Any) -> FieldSet:
        return self._claimed_fields(value) if value.__class__ is self.container_type else LEAF

    def _claimed_fields(self, value: Any) -> FieldSet:
        raise NotImplementedError

    def is_owned_whole(self, value: Any) -> bool:
        return value is None or value.__class__ is not self.container_type or value == {}

    def compare(self, old: Any, new: Any, label: str, changed: FieldSet, removed: FieldSet) -> None:
        if not self._exact and old == new:  # fast path: most of an object does not change
            return
        old_is_container, new_is_container = old.__class__ is self.container_type, new.__class__ is self.container_type
        if not (old_is_container and old) and not (new_is_container and new):
            super().compare(old, new, label, changed, removed)  # distinguishes null, empty and absent
            return
        added: FieldSet = {}
        dropped: FieldSet = {}
        self._compare_children(
            old if old_is_container else self.container_type(),
            new if new_is_container else self.container_type(),
            added,
            dropped,
        )
        if not (new_is_container or new is None) or not (old_is_container or old is None):
            added = {SELF: LEAF, **added} if added else LEAF  # a container replaced a plain value, or the reverse
            changed[label] = added
        elif added:
            changed[label] = added
        if dropped:
            removed[label] = dropped

    def _compare_children(self, old: Any, new: Any, changed: FieldSet, removed: FieldSet) -> None:
        raise NotImplementedError


_FieldAdder = tuple[str, Callable[[Any], FieldSet] | None]


class _FieldAdders(dict[str, _FieldAdder]):
    """By field name: its label, and the function that makes the set of a new value (None for a leaf).

    A second cache beside `MapWalker._declared_fields`, in the form that `added_fields` needs: kept for speed.
    """

    def __init__(self, walker: "MapWalker") -> None:
        super().__init__()
        self._walker = walker

    def __missing__(self, name: str) -> _FieldAdder:
        return _field_adder(self._walker.field(name))


def _field_adder(entry: tuple[str, Walker]) -> _FieldAdder:
    label, walker = entry
    return label, None if walker.is_leaf else walker.added_fields


class MapWalker(ContainerWalker):
    """Walks a map with arbitrary keys of free-form values. Base of all maps and objects."""

    def __init__(self, tree: TypeNode, *, exact: bool) -> None:
        super().__init__(tree, exact=exact)
        self._declared_fields: dict[str, tuple[str, Walker]] = {}
        self._adders = _FieldAdders(self)

    def field(self, name: str) -> tuple[str, Walker]:
        """The label and the walker of a field. Cached if the type declares the field, which bounds the cache."""
        return f"f:{name}", self

    def declares(self, name: str) -> bool:
        return False

    def child(self, label: str) -> Walker:
        return self.field(label[2:])[1]

    def added_fields(self, value: Any) -> FieldSet:
        if value.__class__ is not dict or not value:
            return LEAF
        fields: FieldSet = {SELF: LEAF}
        adders = self._adders
        for name, item in value.items():
            label, adder = adders[name]
            fields[label] = adder(item) if item and adder is not None else LEAF
        return fields

    def _claimed_fields(self, value: JSON) -> FieldSet:
        fields: FieldSet = {}
        for name, item in value.items():
            label, walker = self._declared_fields.get(name) or self.field(name)
            if walker.is_owned_whole(item):
                fields[label] = LEAF
                continue
            children = walker.applied_fields(item)
            if not self.declares(name):
                fields[label] = {SELF: LEAF, **children} if children else LEAF
            elif children:
                fields[label] = children
        return fields

    def _compare_children(self, old: JSON, new: JSON, changed: FieldSet, removed: FieldSet) -> None:
        entries = self._declared_fields
        for name, item in new.items():
            before = old.get(name, _ABSENT)
            if before is item:
                continue
            label, walker = entries.get(name) or self.field(name)
            if before is _ABSENT:
                changed[label] = LEAF if walker.is_leaf or not item else walker.added_fields(item)
            else:
                walker.compare(before, item, label, changed, removed)
        for name, item in old.items():
            if name not in new:
                label, walker = entries.get(name) or self.field(name)
                removed[label] = walker.added_fields(item)

    def with_named_members(self, fields: FieldSet) -> FieldSet:
        result: FieldSet = {}
        for label, node in fields.items():
            if node:
                node = self.child(label).with_named_members(node)
                if SELF not in node and self.declares(label[2:]):
                    node = {SELF: LEAF, **node}
            result[label] = node
        return result


class MappingWalker(MapWalker):
    """Walks a map with arbitrary keys and one type of value."""

    @cached_property
    def element(self) -> Walker:
        return walker_of(self._tree.element, exact=self._exact)

    def field(self, name: str) -> tuple[str, Walker]:
        return f"f:{name}", self.element

    def added_fields(self, value: Any) -> FieldSet:
        if not self.element.is_leaf or value.__class__ is not dict or not value:
            return super().added_fields(value)
        fields: FieldSet = {SELF: LEAF}
        for name in value:
            fields[f"f:{name}"] = LEAF
        return fields


class ObjectWalker(MapWalker):
    """Walks an object with declared fields. Undeclared fields, where the type preserves them, are free-form."""

    def field(self, name: str) -> tuple[str, Walker]:
        entry = self._declared_fields.get(name)
        if entry is None:
            entry = f"f:{name}", walker_of(self._tree.field_type(name) or UNTYPED_DEDUCED, exact=self._exact)
            if name in self._tree.fields:
                self._declared_fields[name] = entry
                self._adders[name] = _field_adder(entry)
        return entry

    def declares(self, name: str) -> bool:
        return name in self._tree.fields


class FreeWalker(MapWalker):
    """Walks free-form JSON: maps are owned field by field, lists and plain values as a whole."""


class ListWalker(ContainerWalker):
    """Walks a list whose elements are identified by more than their position."""

    container_type = list

    @cached_property
    def element(self) -> Walker:
        return walker_of(self._tree.element, exact=self._exact)

    def child(self, label: str) -> Walker:
        return self.element

    def label(self, item: Any) -> str:
        """The label of an element. Raises `ValueError` if the element has none."""
        raise NotImplementedError

    def labels(self, value: Sequence[Any]) -> list[str]:
        """The labels of the elements. One without a label gets `i:` and its position, which equals no other."""
        labels = []
        for index, item in enumerate(value):
            try:
                labels.append(self.label(item))
            except ValueError:
                labels.append(f"i:{index}")
        return labels

    def _items_by_label(self, value: list[Any]) -> dict[str, list[Any]]:
        """Elements by label. Applied lists must not have duplicates, but stored ones may."""
        items: dict[str, list[Any]] = {}
        for label, item in zip(self.labels(value), value, strict=True):
            items.setdefault(label, []).append(item)
        return items

    def added_fields(self, value: Any) -> FieldSet:
        if value.__class__ is not list or not value:
            return LEAF
        fields: FieldSet = {SELF: LEAF}
        element = self.element
        for label, item in zip(self.labels(value), value, strict=True):
            fields[label] = LEAF if label in fields or element.is_leaf else element.added_fields(item)
        return fields

    def _claimed_fields(self, value: list[Any]) -> FieldSet:
        fields: FieldSet = {}
        for label, items in self._items_by_label(value).items():
            children = self.element.applied_fields(items[0]) if len(items) == 1 else LEAF
            fields[label] = {SELF: LEAF, **children} if children else LEAF
        return fields

    def _compare_children(self, old: list[Any], new: list[Any], changed: FieldSet, removed: FieldSet) -> None:
        before, after = self._items_by_label(old), self._items_by_label(new)
        element = self.element
        for label, items in after.items():
            old_items = before.get(label, [])
            if len(items) == 1 and len(old_items) == 1:
                element.compare(old_items[0], items[0], label, changed, removed)
            elif len(items) > 1 and len(old_items) > 1:
                if not values_equal(items, old_items):
                    changed[label] = LEAF
            elif len(items) == 1:
                changed[label] = element.added_fields(items[0])
                if old_items:  # there were duplicates, which were owned as a whole
                    removed[label] = LEAF
            else:
                changed[label] = LEAF
                if old_items:
                    removed[label] = element.added_fields(old_items[0])
        for label, items in before.items():
            if label not in after:
                removed[label] = element.added_fields(items[0]) if len(items) == 1 else LEAF

    def with_named_members(self, fields: FieldSet) -> FieldSet:
        return {
            label: self.element.with_named_members(node) if label[0] == "k" and node else node
            for label, node in fields.items()
        }


class SetWalker(ListWalker):
    def label(self, item: Any) -> str:
        if item is None:
            raise ValueError("associative list without keys has an element that's an explicit null")
        if item.__class__ is dict:
            raise ValueError("associative list without keys has an element that's a map type")
        if item.__class__ is list:
            raise ValueError("not supported: associative list with lists as elements")
        return value_path_element(item)


class KeyedWalker(ListWalker):
    """Walks a list of objects that are identified by some of their fields."""

    def __init__(self, tree: TypeNode, *, exact: bool) -> None:
        super().__init__(tree, exact=exact)
        self._key_defaults = [(key, tree.key_defaults.get(key)) for key in tree.keys]
        self._single_key = tree.keys[0] if len(tree.keys) == 1 else ""
        # A few names make up most objects, and encoding labels as JSON is slow.
        self._label_cache: dict[Any, str] = {}

    def label(self, item: Any) -> str:
        if item.__class__ is not dict:
            what = "a null element" if item is None else "non-map elements"
            raise ValueError(f"associative list with keys may not have {what}")
        values = tuple([item.get(key, default) for key, default in self._key_defaults])
        try:
            return self._label_cache[values]
        except (KeyError, TypeError):
            return self._new_label(item, values)

    def _new_label(self, item: JSON, values: tuple[Any, ...]) -> str:
        named = zip(self._key_defaults, values, strict=True)
        key_fields = {key: value for (key, _), value in named if value is not None or key in item}
        if not key_fields:
            names = " ".join(f'"{key}"' for key, _ in self._key_defaults)
            raise ValueError(
                f"associative list with keys has an element that omits all key fields [{names}]"
                " (and doesn't have default values for any key fields)"
            )
        label = key_path_element(key_fields)
        if len(self._label_cache) < _MAX_CACHED_LABELS and all(value.__class__ in (str, int) for value in values):
            self._label_cache[values] = label
        return label

    def added_fields(self, value: Any) -> FieldSet:
        if value.__class__ is not list or not value:
            return LEAF
        fields: FieldSet = {SELF: LEAF}
        cache, single_key, adder = self._label_cache, self._single_key, self.element.added_fields
        for index, item in enumerate(value):
            label = cache.get((item.get(single_key),)) if single_key and item.__class__ is dict else None
            if label is None:
                try:
                    label = self.label(item)
                except ValueError:
                    label = f"i:{index}"
            fields[label] = LEAF if label in fields else adder(item)
        return fields


_LEAF_WALKER = Walker()


def walker_of(tree: TypeNode, *, exact: bool = False) -> Walker:
    """The walker of a type.

    `exact` is for types with free-form parts, where 1 may become true: both are equal in Python, so whole objects
    cannot be compared with `==`.
    """
    if tree.merge is MergeType.ATOMIC or tree.shape is TypeShape.SCALAR:
        return _LEAF_WALKER
    if tree.shape is TypeShape.LIST:
        kinds = {MergeType.MAP: KeyedWalker, MergeType.SET: SetWalker}
        return kinds[tree.merge](tree, exact=exact) if tree.merge in kinds else _LEAF_WALKER
    return {TypeShape.OBJECT: ObjectWalker, TypeShape.MAP: MappingWalker}.get(tree.shape, FreeWalker)(tree, exact=exact)


def values_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal for Kubernetes: 1 equals 1.0, but not true."""
    if left is right:
        return True
    if left != right:
        return False
    if left.__class__ is dict:
        return all(values_equal(value, right[key]) for key, value in left.items())
    if left.__class__ is list:
        return all(map(values_equal, left, right))
    return (left.__class__ is bool) == (right.__class__ is bool)


def comparison(old: JSON, new: JSON, walker: Walker) -> Comparison:
    """The difference of two objects of a kind."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    walker.compare(old, new, "", changed, removed)
    return Comparison(changed.get("", {}), removed.get("", {}))
