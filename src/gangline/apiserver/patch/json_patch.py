"""JSON patch (RFC 6902) and merge patch (RFC 7396), with kube-apiserver's deviations.

Both return a new document that shares nothing with the arguments, so the result may be changed in place. Where
kube-apiserver is more lenient than the RFC (`replace` of a missing key, negative indices, paths without the first
slash) so are we, because clients rely on it.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError, bad_request, unprocessable
from gangline.schema.go_text import number_text

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Bytes that the copy operations of one patch may add, so that a short patch cannot fill the memory."""

_INDEX = re.compile(r"[+-]?[0-9]+")
_MISSING: Any = object()
_GO_JSON_TYPES = {str: "string", list: "array", dict: "object", bool: "bool", int: "number", float: "number"}


def deep_copy(value: Any) -> Any:
    """A copy of JSON data that shares nothing with the original."""
    return msgspec.json.decode(msgspec.json.encode(value))


def json_patch(document: JSON, operations: Any) -> Any:
    """The document after all operations. Raises `StatusError` if any of them fails.

    400 if `operations` is not a list of operations, 413 if there are too many, 422 if an operation does not
    apply.
    """
    check_operations(operations)
    patcher = _JsonPatcher(deep_copy(document))
    for operation in operations or ():
        patcher.apply(operation)
    return patcher.root


def check_operations(operations: Any) -> None:
    """Check the form of a JSON patch. Raises `StatusError`. Unknown operations pass; they fail when applied."""
    if operations is None:
        return
    if not isinstance(operations, list):
        raise _decode_error(operations, "Go value of type []handlers.jsonPatchOp")
    for operation in operations:
        if not isinstance(operation, dict):
            if operation is None:
                continue
            raise _decode_error(operation, "Go value of type handlers.jsonPatchOp")
        for member in ("op", "path", "from"):
            value = operation.get(member)
            if value is not None and not isinstance(value, str):
                raise _decode_error(value, f"Go struct field jsonPatchOp.{member} of type string")
    if len(operations) > MAX_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        message = f"Request entity too large: {limit}"
        raise StatusError(413, message, reason="RequestEntityTooLarge")


def merge_patch(document: JSON, patch: Any) -> JSON:
    """The document with the patch merged into it: objects merge, null deletes, other values replace.

    Raises `StatusError` (400).
    """
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _decode_error(patch, "Go value of type map[string]interface {}")
    result: JSON = deep_copy(document)
    _merge_into(result, deep_copy(patch))
    return result


def _merge_into(document: JSON, patch: JSON) -> None:
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
            continue
        current = document.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            _merge_into(current, value)
            continue
        if not isinstance(current, dict):  # a list that replaces an object keeps its nulls
            drop_nulls(value)
        document[key] = value


