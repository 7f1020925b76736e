"""Paths beneath a folder that others write into: no link in it leads out, at whatever moment it is made."""

import errno
import os
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from gangline.node.volumes.files import VolumeMissing

MAX_LINKS = 40
"""How many links are followed, as in the kernel."""
# Linux alone opens a path without the right to read it.
_OPEN_FLAGS = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW


def resolve_beneath(folder: Path, path: str, *, create: bool) -> Path:
    """The path without links, like `openat2` with RESOLVE_BENEATH: links are followed as long as they stay inside.

    Every step is taken from a folder that is open and opens no link, so it does not matter who changes what meanwhile.
    Whoever uses the path later follows the links that were made since.
    With `create`, missing folders are made. Raises `VolumeMissing` for a path that leaves the folder or does not exist.
    """
    if path.startswith("/") or ".." in path.split("/"):
        raise VolumeMissing(f"path {path!r} leaves its volume")
    try:
        if create and not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            return _walk(folder, path, stack, create=create)
    except OSError as error:
        raise VolumeMissing(f"path {path!r} of a volume: {error.strerror}") from error


def _walk(folder: Path, path: str, stack: ExitStack, *, create: bool) -> Path:
    root = folder.resolve(strict=True)
    # The open folders from the root to where we are, and their names below the root.
    descriptors, names = [_open(root, None, stack)], [""]
    mode = stat.S_IMODE(os.fstat(descriptors[0]).st_mode)
    pending, links = _parts(path), 0
    while pending:
        name = pending.pop()
        if name == "..":
            if len(descriptors) == 1:
                raise VolumeMissing(f"path {path!r} leaves its volume")
            descriptors.pop()
            names.pop()
            continue
        here = descriptors[-1]
        link = _link_target(name, here)
        if link is not None:
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if link.startswith("/"):
                raise VolumeMissing(f"path {path!r} leaves its volume: {name!r} is a link to {link}")
            pending += _parts(link)
            continue
        try:
            descriptor = _open(Path(name), here, stack)
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=here)
            descriptor = _open(Path(name), here, stack)
        descriptors.append(descriptor)
        names.append(name)
    return root.joinpath(*names)


def _parts(path: str) -> list[str]:
    """The names of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _link_target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None  # no link, or nothing at all


def _open(path: Path, folder: int | None, stack: ExitStack) -> int:
    descriptor = os.open(path, _OPEN_FLAGS, dir_fd=folder)
    stack.callback(os.close, descriptor)
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        # It became a link after it was looked at. O_PATH opens the link itself.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return descriptor
