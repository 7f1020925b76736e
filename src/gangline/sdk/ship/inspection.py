"""Looks for credentials among the files that are about to be shipped: by name, by content, and behind links."""

import os.path
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gangline.sdk.ship.archive import FileList, open_file
from gangline.sdk.ship.credentials import (
    SCANNED_BYTES,
    SecretFinding,
    credential_form,
    credential_name,
    secret_lines,
)

MAX_NAMED = 10
"""How many files a message names."""
_FIRST_BYTES = 8192


class FolderInspection(NamedTuple):
    """The files that must not be shipped unless the user insists, and the lines that look like a secret."""

    refused: tuple[SecretFinding, ...]
    suspicious: tuple[SecretFinding, ...]


def inspect_files(files: FileList) -> FolderInspection:
    """Look at every file once. Raises `InputError` if one cannot be read."""
    refused: list[SecretFinding] = []
    suspicious: list[SecretFinding] = []
    for item in files.files:
        file = files.folder / item.path
        what = credential_name(item.path) or _linked_credential(files.folder, file)
        head = b"" if what else _text_head(file)
        what = what or credential_form(item.path, head)
        if what:
            refused.append(SecretFinding(item.path, what))
        else:
            suspicious.extend(secret_lines(item.path, head))
    return FolderInspection(tuple(refused), tuple(suspicious))


def _linked_credential(folder: Path, file: Path) -> str:
    """What a link leads to, if that should not be shipped; else empty. Links to links are followed."""
    if not file.is_symlink():
        return ""
    target = Path(os.path.realpath(file))
    if not target.is_relative_to(folder):
        return "a link out of the folder"
    what = credential_name(target.relative_to(folder).as_posix())
    return f"a link to {what}" if what else ""


def _text_head(file: Path) -> bytes:
    """The first part of a text; empty for a binary file."""
    with open_file(file) as opened:
        first = opened.read(_FIRST_BYTES)
        if b"\0" in first:
            return b""
        return first + opened.read(SCANNED_BYTES - len(first))


def refusal_message(folder: Path, refused: Sequence[SecretFinding], flag: str) -> str:
    """The error about files that are not shipped, with all that can be done. `flag` ships them all the same."""
    return (
        f"{folder}: is not shipped, because it contains what looks like credentials: {named_files(refused)}; leave them "
        f"out with .gitignore or .ganglineignore, and give them to the job as a Secret; or ship them with {flag}"
    )


def named_files(findings: Sequence[SecretFinding]) -> str:
    """The files with what they are; the first ones, if there are many."""
    names = [f"{printable(path)} ({what})" for path, what, _ in findings[:MAX_NAMED]]
    more = len(findings) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def suspicion_lines(findings: Sequence[SecretFinding]) -> Iterator[str]:
    """A line for each finding, without the secret; the first ones, if there are many."""
    for path, what, line in findings[:MAX_NAMED]:
        yield f"{printable(path)}:{line}: looks like {what}; who may read the job's objects in the cluster can read it"
    if len(findings) > MAX_NAMED:
        yield f"{len(findings) - MAX_NAMED} more lines look like secrets"


def printable(path: str) -> str:
    """A path in one line, whatever characters it has."""
    return path if path.isprintable() else ascii(path)
