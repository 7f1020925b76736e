"""A file system tree as a value: paths and what is there. Image layers are written from it, and it from packages."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

MERGED = ("bin", "sbin", "lib", "lib64")
"""Folders of the root that are links into /usr, as on every installed Debian."""


class Node(NamedTuple):
    """What is at a path: a folder, a symbolic link with its target, or a file with its content."""

    mode: int
    content: bytes | Path | None = None
    target: str | None = None
    owner: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder."""
        return self.content is None and self.target is None

    def read(self) -> bytes:
        """The content of a file."""
        if isinstance(self.content, Path):
            return self.content.read_bytes()
        assert self.content is not None
        return self.content


Tree = dict[str, Node]
"""By path below the root, without a slash at either end."""


def folder(mode: int = 0o755, owner: int = 0) -> Node:
    """A folder."""
    return Node(mode, owner=owner)


def link(target: str) -> Node:
    """A symbolic link."""
    return Node(0o777, target=target)


def file(content: bytes | str | Path, mode: int = 0o644) -> Node:
    """A file. Text is written as UTF-8."""
    return Node(mode, content.encode() if isinstance(content, str) else content)


def plain_mode(mode: int) -> int:
    """A file's mode without accidents of umask: executable or not. Set-user-id bits are dropped."""
    return 0o755 if mode & 0o100 else 0o644


def merged_path(path: str) -> str:
    """Where a path of a package is once /bin, /lib and their like are links into /usr."""
    return f"usr/{path}" if path.split("/", 1)[0] in MERGED else path


def with_parents(tree: Mapping[str, Node]) -> Tree:
    """The tree with every folder that its paths need, parents before children, in order."""
    parents = {str(parent) for path in tree for parent in Path(path).parents} - {"."}
    complete = {parent: folder() for parent in parents} | dict(tree)
    return dict(sorted(complete.items()))


def below(root: Path, prefix: str = "", keep: Callable[[str], bool] = lambda _path: True) -> Iterator[tuple[str, Node]]:
    """Files and links below a folder of this machine, by path below `prefix`. Contents are read when they are needed."""
    for at, folders, names in os.walk(root):
        folders.sort()
        for name in sorted([*names, *(each for each in folders if Path(at, each).is_symlink())]):
            source = Path(at, name)
            path = os.path.normpath(f"{prefix}/{source.relative_to(root)}").lstrip("/")
            if not keep(path):
                continue
            if source.is_symlink():
                yield path, link(str(source.readlink()))
            elif stat.S_ISREG(mode := source.stat().st_mode):
                yield path, file(source, plain_mode(mode))


def write(tree: Mapping[str, Node], root: Path) -> None:
    """Write a tree below a folder of this machine. Owners are not set."""
    root.mkdir(parents=True, exist_ok=True)
    for path, node in with_parents(tree).items():
        place = root / path
        if node.target is not None:
            place.unlink(missing_ok=True)
            place.symlink_to(node.target)
        elif node.is_folder:
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(node.mode)
        else:
            place.write_bytes(node.read())
            place.chmod(node.mode)


def size(nodes: Iterable[Node]) -> int:
    """Bytes of all files."""
    return sum(
        node.content.stat().st_size if isinstance(node.content, Path) else len(node.content)
        for node in nodes
        if node.content is not None
    )
