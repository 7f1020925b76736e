"""How long a job usually needs between two signs of life, learnt from its own history. Bounded memory."""

import math

import msgspec

BUCKETS = 16
"""Gaps are counted in buckets of powers of two: up to 1 s, 2 s, 4 s, and so on to 9 hours."""
HIGH_QUANTILE = 0.95
MAX_COUNT = 256
"""With so many gaps all counts are halved: what a job did long ago counts less."""


class UsualGaps(msgspec.Struct, frozen=True):
    """The gaps between the signs of life of one kind, in seconds."""

    counts: tuple[int, ...] = (0,) * BUCKETS
    # How many gaps there were in all, and the longest of them.
    total: int = 0
    longest: float = 0.0

    def with_gap(self, seconds: float) -> "UsualGaps":
        """The gaps with one more."""
        counts = list(self.counts)
        counts[_bucket(seconds)] += 1
        if sum(counts) > MAX_COUNT:
            counts = [(count + 1) // 2 for count in counts]
        return UsualGaps(tuple(counts), self.total + 1, max(self.longest, seconds))

    @property
    def high(self) -> float:
        """A gap that is rarely exceeded; 0 if nothing was learnt yet. Never more than the longest."""
        wanted, seen = HIGH_QUANTILE * sum(self.counts), 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return min(float(2**bucket), self.longest)
        return 0.0


def _bucket(seconds: float) -> int:
    return min(BUCKETS - 1, max(0, math.ceil(math.log2(seconds)))) if seconds > 1 else 0
