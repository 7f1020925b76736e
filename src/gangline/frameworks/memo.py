"""Say once what all members of a team are told alike."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LastResult(Generic[T]):
    """The last answer, given again while the question is about the very same objects.

    A thousand members are wired one after the other, each with a list of all thousand. Objects are held, not their
    ids, so another object never passes for one that is gone.
    """

    def __init__(self) -> None:
        self._cached: tuple[tuple[object, ...], T] | None = None

    def result_for(self, make: Callable[[], T], *about: object) -> T:
        """`make()`, or what it gave last time about these objects, which must be frozen."""
        if self._cached is None or not _same_objects(self._cached[0], about):
            self._cached = about, make()
        return self._cached[1]


def _same_objects(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(mine is its for mine, its in zip(one, other, strict=True))
