"""Methods of the async client that are derived from others, with the same parameters."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def derived_call(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
    convert: Callable[[T], R],
    *,
    name: str,
    doc: str,
    returns: object,
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, R]]:
    """A method with the parameters of `method` that returns its converted result. `returns` is the annotation of that."""

    @functools.wraps(method)
    async def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return convert(await method(self, *args, **kwargs))

    call.__name__, call.__doc__ = name, doc
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{name}"
    call.__signature__ = inspect.signature(method).replace(return_annotation=returns)  # type: ignore[attr-defined]
    return call
