"""Bounds a history by size and age: the oldest segments go. Segments that a killed process left open are closed."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.history.replay import SegmentReplay
from gangline.history.segments import (
    SUFFIX,
    HistoryDamaged,
    close_segment,
    is_in_use,
    parse_name,
    read_index,
    read_text,
)

LEFTOVER_SECONDS = 3600.0
"""The age from which a file that was not finished is removed."""


class HistoryLimits(msgspec.Struct, frozen=True):
    """How much history stays, and in which portions it goes."""

    max_bytes: int = 512 * 2**20
    max_age: timedelta = timedelta(days=30)
    segment_bytes: int = 4 * 2**20
    """Bytes of changes, not compressed, after which a segment may be closed."""


class ClosedSegment(NamedTuple):
    """A segment that nobody writes any more."""

    path: Path
    size: int
    end: float


def segment_paths(folder: Path) -> list[Path]:
    """The files of a history, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if parse_name(path.name) is not None)


def tidy(folder: Path, limits: HistoryLimits, now: float) -> None:
    """Close segments that were left open, and remove those beyond the limits. Safe with other writers."""
    closed, open_bytes = [], 0
    for path in segment_paths(folder):
        # Another process may remove it meanwhile.
        with suppress(FileNotFoundError):
            if is_in_use(path):
                open_bytes += path.stat().st_size
                continue
            index = read_index(path)
            end = index.end if index is not None else _close_segment(path)
            if end is not None:
                closed.append(ClosedSegment(path, path.stat().st_size, end))
    for path in folder.glob(f".*{SUFFIX}.*.new"):
        # Left by a process that was killed while it closed a segment.
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < now - LEFTOVER_SECONDS:
                path.unlink()
    for path in expired_segments(closed, limits, now, open_bytes):
        path.unlink(missing_ok=True)


def expired_segments(closed: list[ClosedSegment], limits: HistoryLimits, now: float, open_bytes: int = 0) -> list[Path]:
    """The segments to remove: those that ended too long ago, and the oldest while all are too large together. Pure."""
    total = open_bytes + sum(segment.size for segment in closed)
    expired = []
    for segment in sorted(closed, key=lambda segment: segment.end):
        too_old = segment.end < now - limits.max_age.total_seconds()
        if too_old or total > limits.max_bytes:
            expired.append(segment.path)
            total -= segment.size
    return expired


def _close_segment(path: Path) -> float | None:
    """Close a segment that a killed process left open. Returns when it ends; None for a file that is none of ours."""
    try:
        text = read_text(path.read_bytes())
        replay = SegmentReplay(text, path.name)
    except HistoryDamaged:
        return None
    if replay.start is None:
        return path.stat().st_mtime
    index = replay.index()
    # On a full disk it stays open: it can be read all the same, only slower.
    with suppress(OSError):
        close_segment(path, text.splitlines(), index)
    return index.end
