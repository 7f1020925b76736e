"""Private files."""

import os
from pathlib import Path


def write_private(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that only its owner can read. Atomic: readers see the old content or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)
