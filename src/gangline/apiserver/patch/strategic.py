"""Strategic merge patch: a merge patch that knows which lists are maps in disguise.

Works as kube-apiserver does. A list merges by its key (`Type.patch_key`) or, for plain values, as a set, when its type
says so (`Type.patch_merge`); all other lists are replaced. Directives in the patch delete, replace, reorder and clear.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.errors import Refused, bad_request, internal, unprocessable
from gangline.apiserver.patch.json_patch import copied, drop_nulls, json_name, same
from gangline.schema.typed.types import ANY, Shape, Type

_PATCH = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList"
_ORDER_OF = "$setElementOrder"

_GO_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}


def strategic_merge(document: JSON, patch: Any, tree: Type) -> JSON:
    """The document with the patch merged into it. A new object that shares nothing with the arguments.

    Raises Refused: 400 for a malformed patch or directive, 422 for lists in lists, and 500 for the rest (no merge
    key, unknown directive), with kube-apiserver's sentences.
    """
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        raise bad_request(
            f"json: cannot unmarshal {json_name(patch)} into Go value of type map[string]interface {{}}"
        )
    return _merged(copied(document), copied(patch), tree)


def _merged(original: JSON, patch: JSON, tree: Type) -> JSON:
    """Merge the patch into the original, consuming both."""
    if _PATCH in patch:
        return _directed(patch)
    _retain_keys(original, patch)
    _reorder(original, patch, tree)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            _delete_from(original, _named(key, _DELETE_FROM), value)
        else:
            _merge_field(original, key, value, tree)
    return original


def _directed(patch: JSON) -> JSON:
    """What `$patch` makes of a whole object."""
    directive = patch[_PATCH]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _retain_keys(original: JSON, patch: JSON) -> None:
    """`$retainKeys`: drop from the original what it does not list. It must list all that the patch sets."""
    if _RETAIN_KEYS not in patch:
        return
    listed = patch.pop(_RETAIN_KEYS)
    if not isinstance(listed, list):
        raise bad_request("invalid patch format of retainKeys")
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _ORDER_OF)) and key not in listed:
            raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in listed]:
        del original[key]


def _merge_field(original: JSON, key: str, value: Any, tree: Type) -> None:
    if value is None:
        original.pop(key, None)
        return
    current = original.get(key)
    if isinstance(current, dict) and isinstance(value, dict):
        field = _field(tree, key)
        original[key] = value if field.patch_replace else _merged(current, value, field)
    elif isinstance(current, list) and isinstance(value, list):
        field = _field(tree, key)
        original[key] = _merged_list(current, value, field) if field.patch_merge else value
    else:
        drop_nulls(value)
        kept = list(_without_directives([value]))
        if kept:
            original[key] = kept[0]
        else:
            original.pop(key, None)


def _without_directives(values: Iterable[Any]) -> Iterable[Any]:
    """The values, less the objects, at any depth, that carry a directive: there was nothing to direct."""
    for value in values:
        if isinstance(value, dict):
            if _PATCH in value:
                continue
            for key in list(value):
                kept = list(_without_directives([value[key]]))
                if kept:
                    value[key] = kept[0]
                else:
                    del value[key]
            yield value
        elif isinstance(value, list):
            yield list(_without_directives(value))
        else:
            yield value


def _merged_list(original: list[Any], patch: list[Any], tree: Type) -> list[Any]:
    if not original and not patch:
        return original
    if not _of_objects(original, patch):
        merged = list(dict.fromkeys([*original, *patch]))
        return _ordered(merged, patch, original, "")
    key = tree.patch_key
    if not key:
        raise internal(f"cannot merge lists without merge key for {tree.element.shape}")
    original, patch = _special_elements(original, patch, key)
    order = list(original)
    for element in patch:
        if key not in element:
            raise _no_merge_key(element, key)
        index = _find(original, element, key)
        if index < 0:
            original.append(element)
        else:
            original[index] = _merged(original[index], element, tree.element)
            order[index] = original[index]
    return _ordered(original, patch, order, key)


def _special_elements(original: list[JSON], patch: list[JSON], key: str) -> tuple[list[JSON], list[JSON]]:
    """Do what elements with `$patch` say; the rest of the patch is still to be merged."""
    plain = [element for element in patch if _PATCH not in element]
    replace = False
    for element in patch:
        directive = element.get(_PATCH, plain)
        if directive == "delete":
            if key not in element:
                raise _no_merge_key(element, key)
            original = [kept for kept in original if key not in kept or not same(kept[key], element[key])]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise internal("merging lists cannot yet be specified in the patch")
        elif directive is not plain:
            raise _unknown_directive(directive, element)
    return (plain, []) if replace else (original, plain)


def _reorder(original: JSON, patch: JSON, tree: Type) -> None:
    """`$setElementOrder/list`: merge that list now and put it in the order wanted; consumes both from the patch."""
    for directive in [key for key in patch if key.startswith(_ORDER_OF)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise internal(f"expected a []interface {{}}, but received a {_go_type(order)}")
        name = _named(directive, _ORDER_OF)
        current, wanted = original.get(name), patch.get(name)
        for value in (current, wanted):
            if value is not None and not isinstance(value, list):
                raise internal(f"expected a []interface {{}}, but received a {_go_type(value)}")
        field = _field(tree, name)
        _check_order(wanted or [], order, field.patch_key)
        live = _with_deletions(current or [], wanted or [], field.patch_key)
        if current is None and wanted is None:
            continue
        if wanted is None:
            merged = list(current or ())
        elif current is None:
            merged = list(_without_directives(wanted))
        else:
            merged = _merged_list(list(current), wanted, field) if field.patch_merge else wanted
        _of_objects(current or [], wanted or [], required=True)
        original[name] = _ordered(merged, order, live, field.patch_key)
        patch.pop(name, None)


def _with_deletions(live: list[Any], patch: list[Any], key: str) -> list[Any]:
    """The live list to order by. Where the patch deletes, kube-apiserver fills the gaps with what the patch adds."""
    deleted = [
        each for each in patch if isinstance(each, dict) and each.get(_PATCH) == "delete" and key in each
    ]
    kept = [
        each
        for each in live
        if isinstance(each, dict) and not any(same(each.get(key), gone[key]) for gone in deleted)
    ]
    if not deleted or len(kept) == len(live):
        return live
    added = [each for each in patch if key in each and _PATCH not in each and _find(kept, each, key) < 0]
    return [*kept, *added][: len(live)]


def _check_order(patch: list[Any], order: list[Any], key: str) -> None:
    """The elements of the patch must stand in the order list, in the same order; deletions need not."""
    if not patch or not order:
        return
    place = 0
    for element in patch:
        directive = element.get(_PATCH) if isinstance(element, dict) and key else None
        if directive == "delete":
            continue
        if directive is None:
            while place < len(order) and not _same_element(element, order[place], key):
                place += 1
        if place >= len(order):
            told = f"The order in patch list:\n{_go(patch)}\n doesn't match {_ORDER_OF} list:\n{_go(order)}\n"
            raise internal(told)
        place += directive is None


def _same_element(left: Any, right: Any, key: str) -> bool:
    if not key:
        return same(left, right)
    for element in (left, right):
        if not isinstance(element, dict):
            raise internal(f"expected a map[string]interface {{}}, but received a {_go_type(element)}")
        if key not in element:
            raise _no_merge_key(element, key)
    return same(left[key], right[key])


def _ordered(merged: list[Any], patch: Sequence[Any], live: Sequence[Any], key: str) -> list[Any]:
    """Elements of the patch in its order, the others woven in where they stood before a patched one."""
    for element in merged if key else ():
        if key not in element:
            raise _no_merge_key(element, key)
    places, lives = _places(patch, key), _places(live, key)
    patched = [element for element in merged if _identity(element, key) in places]
    others = [element for element in merged if _identity(element, key) not in places]
    patched.sort(key=lambda element: places[_identity(element, key)])
    others.sort(key=lambda element: lives.get(_identity(element, key), len(lives)))  # twins move together
    result: list[Any] = []
    left = 0
    for element in patched:
        place = lives.get(_identity(element, key))
        while (
            place is not None
            and left < len(others)
            and lives.get(_identity(others[left], key), place) < place
        ):
            result.append(others[left])
            left += 1
        result.append(element)
    return result + others[left:]


def _places(elements: Sequence[Any], key: str) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for index, element in enumerate(elements):
        places.setdefault(_identity(element, key), index)
    return places


def _identity(element: Any, key: str) -> Any:
    """What tells an element apart from the others; hashable, and different for 1 and true."""
    value = element.get(key) if isinstance(element, dict) else element
    return (value.__class__, value if not isinstance(value, dict | list) else str(value))


def _find(elements: Sequence[JSON], wanted: JSON, key: str) -> int:
    for index, element in enumerate(elements):
        if key in element and same(element[key], wanted[key]):
            return index
    return -1


def _delete_from(original: JSON, name: str, unwanted: Any) -> None:
    """`$deleteFromPrimitiveList/list`: take these values out of the list."""
    current = original.get(name)
    if unwanted is None:
        original.pop(name, None)
    elif isinstance(current, list) and isinstance(unwanted, list) and (current or unwanted):
        if _of_objects(current, unwanted):
            raise internal("expected a list of plain values, but received a list of objects")
        gone = {_identity(value, "") for value in unwanted}
        original[name] = [value for value in current if _identity(value, "") not in gone]


def _of_objects(*lists: Sequence[Any], required: bool = False) -> bool:
    """Whether the elements are objects. Raises Refused where they are a mixture, or lists."""
    kinds = {_go_type(element) for elements in lists for element in elements}
    if "[]interface {}" in kinds:
        raise unprocessable("lists of lists are not supported")
    if len(kinds) > 1:
        raise internal(f"list element types are not identical: {_go(list(lists))}")
    if required and not kinds:
        raise internal("no elements in any of the given slices")
    return kinds == {"map[string]interface {}"}


def _field(tree: Type, name: str) -> Type:
    if tree.shape is Shape.ANY:
        return ANY
    found = tree.of(name)
    if found is None:
        struct = tree.go.rpartition(".")[2]
        raise internal(f'unable to find api field in struct {struct} for the json field "{name}"')
    return found


def _named(directive: str, prefix: str) -> str:
    head, slash, name = directive.partition("/")
    if head != prefix or not slash:
        what = "primitive list" if prefix == _DELETE_FROM else "setElementOrder list"
        raise bad_request(f"invalid patch format of {what}")
    return name


def _no_merge_key(element: JSON, key: str) -> Refused:
    return internal(f"map: {_go(element)} does not contain declared merge key: {key}")


def _unknown_directive(directive: Any, element: JSON) -> Refused:
    return internal(f"unknown patch type: {_go(directive)} in map: {_go(element)}")


def _go(value: Any) -> str:
    """A value as Go's `%v` prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(value.__class__, "%!s(<nil>)")
