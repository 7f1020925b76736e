"""Replaces all files of a volume at once, as the kubelet's AtomicWriter does."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gangline.node.volumes.files import VolumeFile, VolumeMissing

DATA_LINK = "..data"
"""In a volume made of objects: a link to the folder that holds the files. The links beside it lead through it."""


def write_files(folder: Path, files: Iterable[VolumeFile]) -> None:
    """Replace the contents of the folder by these files: a reader sees all old files or all new ones.

    Does nothing when the folder has these contents already. Raises `VolumeMissing` for a path that leaves the folder,
    and for two files that the disk takes for one.
    """
    new_files = list(files)
    current = folder / DATA_LINK
    if current.is_dir() and _folder_contents(current) == {file.path: (file.content, file.mode) for file in new_files}:
        return
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    try:
        _write_folder(fresh, new_files)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    link = folder / f"{DATA_LINK}_new"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    old = current.readlink() if current.is_symlink() else None
    link.replace(current)
    _update_links(folder, {file.path.partition("/")[0] for file in new_files})
    if old is not None:
        shutil.rmtree(folder / old, ignore_errors=True)


def path_within(folder: Path, path: str) -> Path:
    """A path inside a folder. Raises `VolumeMissing` for a path that leaves the folder."""
    full = Path(os.path.normpath(folder / path))
    if not full.is_relative_to(folder):
        raise VolumeMissing(f"path {path!r} leaves its volume")
    return full


def _folder_contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and mode of every file below a folder, by path."""
    files = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return {str(file.relative_to(folder)): (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) for file in files}


def _write_folder(folder: Path, files: Iterable[VolumeFile]) -> None:
    written: set[Path] = set()
    for file in files:
        path = path_within(folder, file.path)
        if path not in written and path.exists():
            # The usual disk of macOS takes A and a for one name.
            raise VolumeMissing(
                f"{file.path!r} and another file of the volume have one name on this disk; rename a key"
            )
        written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Never readable by others, not even for a moment.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            target.write(file.content)
            os.fchmod(descriptor, file.mode)


def _update_links(folder: Path, names: set[str]) -> None:
    """Make the visible links of the volume lead to these names, and to no others."""
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA_LINK}/{name}")
    for link in folder.iterdir():
        if link.is_symlink() and link.name not in (*names, DATA_LINK):
            link.unlink()
