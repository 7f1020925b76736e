"""Say once what all members of a team are told alike."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Last(Generic[T]):
    """The last answer, given again while the question is about the very same objects.

    A thousand members are wired one after the other, each with a list of all thousand. Objects are held, not their
    ids, so another object never passes for one that is gone.
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[object, ...], T] | None = None

    def of(self, make: Callable[[], T], *about: object) -> T:
        """`make()`, or what it gave last time about these objects, which must be frozen."""
        if self._known is None or not _same(self._known[0], about):
            self._known = about, make()
        return self._known[1]


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(mine is its for mine, its in zip(one, other, strict=True))
