"""The model of a disk: what survives a power loss of what a recorded process did.

- The content of a file survives as far as it was synced. Of later writes any 512-byte sectors survive, in any
  combination: they may be torn and reordered. A later truncation survives or not.
- An entry of a folder (created, renamed, removed) survives once the folder was synced. Of later changes any survive.
"""

import platform
import random
import struct
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

SECTOR = 512
HEADER = struct.Struct("=IIQQ")


class Operation(IntEnum):
    """What was recorded, as in recorder.c."""

    CREATE = 1
    FIND = 2
    WRITE = 3
    TRUNCATE = 4
    SYNC = 5
    SYNC_FOLDER = 6
    RENAME = 7
    UNLINK = 8
    SAY = 9


class RecordedCall(NamedTuple):
    """One call of the recorded process. `data` is what was written, or the path."""

    operation: Operation
    file: int
    offset: int
    data: bytes


def build_recorder(folder: Path) -> Path:
    """Compile the recorder. Raises `RuntimeError` with the reason where that is not possible."""
    if platform.system() != "Linux":
        raise RuntimeError("LD_PRELOAD is Linux's")
    library = folder / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError("there is no C compiler (cc)") from None
    return library


def recorder_environment(library: Path, folder: Path, record: Path, says: Path) -> dict[str, str]:
    """The environment of a process that is to be recorded."""
    return {
        "LD_PRELOAD": str(library),
        "RECORDER_FOLDER": str(folder),
        "RECORDER_LOG": str(record),
        "RECORDER_SAYS": str(says),
    }


def read_record(file: Path) -> Iterator[RecordedCall]:
    content, at = file.read_bytes(), 0
    while at < len(content):
        operation, number, offset, size = HEADER.unpack_from(content, at)
        at += HEADER.size
        yield RecordedCall(Operation(operation), number, offset, content[at : at + size])
        at += size


class ModelFile:
    """A file: its synced content, and what was done to it since."""

    def __init__(self, content: bytes = b"") -> None:
        self.synced = bytearray(content)
        self.unsynced: list[RecordedCall] = []

    def sync(self) -> None:
        for call in self.unsynced:
            apply_call(self.synced, call)
        self.unsynced.clear()

    def after_loss(self, chance: random.Random, survival: float) -> bytes:
        """The content after a power loss, in which unsynced sectors survive with this probability."""
        content = bytearray(self.synced)
        for call in self.unsynced:
            if call.operation is Operation.TRUNCATE:
                if chance.random() < survival:
                    apply_call(content, call)
                continue
            for sector in split_sectors(call):
                if chance.random() < survival:
                    apply_call(content, sector)
        return bytes(content)


def split_sectors(call: RecordedCall) -> Iterator[RecordedCall]:
    """A write as writes that each touch one sector of the disk."""
    start, end = call.offset, call.offset + len(call.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield call._replace(offset=start, data=call.data[start - call.offset : stop - call.offset])
        start = stop


def apply_call(content: bytearray, call: RecordedCall) -> None:
    if call.operation is Operation.TRUNCATE:
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
        return
    content.extend(bytes(max(0, call.offset - len(content))))
    content[call.offset : call.offset + len(call.data)] = call.data


class ModelDisk:
    """The disk of a recorded process, call by call."""

    def __init__(self, folder: Path) -> None:
        """The disk begins with the synced files of a folder."""
        self._files: dict[int, ModelFile] = {}
        self._entries: dict[str, ModelFile] = {}
        self._synced_entries: dict[str, ModelFile] = {}
        self._unsynced_changes: list[tuple[Operation, str, str, ModelFile]] = []
        for path in folder.rglob("*"):
            if path.is_file():
                self._entries[str(path.relative_to(folder))] = ModelFile(path.read_bytes())
        self._synced_entries |= self._entries
        self.statements: list[str] = []

    def apply(self, call: RecordedCall) -> None:
        match call.operation:
            case Operation.CREATE:
                self._files[call.file] = file = ModelFile()
                self._change(Operation.CREATE, call.data.decode(), "", file)
            case Operation.FIND:
                self._files[call.file] = self._entries[call.data.decode()]
            case Operation.WRITE | Operation.TRUNCATE:
                self._files[call.file].unsynced.append(call)
            case Operation.SYNC:
                self._files[call.file].sync()
            case Operation.SYNC_FOLDER:
                self._sync_folder(call.data.decode())
            case Operation.RENAME:
                source, target = call.data.decode().split("\0")
                self._change(Operation.RENAME, source, target, self._entries[source])
            case Operation.UNLINK:
                path = call.data.decode()
                self._change(Operation.UNLINK, path, "", self._entries[path])
            case Operation.SAY:
                self.statements += call.data.decode().splitlines()

    def _change(self, operation: Operation, path: str, target: str, file: ModelFile) -> None:
        change_entries(self._entries, operation, path, target, file)
        self._unsynced_changes.append((operation, path, target, file))

    def _sync_folder(self, folder: str) -> None:
        later = []
        for change in self._unsynced_changes:
            if str(PurePosixPath(change[1]).parent) == (folder or "."):
                change_entries(self._synced_entries, *change)
            else:
                later.append(change)
        self._unsynced_changes = later

    def write_after_loss(self, folder: Path, chance: random.Random) -> None:
        """Write the files that a power loss leaves now."""
        survival = chance.choice((0.0, 1.0, chance.random()))
        entries = dict(self._synced_entries)
        for change in self._unsynced_changes:
            if chance.random() < survival:
                change_entries(entries, *change)
        for path, file in entries.items():
            (folder / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / path).write_bytes(file.after_loss(chance, chance.choice((survival, chance.random()))))


def change_entries(
    entries: dict[str, ModelFile], operation: Operation, path: str, target: str, file: ModelFile
) -> None:
    match operation:
        case Operation.CREATE:
            entries[path] = file
        case Operation.RENAME:
            # Also where the creation of the source was lost: the file may have got its second name only.
            entries.pop(path, None)
            entries[target] = file
        case Operation.UNLINK:
            entries.pop(path, None)
