"""Functions that cannot be sent as source: from a REPL, closures, lambdas, partials, methods. cloudpickle sends them."""

import base64
import functools
import inspect
import linecache
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import cloudpickle

from gangline.sdk.build.function_names import own_modules, shown_file, used_globals

MAX_SOURCE_LENGTH = 32_000
"""The longest file whose lines are sent along for tracebacks."""
MAX_DEPTH = 4
"""How deep functions that use functions are searched for what cannot be pickled."""


class PickledValue(NamedTuple):
    """A pickle, with what the replica needs to read it."""

    payload: str
    # The source of cloudpickle.
    library: str
    # The version of Python that pickled it.
    python: str


def pickled_program(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any], *, returns: bool
) -> str:
    """A program that unpickles and calls the function. Raises `ValueError` that names what cannot be pickled."""
    try:
        pickled = pickled_value((function, arguments, dict(keywords)), getattr(function, "__module__", "") or "")
    except Exception as error:
        raise ValueError(_refusal(function, arguments, keywords, error)) from error
    code = _code_of(function)
    return (
        f"# {getattr(code, 'co_name', 'a function')}, pickled by Python {pickled.python}\n"
        'if __name__ == "__main__":\n'
        "    import gangline_call\n\n"
        f"    gangline_call.call_pickled(\n        {tuple(pickled)!r},\n        {_source_files(code)!r},\n"
        f"        returns={returns},\n    )\n"
    )


def pickled_variables(values: Mapping[str, Any]) -> PickledValue:
    """Variables by name, pickled. Raises `ValueError` that names the one that cannot be."""
    try:
        return pickled_value(dict(values))
    except Exception as error:
        for name, value in values.items():
            if not _can_be_pickled(value):
                raise ValueError(
                    f"{name} is a {type_name(value)}, which stays in this process; make it in the cell"
                ) from error
        raise ValueError(str(error)) from error


def pickled_value(value: Any, module: str = "__main__") -> PickledValue:
    """A pickle of any value. Raises what cloudpickle and the user's classes raise.

    Modules of the user are sent whole. If one other than `module` has something that cannot be sent, such as a lock, the
    replica imports them: that works on this machine, and where the image has them.
    """
    try:
        with _modules_by_value(list(own_modules())):
            content = cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - picklers raise anything
        try:
            with _modules_by_value([each for each in own_modules() if each.__name__ == module]):
                content = cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001
            raise error from None
    return PickledValue(_packed(content), _cloudpickle_source(), f"{sys.version_info[0]}.{sys.version_info[1]}")


def type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


@contextmanager
def _modules_by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Pickle functions and classes of these modules whole, not as names that the replica would import."""
    present = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in modules if module.__name__ not in present and module.__name__ != "__main__"]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


@functools.cache
def _cloudpickle_source() -> str:
    return _packed(inspect.getsource(cloudpickle.cloudpickle).encode())


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__code__", None)


def _source_files(code: CodeType | None) -> dict[str, tuple[str, str]]:
    """How the function's file is shown, and its lines, if they are known here and few."""
    if code is None:
        return {}
    text = "".join(linecache.getlines(code.co_filename))
    return {code.co_filename: (shown_file(code.co_filename), text if len(text) <= MAX_SOURCE_LENGTH else "")}


# What cannot be pickled


def _refusal(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any], error: Exception
) -> str:
    name = getattr(_code_of(function), "co_name", type(function).__name__)
    for where, value in (*_parameters(arguments, keywords), *_captured_values(function, MAX_DEPTH)):
        if not _can_be_pickled(value):
            return f"{name} cannot be sent: {where} is a {type_name(value)}, which stays in this process; make it inside {name}"
    return f"{name} cannot be sent: {error}"


def largest_capture(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    """The largest value that travels with a function, as part of a message; empty if there is none."""
    captures = {
        where: len(cloudpickle.dumps(value))
        for where, value in (*_parameters(arguments, keywords), *_captured_values(function, MAX_DEPTH))
        if _can_be_pickled(value)
    }
    if not captures:
        return ""
    where = max(captures, key=lambda key: captures[key])
    return f" ({where}: {captures[where] // 1024} KiB)"


def _parameters(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for argument in arguments:
        entries = argument.items() if isinstance(argument, dict) else (("", argument),)
        yield from ((f"parameters[{key!r}]", value) for key, value in entries)
    yield from ((f"parameters[{key!r}]", value) for key, value in keywords.items())


def _captured_values(function: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The values that travel with a function, with words for where they are; those of inner functions first."""
    match function:
        case functools.partial():
            yield from ((f"argument {number} of the partial", value) for number, value in enumerate(function.args))
            yield from ((f"argument {key} of the partial", value) for key, value in function.keywords.items())
            yield from _captured_values(function.func, depth)
        case MethodType():
            yield from ((f"self.{key}", value) for key, value in vars(function.__self__).items())
            yield from _captured_values(function.__func__, depth)
        case FunctionType():
            for name, value in _captured_variables(function).items():
                if depth:
                    inner = _captured_values(value, depth - 1)
                    yield from ((f"{where} (of {name})" if " (of " not in where else where, v) for where, v in inner)
                yield name, value


def _captured_variables(function: FunctionType) -> dict[str, Any]:
    variables = dict(used_globals(function))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:
            continue
    defaults = inspect.signature(function).parameters.values()
    variables |= {each.name: each.default for each in defaults if each.default is not inspect.Parameter.empty}
    return {name: value for name, value in variables.items() if value is not function}


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - picklers raise anything
        return False
    return True
