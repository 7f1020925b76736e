"""A sorted set of strings with fast insertion, removal and range queries."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

KEYS_PER_CHUNK = 512
"""Keys per chunk when filled at once. A chunk is split at twice that size."""


class SortedKeys:
    """A sorted set. Adding and removing cost O(log n) comparisons and a short move, a range costs its length.

    The keys are in chunks of bounded length, so that no change moves more than one chunk.
    """

    def __init__(self, keys: Iterable[str] = (), chunk: int = KEYS_PER_CHUNK) -> None:
        ordered = sorted(keys)
        self._chunk_size = chunk
        self._chunks = [ordered[start : start + chunk] for start in range(0, len(ordered), chunk)]
        # The greatest key of every chunk; no chunk is empty.
        self._last_keys = [chunk[-1] for chunk in self._chunks]

    def add(self, key: str) -> None:
        """Add a key, which must not be present."""
        if not self._chunks:
            self._chunks, self._last_keys = [[key]], [key]
            return
        at = min(bisect_left(self._last_keys, key), len(self._chunks) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * self._chunk_size:
            self._chunks[at : at + 1] = chunk[: self._chunk_size], chunk[self._chunk_size :]
            self._last_keys[at : at + 1] = chunk[self._chunk_size - 1], chunk[-1]
        else:
            self._last_keys[at] = chunk[-1]

    def remove(self, key: str) -> None:
        """Remove a key, which must be present."""
        at = bisect_left(self._last_keys, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._last_keys[at] = chunk[-1]
        else:
            del self._chunks[at], self._last_keys[at]

    def keys_under(self, prefix: str, after: str = "", limit: int = 0) -> tuple[list[str], int]:
        """The keys that start with a prefix and are greater than `after`, and the number of keys beyond the limit."""
        first, last = self._bounds(prefix, after)
        keys = self._slice(first, last, limit)
        return keys, (self._count_between(first, last) - len(keys) if limit else 0)

    def count(self, prefix: str) -> int:
        return self._count_between(*self._bounds(prefix, ""))

    def has(self, prefix: str) -> bool:
        """Whether any key starts with a prefix."""
        chunk, position = self._position(prefix)
        return chunk < len(self._chunks) and self._chunks[chunk][position].startswith(prefix)

    def _bounds(self, prefix: str, after: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """The start and the end of a range, each as chunk and position."""
        end = prefix_range_end(prefix)
        last = self._position(end) if end is not None else (len(self._chunks), 0)
        # The next string after `after` is `after` with the smallest character appended.
        first = self._position(max(prefix, f"{after}\0") if after else prefix)
        return min(first, last), last

    def _position(self, key: str) -> tuple[int, int]:
        chunk = bisect_left(self._last_keys, key)
        return (chunk, bisect_left(self._chunks[chunk], key)) if chunk < len(self._chunks) else (chunk, 0)

    def _slice(self, first: tuple[int, int], last: tuple[int, int], limit: int) -> list[str]:
        (chunk, start), (end_chunk, end) = first, last
        keys: list[str] = []
        while chunk <= end_chunk and chunk < len(self._chunks) and not (limit and len(keys) >= limit):
            keys += self._chunks[chunk][start : end if chunk == end_chunk else None]
            chunk, start = chunk + 1, 0
        return keys[:limit] if limit else keys

    def _count_between(self, first: tuple[int, int], last: tuple[int, int]) -> int:
        total = sum(map(len, self._chunks[first[0] : last[0]]))
        return total - first[1] + last[1]


def prefix_range_end(prefix: str) -> str | None:
    """The smallest string greater than all strings with this prefix; None if there is no such string."""
    stem = prefix.rstrip(chr(0x10FFFF))
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


def sorted_keys_under(keys: list[str], prefix: str, after: str) -> list[str]:
    """The keys of a sorted list that start with a prefix and are greater than `after`."""
    end = prefix_range_end(prefix)
    start = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    return keys[start : bisect_left(keys, end) if end is not None else None]
