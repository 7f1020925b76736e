"""The one interface to state: revisions, compare-and-set, resumable watch."""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import GanglineError


class StaleWrite(GanglineError):
    """The record is not at the revision that the writer expected."""


class Compacted(GanglineError):
    """History before that revision is no longer kept."""


class Record(msgspec.Struct, frozen=True):
    """A value at a revision. In a watch, a None value is a deletion and `before` what was there."""

    path: str
    revision: int
    value: JSON | None
    before: JSON | None = None


class Write(msgspec.Struct, frozen=True):
    """Set (or, with None, delete) a path. `expected` is the revision it must have; 0: it must not exist."""

    path: str
    value: JSON | None
    expected: int


class Snapshot(msgspec.Struct, frozen=True):
    """All records under a prefix, in order of path, as of one revision."""

    revision: int
    records: tuple[Record, ...]


class Store(Protocol):
    """All state of the local control plane."""

    async def get(self, path: str) -> Record | None: ...

    async def range(self, prefix: str) -> Snapshot: ...

    async def commit(self, *writes: Write) -> int:
        """All or none, at one new revision. Raises `StaleWrite`."""
        ...

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[Record]:
        """Every record under a prefix after a revision, in order, for ever. Raises `Compacted`."""
        ...
