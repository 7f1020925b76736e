"""What a run leaves behind when asked to: logs as they came, the job as it ended, its curve.

Where something cannot be written, on a full disk say, the run is what it was, and at the end it is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.output.curve import Point, curve_svg


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
