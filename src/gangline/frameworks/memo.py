"""Remembers a result that is the same for all replicas of a job."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LastResult(Generic[T]):
    """The last result of a function, returned again as long as it is about the very same objects.

    A thousand replicas are wired one after the other, each with a list of all thousand. The objects are kept, not their
    ids, so that a new object cannot be mistaken for one that was freed.
    """

    def __init__(self) -> None:
        self._cached: tuple[tuple[object, ...], T] | None = None

    def result_for(self, make: Callable[[], T], *about: object) -> T:
        """`make()`, or its last result if that was about these objects, which must be frozen."""
        if self._cached is None or not _same_objects(self._cached[0], about):
            self._cached = about, make()
        return self._cached[1]


def _same_objects(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
