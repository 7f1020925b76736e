"""A history in an object store: segments are copied there while they are written, and read from there.

It needs the extra `gangline[objectstore]`: fsspec, with the package that it names for the store (s3fs, gcsfs, adlfs).
"""

from pathlib import Path
from typing import Any

from gangline.base.errors import InputError
from gangline.history.records import SegmentIndex
from gangline.history.retention import ClosedSegment, HistoryLimits, expired_segments, segment_paths
from gangline.history.segments import index_in, parse_name

TAIL_BYTES = 64 * 2**10
"""Bytes that are read first of a segment's end: most indexes are shorter."""


def open_history(place: str) -> "Path | ObjectStoreSegments":
    """The segments in a folder, or at a URL such as `s3://bucket/history`. Raises `InputError`."""
    return ObjectStoreSegments(place) if "://" in place else Path(place)


class ObjectStoreSegments:
    """The segments below a URL. Raises `InputError` if it cannot be used."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self._files, self._root = url_to_fs(url)
        except ImportError as error:
            raise InputError(f"{url}: needs more packages: pip install 'gangline[objectstore]' ({error})") from error
        except ValueError as error:
            raise InputError(f"{url}: is no address of an object store: {error}") from error
        self.url = url

    def names(self) -> list[str]:
        return sorted(self._sizes())

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(self._path(name))
        return data

    def index(self, name: str) -> SegmentIndex | None:
        found = index_in(self._files.cat_file(self._path(name), start=-TAIL_BYTES))
        if isinstance(found, int):
            found = index_in(self._files.cat_file(self._path(name), start=-found))
        return found if isinstance(found, SegmentIndex) else None

    def upload(self, folder: Path, limits: HistoryLimits, now: float) -> None:
        """Copy the segments of a folder that are new or have grown, and remove those beyond the limits. Raises OSError."""
        try:
            self._upload(folder, limits, now)
        except Exception as error:  # each kind of store has its own errors
            raise OSError(f"{self.url}: {error}") from error

    def _upload(self, folder: Path, limits: HistoryLimits, now: float) -> None:
        self._files.makedirs(self._root, exist_ok=True)
        there = self._sizes()
        local = {path.name: path for path in segment_paths(folder)}
        sizes = there | {name: path.stat().st_size for name, path in local.items()}
        began = {name: parts.began_ms / 1000 for name in sizes if (parts := parse_name(name)) is not None}
        stored = [ClosedSegment(Path(name), sizes[name], began[name]) for name in began]
        expired = {path.name for path in expired_segments(stored, limits, now)}
        for name, path in local.items():
            if name not in expired and there.get(name) != sizes[name]:
                self._files.pipe_file(self._path(name), path.read_bytes())
        for name in expired & there.keys():
            self._files.rm_file(self._path(name))

    def _sizes(self) -> dict[str, int]:
        try:
            listed: list[dict[str, Any]] = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        names = {str(item["name"]).rpartition("/")[2]: int(item["size"] or 0) for item in listed}
        return {name: size for name, size in names.items() if parse_name(name) is not None}

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"
