"""Files that outlive a run: the artifact folders of programs, and the run folder with logs, job, curve and timeline."""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.base.files import private_folder, private_opener, write_private
from gangline.cli.output.curve import AxisMark, Point, curve_svg
from gangline.local.home import PlaneHome
from gangline.timeline.model import TeamTimeline


class ArtifactFolders(NamedTuple):
    """The folders in which the programs of each job may leave files. Empty ones are removed after the run."""

    # With the placeholders {namespace} and {job}, as the node expects it.
    pattern: Path
    # How many of its parent folders are removed with it if they are empty.
    parent_depth: int = 0

    def folder(self, job: Key) -> Path:
        """The artifact folder of a job."""
        return Path(str(self.pattern).replace("{namespace}", job.namespace).replace("{job}", job.name))

    def removable_folders(self, job: Key) -> list[Path]:
        """The artifact folder of a job and its removable parents, innermost first."""
        folder = self.folder(job)
        return [folder, *folder.parents[: self.parent_depth]]


def state_artifacts(home: PlaneHome) -> ArtifactFolders:
    """Artifact folders in the user's state folder."""
    return ArtifactFolders(home.artifacts / "{namespace}" / "{job}", parent_depth=2)


def run_artifacts(runs: Path) -> ArtifactFolders:
    """Artifact folders in the run folder, for `--keep`."""
    return ArtifactFolders(runs.absolute() / "{job}" / "artifacts")


@contextmanager
def provide_artifacts(artifacts: ArtifactFolders, jobs: Sequence[Key]) -> Iterator[None]:
    """Create the jobs' artifact folders for the block, and remove the empty ones at its end.

    A folder that another run uses too is not removed. A folder that cannot be created is left out silently.
    """
    with ExitStack() as stack:
        for job in jobs:
            with suppress(OSError):
                stack.enter_context(_locked_folder(artifacts.removable_folders(job)))
        yield


@contextmanager
def _locked_folder(folders: Sequence[Path]) -> Iterator[None]:
    private_folder(folders[0])
    descriptor = os.open(folders[0], os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        _unlock_and_prune(descriptor, folders)


def remove_empty_artifacts(home: PlaneHome) -> None:
    """Remove all empty artifact folders in the user's state folder that no run uses."""
    for folder in home.artifacts.glob("*/*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            _unlock_and_prune(descriptor, [folder, folder.parent, home.artifacts])


def _unlock_and_prune(descriptor: int, folders: Sequence[Path]) -> None:
    """Remove the folders in this order, up to the first that is not empty; none while another run locks the first.

    Closes the descriptor of the first folder.
    """
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in folders:
                folder.rmdir()
    finally:
        os.close(descriptor)


class RunFolder:
    """Writes logs, job, curve and timeline into `<runs>/<job>/`, replacing those of an earlier run of the same name."""

    def __init__(self, runs: Path, job: str) -> None:
        self.folder = runs / job
        self.write_error = ""
        """The first write error; empty if everything was written."""

    def prepare(self) -> None:
        """Create the folder, and remove the files of an earlier run. Raises `InputError` where that fails."""
        try:
            private_folder(self.folder)
            for file in (*self.folder.glob("*.log"), *self.folder.glob("*.svg"), self.folder / "job.json"):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: {error.strerror}; give another folder with --runs") from error

    def add_line(self, replica: str, text: str) -> None:
        """Append a line to the replica's log file, at once: the file of a killed run is complete up to then."""
        file = self.folder / f"{replica}.log"
        with (
            self._record_errors(),
            open(file, "a", encoding="utf-8", errors="replace", opener=private_opener) as log,
        ):
            log.write(f"{text}\n")

    def write_job(self, body: JSON) -> None:
        """Write the final job as `job.json`."""
        data = msgspec.json.format(msgspec.json.encode(body), indent=2)
        with self._record_errors():
            write_private(self.folder / "job.json", data + b"\n")

    def write_curve(
        self, curves: Mapping[str, Sequence[Point]], metric: str, marks: Sequence[AxisMark] = ()
    ) -> Path | None:
        """Draw the replicas' curves as SVG; None if there are none, or the file cannot be written."""
        from gangline.timeline.curves import prefers_log

        lines = {name: points for name, points in sorted(curves.items()) if len(points) > 1}
        if not lines:
            return None
        file = self.folder / f"{metric.replace('/', '-')}.svg"
        with self._record_errors():
            log = prefers_log([point.value for points in lines.values() for point in points])
            title = f"{metric} of {self.folder.name}"
            write_private(file, curve_svg(lines, title, metric, marks=marks, log=log).encode())
        return file if not self.write_error else None

    def write_timeline(self, timeline: TeamTimeline) -> Path | None:
        """Draw the timeline as SVG; None if there is nothing to draw, or the file cannot be written."""
        from gangline.timeline.svg import timeline_svg

        picture = timeline_svg(timeline)
        if not picture:
            return None
        file = self.folder / "timeline.svg"
        with self._record_errors():
            write_private(file, picture.encode())
        return file if not self.write_error else None

    @contextmanager
    def _record_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.write_error = self.write_error or f"not all was kept in {self.folder}/: {error.strerror}"
