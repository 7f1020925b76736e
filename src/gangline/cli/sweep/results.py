"""What a sweep leaves: the table as CSV, a picture of all trials, and a folder with the logs of each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.base.errors import InputError
from gangline.cli.follow.view import number
from gangline.cli.output.curve import Point, comparison
from gangline.cli.run.keeping import Keeping
from gangline.cli.sweep.leaderboard import LINES, Board, as_csv, labels, told


class SweepFolder:
    """`<runs>/<job>-sweep/`. What an earlier sweep of the same name left there is replaced."""

    def __init__(self, runs: Path, job: str) -> None:
        self.folder = runs / f"{job}-sweep"
        self.csv, self.svg = self.folder / "sweep.csv", self.folder / "sweep.svg"
        self._trouble, self._trials = "", list[Keeping]()

    @property
    def trouble(self) -> str:
        """Why not all was written, if not: on a full disk a sweep goes on, and tells it at the end."""
        return next(filter(None, (self._trouble, *(trial.trouble for trial in self._trials))), "")

    def prepare(self) -> None:
        """Make the folder, without what an earlier sweep wrote. Raises `InputError` where that cannot be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.csv.unlink(missing_ok=True)
            self.svg.unlink(missing_ok=True)
            for folder in self.folder.glob("trial-*"):
                self._trial(folder.name).prepare()
                # Anything of somebody else's keeps it.
                with suppress(OSError):
                    folder.rmdir()
        except OSError as error:
            raise InputError(f"{self.folder}: {error.strerror}; give another folder with --runs") from error

    @property
    def artifacts(self) -> Path:
        """Where programs leave what they make, beside their logs, as a node takes it: a trial has its own namespace."""
        return self.folder.absolute() / "{namespace}" / "artifacts"

    def tidy(self) -> None:
        """Remove the folders in which programs left nothing."""
        for folder in self.folder.glob("trial-*/artifacts"):
            with suppress(OSError):
                folder.rmdir()

    def trial(self, at: int) -> Keeping:
        """Where a trial keeps its logs; made now."""
        keeping = self._trial(f"trial-{at}")
        self._trials.append(keeping)
        with self._trying():
            keeping.prepare()
        return keeping

    def _trial(self, name: str) -> Keeping:
        return Keeping(self.folder, name)

    def table(self, board: Board) -> None:
        """The CSV, whole or not at all: whoever reads it meanwhile never sees half of it."""
        new = self.csv.with_suffix(".csv.new")
        with self._trying():
            new.write_text(as_csv(board), encoding="utf-8")
            new.replace(self.csv)

    def picture(self, board: Board, curves: Mapping[int, Sequence[Point]]) -> Path | None:
        """The curves of all trials, the best ones named; None if there is nothing to draw, or no room for it."""
        lines = {at: points for at, points in curves.items() if len(points) > 1}
        named = labels(board.rows)
        best = [row for row in board.ranked() if row.number in lines][:LINES]
        first = {row.number for row in best}
        if not lines:
            return None
        metric = board.aim.metric
        svg = comparison(
            {f"{told(row, named)}  {number(row.value or 0.0)}": lines[row.number] for row in best},
            [points for at, points in lines.items() if at not in first],
            f"{metric} of {len(lines)} trials",
            rises=board.aim.most,
        )
        with self._trying():
            self.svg.write_text(svg, encoding="utf-8")
        return self.svg if not self._trouble else None

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            self._trouble = self._trouble or str(error)
        except OSError as error:
            self._trouble = self._trouble or f"not all was kept in {self.folder}/: {error.strerror}"
