"""What a sweep leaves: the table as CSV, a picture of all trials, and a folder with the logs of each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.base.errors import InputError
from gangline.cli.follow.view import number_text
from gangline.cli.output.curve import Point, comparison_svg
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.sweep.leaderboard import (
    MAX_NAMED_CURVES,
    Leaderboard,
    leaderboard_csv,
    parameter_labels,
    trial_label,
)


class SweepFolder:
    """`<runs>/<job>-sweep/`. What an earlier sweep of the same name left there is replaced."""

    def __init__(self, runs: Path, job: str) -> None:
        self.folder = runs / f"{job}-sweep"
        self.csv, self.svg = self.folder / "sweep.csv", self.folder / "sweep.svg"
        self._write_error, self._trial_folders = "", list[RunFolder]()

    @property
    def write_error(self) -> str:
        """Why not all was written, if not: on a full disk a sweep goes on, and tells it at the end."""
        return next(filter(None, (self._write_error, *(trial.write_error for trial in self._trial_folders))), "")

    def prepare(self) -> None:
        """Make the folder, without what an earlier sweep wrote. Raises `InputError` where that cannot be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.csv.unlink(missing_ok=True)
            self.svg.unlink(missing_ok=True)
            for folder in self.folder.glob("trial-*"):
                self._trial_folder(folder.name).prepare()
                # Anything of somebody else's keeps it.
                with suppress(OSError):
                    folder.rmdir()
        except OSError as error:
            raise InputError(f"{self.folder}: {error.strerror}; give another folder with --runs") from error

    @property
    def artifacts_pattern(self) -> Path:
        """Where programs leave what they make, beside their logs, as a node takes it: a trial has its own namespace."""
        return self.folder.absolute() / "{namespace}" / "artifacts"

    def remove_empty_artifacts(self) -> None:
        """Remove the folders in which programs left nothing."""
        for folder in self.folder.glob("trial-*/artifacts"):
            with suppress(OSError):
                folder.rmdir()

    def open_trial(self, at: int) -> RunFolder:
        """Where a trial keeps its logs; made now."""
        keeping = self._trial_folder(f"trial-{at}")
        self._trial_folders.append(keeping)
        with self._record_errors():
            keeping.prepare()
        return keeping

    def _trial_folder(self, name: str) -> RunFolder:
        return RunFolder(self.folder, name)

    def write_table(self, board: Leaderboard) -> None:
        """The CSV, whole or not at all: whoever reads it meanwhile never sees half of it."""
        new = self.csv.with_suffix(".csv.new")
        with self._record_errors():
            new.write_text(leaderboard_csv(board), encoding="utf-8")
            new.replace(self.csv)

    def write_picture(self, board: Leaderboard, curves: Mapping[int, Sequence[Point]]) -> Path | None:
        """The curves of all trials, the best ones named; None if there is nothing to draw, or no room for it."""
        lines = {at: points for at, points in curves.items() if len(points) > 1}
        named = parameter_labels(board.rows)
        best = [row for row in board.ranked_rows() if row.number in lines][:MAX_NAMED_CURVES]
        first = {row.number for row in best}
        if not lines:
            return None
        metric = board.objective.metric
        svg = comparison_svg(
            {f"{trial_label(row, named)}  {number_text(row.value or 0.0)}": lines[row.number] for row in best},
            [points for at, points in lines.items() if at not in first],
            f"{metric} of {len(lines)} trials",
            rises=board.objective.maximize,
        )
        with self._record_errors():
            self.svg.write_text(svg, encoding="utf-8")
        return self.svg if not self._write_error else None

    @contextmanager
    def _record_errors(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            self._write_error = self._write_error or str(error)
        except OSError as error:
            self._write_error = self._write_error or f"not all was kept in {self.folder}/: {error.strerror}"
