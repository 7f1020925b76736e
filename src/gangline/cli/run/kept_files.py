"""The folder in which a job's programs leave what they make. It stays after the run, unless nothing is in it."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from gangline.api.meta import Key
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
