"""The folder in which a job's programs leave what they make. It stays after the run, unless nothing is in it."""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.output.curve import Point, curve_svg
from gangline.local.home import PlaneHome


class ArtifactFolders(NamedTuple):
    """Where the jobs of a run have their folders."""

    # With {namespace} and {job} in it, as the node takes it.
    pattern: Path
    # How many folders above belong to it, and go with it.
    parent_depth: int = 0

    def folder(self, job: Key) -> Path:
        """The folder of a job."""
        return Path(str(self.pattern).replace("{namespace}", job.namespace).replace("{job}", job.name))

    def removable_folders(self, job: Key) -> list[Path]:
        """The folder of a job, and those above it, in the order in which they can be removed."""
        folder = self.folder(job)
        return [folder, *folder.parents[: self.parent_depth]]


def state_artifacts(home: PlaneHome) -> ArtifactFolders:
    """In the user's state folder."""
    return ArtifactFolders(home.artifacts / "{namespace}" / "{job}", parent_depth=2)


def run_artifacts(runs: Path) -> ArtifactFolders:
    """Where a run is kept."""
    return ArtifactFolders(runs.absolute() / "{job}" / "artifacts")


@contextmanager
def provide_artifacts(artifacts: ArtifactFolders, jobs: Sequence[Key]) -> Iterator[None]:
    """The folders of jobs are there until the block ends; then those go that are empty.

    Another run that uses the same one keeps it. Where one cannot be made there is none.
    """
    with ExitStack() as stack:
        for job in jobs:
            with suppress(OSError):
                stack.enter_context(_locked_folder(artifacts.removable_folders(job)))
        yield


@contextmanager
def _locked_folder(folders: Sequence[Path]) -> Iterator[None]:
    folders[0].mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(folders[0], os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_SH)
        yield
    finally:
        _unlock_and_prune(held, folders)


def remove_empty_artifacts(home: PlaneHome) -> None:
    """Of the folders of all jobs in the user's state those go that are empty, unless a run uses them."""
    for folder in home.artifacts.glob("*/*"):
        with suppress(OSError):
            found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            _unlock_and_prune(found, [folder, folder.parent, home.artifacts])


def _unlock_and_prune(held: int, folders: Sequence[Path]) -> None:
    """Remove them in this order, up to the first that has something in it; none while somebody else holds the first."""
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in folders:
                folder.rmdir()
    finally:
        os.close(held)


class RunFolder:
    """Writes into a folder of the job's own. What an earlier run of the same name left there is replaced."""

    def __init__(self, runs: Path, job: str) -> None:
        self.folder = runs / job
        self.write_error = ""
        """Why not all was written, if not."""

    def prepare(self) -> None:
        """Make the folder, and empty it of logs. Raises `InputError` where that cannot be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in (*self.folder.glob("*.log"), *self.folder.glob("*.svg"), self.folder / "job.json"):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: {error.strerror}; give another folder with --runs") from error

    def add_line(self, member: str, text: str) -> None:
        """Add a line to a member's log. Written at once: a run that is killed keeps what it had."""
        file = self.folder / f"{member}.log"
        with self._record_errors(), file.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{text}\n")

    def write_job(self, body: JSON) -> None:
        """The job as it ended."""
        data = msgspec.json.format(msgspec.json.encode(body), indent=2)
        with self._record_errors():
            (self.folder / "job.json").write_bytes(data + b"\n")

    def write_curve(self, lines: Mapping[str, Sequence[Point]], metric: str) -> Path | None:
        """A picture of what members reported; None when they reported nothing, or it cannot be written."""
        drawn = {name: points for name, points in sorted(lines.items()) if len(points) > 1}
        if not drawn:
            return None
        file = self.folder / f"{metric.replace('/', '-')}.svg"
        with self._record_errors():
            file.write_text(curve_svg(drawn, f"{metric} of {self.folder.name}", metric), encoding="utf-8")
        return file if not self.write_error else None

    @contextmanager
    def _record_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.write_error = self.write_error or f"not all was kept in {self.folder}/: {error.strerror}"
