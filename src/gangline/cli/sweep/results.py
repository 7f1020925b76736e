"""The folder of a sweep: the leaderboard as CSV, a picture of all trials, and a run folder for each trial."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.base.errors import InputError
from gangline.cli.output.curve import Point, comparison_svg
from gangline.cli.output.text import number_text
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.sweep.leaderboard import MAX_NAMED_CURVES, Leaderboard, leaderboard_csv, parameter_labels, trial_label


class SweepFolder:
    """Writes into `<runs>/<job>-sweep/`, replacing the files of an earlier sweep of the same name."""

    def __init__(self, runs: Path, job: str) -> None:
        self.folder = runs / f"{job}-sweep"
        self.csv, self.svg = self.folder / "sweep.csv", self.folder / "sweep.svg"
        self._write_error, self._trial_folders = "", list[RunFolder]()

    @property
    def write_error(self) -> str:
        """The first write error, or empty: on a full disk the sweep continues and reports the error at the end."""
        return next(filter(None, (self._write_error, *(trial.write_error for trial in self._trial_folders))), "")

    def prepare(self) -> None:
        """Create the folder and remove the files of an earlier sweep. Raises `InputError` where that fails."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.csv.unlink(missing_ok=True)
            self.svg.unlink(missing_ok=True)
            for folder in self.folder.glob("trial-*"):
                self._trial_folder(folder.name).prepare()
                # A folder with files that are not ours is kept.
                with suppress(OSError):
                    folder.rmdir()
        except OSError as error:
            raise InputError(f"{self.folder}: {error.strerror}; give another folder with --runs") from error

    @property
    def artifacts_pattern(self) -> Path:
        """The artifact folders as a pattern for the node, beside the logs: every trial has a namespace of its own."""
        return self.folder.absolute() / "{namespace}" / "artifacts"

    def remove_empty_artifacts(self) -> None:
        """Remove the artifact folders that stayed empty."""
        for folder in self.folder.glob("trial-*/artifacts"):
            with suppress(OSError):
                folder.rmdir()

    def open_trial(self, number: int) -> RunFolder:
        """Create the run folder of a trial."""
        folder = self._trial_folder(f"trial-{number}")
        self._trial_folders.append(folder)
        with self._record_errors():
            folder.prepare()
        return folder

    def _trial_folder(self, name: str) -> RunFolder:
        return RunFolder(self.folder, name)

    def write_table(self, board: Leaderboard) -> None:
        """Replace the CSV atomically: a reader never sees half of it."""
        new = self.csv.with_suffix(".csv.new")
        with self._record_errors():
            new.write_text(leaderboard_csv(board), encoding="utf-8")
            new.replace(self.csv)

    def write_picture(self, board: Leaderboard, curves: Mapping[int, Sequence[Point]]) -> Path | None:
        """Draw the curves of all trials, the best ones named; None if there are none, or the file cannot be written."""
        lines = {number: points for number, points in curves.items() if len(points) > 1}
        labels = parameter_labels(board.rows)
        best = [row for row in board.ranked_rows() if row.number in lines][:MAX_NAMED_CURVES]
        best_numbers = {row.number for row in best}
        if not lines:
            return None
        metric = board.objective.metric
        svg = comparison_svg(
            {f"{trial_label(row, labels)}  {number_text(row.value or 0.0)}": lines[row.number] for row in best},
            [points for number, points in lines.items() if number not in best_numbers],
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