def drop_nulls(value: Any) -> None:
    """Remove members that are null, at any depth. Nulls in lists stay."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        for item in value.values():
            drop_nulls(item)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item)


class _JsonPatcher:
    """Applies operations to a document. Values are copied, so that operations cannot alias each other."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._copied_bytes = 0
        self._operations: dict[str, Callable[[JSON], None]] = {
            "add": self._add,
            "remove": self._remove,
            "replace": self._replace,
            "move": self._move,
            "copy": self._copy,
            "test": self._test,
        }

    def apply(self, operation: JSON | None) -> None:
        kind = (operation or {}).get("op") or "unknown"
        verb = self._operations.get(kind)
        if verb is None or operation is None:
            raise unprocessable(f"Unexpected kind: {kind}")
        verb(operation)

    def _add(self, operation: JSON) -> None:
        path = _operation_path(operation)
        parent, key = self._parent_and_key(path)
        _insert(parent, key, deep_copy(operation.get("value")), path)

    def _remove(self, operation: JSON) -> None:
        path = _operation_path(operation)
        parent, key = self._parent_and_key(path)
        _remove_at(parent, key, path)

    def _replace(self, operation: JSON) -> None:
        path = _operation_path(operation)
        value = deep_copy(operation.get("value"))
        if path == "":
            if not isinstance(value, dict | list):
                raise unprocessable("replace operation value must be object or array")
            self.root = value
            return
        parent, key = self._parent_and_key(path)
        if isinstance(parent, list):
            parent[_list_index(key, len(parent), path)] = value
        else:
            parent[key] = value

    def _move(self, operation: JSON) -> None:
        source = _operation_path(operation, "from")
        parent, key = self._parent_and_key(source)
        value = _remove_at(parent, key, source)
        path = _operation_path(operation)
        parent, key = self._parent_and_key(path)
        _insert(parent, key, value, path)

    def _copy(self, operation: JSON) -> None:
        source = _operation_path(operation, "from")
        parent, key = self._parent_and_key(source)
        text = msgspec.json.encode(_lookup(parent, key, source, default=None))
        self._copied_bytes += len(text)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise unprocessable(f"copies add {self._copied_bytes} bytes; at most {MAX_COPIED_BYTES} are allowed")
        path = _operation_path(operation)
        parent, key = self._parent_and_key(path)
        _insert(parent, key, msgspec.json.decode(text), path)

    def _test(self, operation: JSON) -> None:
        path = _operation_path(operation)
        value = self.root
        if path != "":
            parent, key = self._parent_and_key(path)
            value = _lookup(parent, key, path, default=None)
        if not strictly_equal(value, operation.get("value")):
            raise unprocessable(f"testing value {path} failed")

    def _parent_and_key(self, path: str) -> tuple[JSON | list[Any], str]:
        """The object or list that contains the target of `path`, and the target's key in it."""
        steps = path.split("/")
        if len(steps) < 2:
            raise unprocessable(f'doc is missing path: "{path}"')
        parent = self.root
        for step in steps[1:-1]:
            parent = _lookup(parent, _unescape(step), path, default=None)
            if not isinstance(parent, dict | list):
                raise unprocessable(f'doc is missing path: "{path}"')
        return parent, _unescape(steps[-1])


def strictly_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, 1, 1.0 and true all differ."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(strictly_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(strictly_equal, left, right))
    return bool(left == right)


def _operation_path(operation: JSON, member: str = "path") -> str:
    path = operation.get(member)
    if path is None:
        raise unprocessable(f"operation missing {member} field")
    return str(path)


def _lookup(parent: JSON | list[Any], key: str, path: str, *, default: Any) -> Any:
    if isinstance(parent, list):
        return parent[_list_index(key, len(parent), path)]
    return parent.get(key, default)


def _insert(parent: JSON | list[Any], key: str, value: Any, path: str) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    elif key == "-":
        parent.append(value)
    else:
        parent.insert(_list_index(key, len(parent) + 1, path), value)


def _remove_at(parent: JSON | list[Any], key: str, path: str) -> Any:
    if isinstance(parent, list):
        return parent.pop(_list_index(key, len(parent), path))
    value = parent.pop(key, _MISSING)
    if value is _MISSING:
        raise unprocessable(f"error in remove for path: '{path}': Unable to remove nonexistent key: {key}")
    return value


def _list_index(key: str, length: int, path: str) -> int:
    """The index, which must be below `length`; negative indices count from the end. Raises `StatusError` (422)."""
    if not _INDEX.fullmatch(key):
        raise unprocessable(f"path '{path}': value was not a proper array index: '{key}'")
    position = int(key) if len(key) < 20 else length
    if not -length <= position < length:
        raise unprocessable(f"path '{path}': Unable to access invalid index: {key}")
    return position + length if position < 0 else position


def _unescape(step: str) -> str:
    """The step with `~1` as slash and `~0` as tilde. One pass, so that `~01` is `~1`."""
    return re.sub("~[01]", lambda match: "/" if match[0] == "~1" else "~", step) if "~" in step else step


def _decode_error(value: Any, target: str) -> StatusError:
    return bad_request(f"error decoding patch: json: cannot unmarshal {go_json_type(value)} into {target}")


def go_json_type(value: Any) -> str:
    """The name of a value's type in the errors of Go's JSON decoder."""
    return _GO_JSON_TYPES.get(value.__class__, "null")


def go_value_text(value: Any) -> str:
    """A value as Go's `%v` prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_value_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_value_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    return "<nil>" if value is None else str(value)
