"""The marker of a store: a small file beside the database that knows what the database must contain.

A database that was emptied, replaced or put back to an older state looks like a good one. The marker tells.
"""

from pathlib import Path

import msgspec

from gangline.apiserver.store.errors import StoreDamaged
from gangline.base.files import write_private

MARKER_FILE = "marker.json"


class StoreMarker(msgspec.Struct, frozen=True):
    """What is known of a store."""

    cluster: str
    revision: int
    """The store has reached this revision."""
    inserted: int
    """The number of changes that were ever inserted, when it was closed cleanly."""
    is_clean: bool
    """Whether it was closed cleanly: nothing is left in the write-ahead log."""


def read_marker(folder: Path) -> StoreMarker | None:
    """The marker in a folder; None if there is none, or it is unreadable."""
    try:
        return msgspec.json.decode((folder / MARKER_FILE).read_bytes(), type=StoreMarker)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def write_marker(folder: Path, marker: StoreMarker) -> None:
    """Replace the marker, durably. Raises `OSError`."""
    write_private(folder / MARKER_FILE, msgspec.json.encode(marker), durable=True)


def check_files(file: Path, log: Path, marker: StoreMarker) -> None:
    """Raise `StoreDamaged` when files of the database are lost. Opens none of them."""
    if not file.exists() or file.stat().st_size == 0:
        what = "empty" if file.exists() else "missing"
        raise StoreDamaged(file, f"the file is {what}, and the store was at revision {marker.revision}")
    if not marker.is_clean and not log.exists():
        raise StoreDamaged(file, f"{log.name} is missing, and with it the last writes")


def check_contents(file: Path, marker: StoreMarker, found: StoreMarker) -> None:
    """Raise `StoreDamaged` when the contents are not those that the marker knows."""
    if found.cluster != marker.cluster:
        raise StoreDamaged(file, f"it is of another plane ({found.cluster}, not {marker.cluster})")
    if found.revision < marker.revision:
        raise StoreDamaged(file, f"it is at revision {found.revision}, and was at {marker.revision} already")
    if marker.is_clean and found.inserted != marker.inserted:
        raise StoreDamaged(file, f"it has {found.inserted} changes, and had {marker.inserted} when it was closed")
