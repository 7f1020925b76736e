"""Strategic merge patch: a merge patch that merges lists by a key where their type says so.

Works as in kube-apiserver. A list merges by its key (`TypeNode.patch_key`) or, for plain values, as a set, if its
type says so (`TypeNode.patch_merge`); all other lists are replaced. Directives in the patch delete, replace, reorder
and clear.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError, bad_request, unprocessable, untyped_error
from gangline.apiserver.patch.json_patch import deep_copy, drop_nulls, go_json_type, go_value_text, strictly_equal
from gangline.schema.typed.types import UNTYPED_ATOMIC, TypeNode, TypeShape

_PATCH_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_FROM_LIST = "$deleteFromPrimitiveList"
_SET_ELEMENT_ORDER = "$setElementOrder"

_GO_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}


def strategic_merge(document: JSON, patch: Any, tree: TypeNode) -> JSON:
    """The document with the patch merged into it: a new object that shares nothing with the arguments.

    Raises `StatusError`: 400 for a malformed patch or directive, 422 for lists of lists, and 500 for other errors
    (no merge key, unknown directive), with kube-apiserver's messages.
    """
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        raise bad_request(
            f"json: cannot unmarshal {go_json_type(patch)} into Go value of type map[string]interface {{}}"
        )
    return _merge_object(deep_copy(document), deep_copy(patch), tree)


def _merge_object(original: JSON, patch: JSON, tree: TypeNode) -> JSON:
    """The original with the patch merged into it. Both arguments are consumed."""
    if _PATCH_DIRECTIVE in patch:
        return _directive_result(patch)
    _retain_keys(original, patch)
    _apply_element_order(original, patch, tree)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM_LIST):
            _delete_from_primitive_list(original, _directive_target(key, _DELETE_FROM_LIST), value)
        else:
            _merge_field(original, key, value, tree)
    return original


def _directive_result(patch: JSON) -> JSON:
    """The object that replaces the original according to `$patch`."""
    directive = patch[_PATCH_DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH_DIRECTIVE}
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _retain_keys(original: JSON, patch: JSON) -> None:
    """`$retainKeys`: remove all other keys from the original. The list must have every key that the patch sets."""
    if _RETAIN_KEYS not in patch:
        return
    retained = patch.pop(_RETAIN_KEYS)
    if not isinstance(retained, list):
        raise bad_request("invalid patch format of retainKeys")
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM_LIST, _SET_ELEMENT_ORDER)) and key not in retained:
            raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in retained]:
        del original[key]


def _merge_field(original: JSON, key: str, value: Any, tree: TypeNode) -> None:
    if value is None:
        original.pop(key, None)
        return
    current = original.get(key)
    if isinstance(current, dict) and isinstance(value, dict):
        field = _field_type(tree, key)
        original[key] = value if field.patch_replace else _merge_object(current, value, field)
    elif isinstance(current, list) and isinstance(value, list):
        field = _field_type(tree, key)
        original[key] = _merge_list(current, value, field) if field.patch_merge else value
    else:
        drop_nulls(value)
        values = list(_without_directives([value]))
        if values:
            original[key] = values[0]
        else:
            original.pop(key, None)


def _without_directives(values: Iterable[Any]) -> Iterable[Any]:
    """The values without objects, at any depth, that have a directive: it has nothing to apply to."""
    for value in values:
        if isinstance(value, dict):
            if _PATCH_DIRECTIVE in value:
                continue
            for key in list(value):
                remaining = list(_without_directives([value[key]]))
                if remaining:
                    value[key] = remaining[0]
                else:
                    del value[key]
            yield value
        elif isinstance(value, list):
            yield list(_without_directives(value))
        else:
            yield value


def _merge_list(original: list[Any], patch: list[Any], tree: TypeNode) -> list[Any]:
    if not original and not patch:
        return original
    if not _are_objects(original, patch):
        merged = list(dict.fromkeys([*original, *patch]))
        return _ordered_elements(merged, patch, original, "")
    key = tree.patch_key
    if not key:
        raise untyped_error(f"cannot merge lists without merge key for {tree.element.shape}")
    original, patch = _apply_list_directives(original, patch, key)
    order = list(original)
    for element in patch:
        if key not in element:
            raise _missing_merge_key(element, key)
        index = _find_element(original, element, key)
        if index < 0:
            original.append(element)
        else:
            # In place: the original has no directive, so `order` sees the merged element too.
            original[index] = _merge_object(original[index], element, tree.element)
    return _ordered_elements(original, patch, order, key)


def _apply_list_directives(original: list[JSON], patch: list[JSON], key: str) -> tuple[list[JSON], list[JSON]]:
    """Apply the elements with a `$patch` directive. Returns the original and the rest of the patch."""
    plain = [element for element in patch if _PATCH_DIRECTIVE not in element]
    replace = False
    for element in patch:
        directive = element.get(_PATCH_DIRECTIVE, plain)
        if directive == "delete":
            if key not in element:
                raise _missing_merge_key(element, key)
            original = [item for item in original if key not in item or not strictly_equal(item[key], element[key])]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise untyped_error("merging lists cannot yet be specified in the patch")
        elif directive is not plain:
            raise _unknown_directive(directive, element)
    return (plain, []) if replace else (original, plain)


def _apply_element_order(original: JSON, patch: JSON, tree: TypeNode) -> None:
    """`$setElementOrder/list`: merge that list now and sort it by the directive. Removes both from the patch."""
    for directive in [key for key in patch if key.startswith(_SET_ELEMENT_ORDER)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise untyped_error(f"expected a []interface {{}}, but received a {_go_type(order)}")
        name = _directive_target(directive, _SET_ELEMENT_ORDER)
        current, patched = original.get(name), patch.get(name)
        for value in (current, patched):
            if value is not None and not isinstance(value, list):
                raise untyped_error(f"expected a []interface {{}}, but received a {_go_type(value)}")
        field = _field_type(tree, name)
        _check_order(patched or [], order, field.patch_key)
        live = _order_reference(current or [], patched or [], field.patch_key)
        if current is None and patched is None:
            continue
        if patched is None:
            merged = list(current or ())
        elif current is None:
            merged = list(_without_directives(patched))
        else:
            merged = _merge_list(list(current), patched, field) if field.patch_merge else patched
        _are_objects(current or [], patched or [], required=True)
        original[name] = _ordered_elements(merged, order, live, field.patch_key)
        patch.pop(name, None)


def _order_reference(live: list[Any], patch: list[Any], key: str) -> list[Any]:
    """The live list to order by. Where the patch deletes elements, kube-apiserver fills the gaps with those it adds."""
    deleted = [
        element
        for element in patch
        if isinstance(element, dict) and element.get(_PATCH_DIRECTIVE) == "delete" and key in element
    ]
    remaining = [
        element
        for element in live
        if isinstance(element, dict)
        and not any(strictly_equal(element.get(key), deletion[key]) for deletion in deleted)
    ]
    if not deleted or len(remaining) == len(live):
        return live
    added = [
        element
        for element in patch
        if key in element and _PATCH_DIRECTIVE not in element and _find_element(remaining, element, key) < 0
    ]
    return [*remaining, *added][: len(live)]


def _check_order(patch: list[Any], order: list[Any], key: str) -> None:
    """Check that the elements of the patch are in the order list, in the same order. Deletions need not be in it."""
    if not patch or not order:
        return
    position = 0
    for element in patch:
        directive = element.get(_PATCH_DIRECTIVE) if isinstance(element, dict) and key else None
        if directive == "delete":
            continue
        if directive is None:
            while position < len(order) and not _same_element(element, order[position], key):
                position += 1
        if position >= len(order):
            raise untyped_error(
                f"The order in patch list:\n{go_value_text(patch)}\n"
                f" doesn't match {_SET_ELEMENT_ORDER} list:\n{go_value_text(order)}\n"
            )
        position += directive is None


def _same_element(left: Any, right: Any, key: str) -> bool:
    if not key:
        return strictly_equal(left, right)
    for element in (left, right):
        if not isinstance(element, dict):
            raise untyped_error(f"expected a map[string]interface {{}}, but received a {_go_type(element)}")
        if key not in element:
            raise _missing_merge_key(element, key)
    return strictly_equal(left[key], right[key])


def _ordered_elements(merged: list[Any], patch: Sequence[Any], live: Sequence[Any], key: str) -> list[Any]:
    """The elements of the patch in its order, with the others inserted where they preceded a patched element."""
    for element in merged if key else ():
        if key not in element:
            raise _missing_merge_key(element, key)
    patch_positions, live_positions = _index_by_identity(patch, key), _index_by_identity(live, key)
    patched = [element for element in merged if _element_identity(element, key) in patch_positions]
    others = [element for element in merged if _element_identity(element, key) not in patch_positions]
    patched.sort(key=lambda element: patch_positions[_element_identity(element, key)])
    # The sort is stable: duplicates stay together.
    others.sort(key=lambda element: live_positions.get(_element_identity(element, key), len(live_positions)))
    result: list[Any] = []
    index = 0
    for element in patched:
        position = live_positions.get(_element_identity(element, key))
        while (
            position is not None
            and index < len(others)
            and live_positions.get(_element_identity(others[index], key), position) < position
        ):
            result.append(others[index])
            index += 1
        result.append(element)
    return result + others[index:]


def _index_by_identity(elements: Sequence[Any], key: str) -> dict[Any, int]:
    positions: dict[Any, int] = {}
    for index, element in enumerate(elements):
        positions.setdefault(_element_identity(element, key), index)
    return positions


def _element_identity(element: Any, key: str) -> Any:
    """The identity of an element in its list: hashable, and different for 1 and true."""
    value = element.get(key) if isinstance(element, dict) else element
    return (value.__class__, value if not isinstance(value, dict | list) else str(value))


def _find_element(elements: Sequence[JSON], target: JSON, key: str) -> int:
    for index, element in enumerate(elements):
        if key in element and strictly_equal(element[key], target[key]):
            return index
    return -1


def _delete_from_primitive_list(original: JSON, name: str, unwanted: Any) -> None:
    """`$deleteFromPrimitiveList/list`: remove these values from the list."""
    current = original.get(name)
    if unwanted is None:
        original.pop(name, None)
    elif isinstance(current, list) and isinstance(unwanted, list) and (current or unwanted):
        if _are_objects(current, unwanted):
            raise untyped_error("expected a list of plain values, but received a list of objects")
        identities = {_element_identity(value, "") for value in unwanted}
        original[name] = [value for value in current if _element_identity(value, "") not in identities]


def _are_objects(*lists: Sequence[Any], required: bool = False) -> bool:
    """Whether the elements are objects. Raises `StatusError` if the first is a list, or the types differ."""
    kinds = dict.fromkeys(_go_type(element) for elements in lists for element in elements)
    if next(iter(kinds), "") == _GO_TYPES[list]:
        raise unprocessable("lists of lists are not supported")
    if len(kinds) > 1:
        raise untyped_error(f"list element types are not identical: {go_value_text(list(lists))}")
    if required and not kinds:
        raise untyped_error("no elements in any of the given slices")
    return _GO_TYPES[dict] in kinds


def _field_type(tree: TypeNode, name: str) -> TypeNode:
    if tree.shape is TypeShape.ANY:
        return UNTYPED_ATOMIC
    field = tree.field_type(name)
    if field is None:
        struct = tree.go_type.rpartition(".")[2]
        raise untyped_error(f'unable to find api field in struct {struct} for the json field "{name}"')
    return field


def _directive_target(directive: str, prefix: str) -> str:
    head, slash, name = directive.partition("/")
    if head != prefix or not slash:
        what = "primitive list" if prefix == _DELETE_FROM_LIST else "setElementOrder list"
        raise bad_request(f"invalid patch format of {what}")
    return name


def _missing_merge_key(element: JSON, key: str) -> StatusError:
    return untyped_error(f"map: {go_value_text(element)} does not contain declared merge key: {key}")


def _unknown_directive(directive: Any, element: JSON) -> StatusError:
    text = "%!s(<nil>)" if directive is None else go_value_text(directive)
    return untyped_error(f"unknown patch type: {text} in map: {go_value_text(element)}")


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(value.__class__, "%!s(<nil>)")
