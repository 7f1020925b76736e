"""The options of the history that a plane records."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from gangline.base.options import option_group, value_option
from gangline.cli.flags.durations import duration_option

if TYPE_CHECKING:
    from gangline.history.retention import HistoryLimits

MEGABYTE = 10**6


class HistoryOptions(NamedTuple):
    """The history options, as given on the command line."""

    history: bool
    history_size: int
    history_age: timedelta
    history_mirror: str

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> Self:
        """Take the history options out of the options of a command."""
        return cls(*(options.pop(name) for name in cls._fields))

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        if not self.history:
            return ["--no-history"]
        age = f"{self.history_age.total_seconds()}s"
        mirror = ["--history-mirror", self.history_mirror] if self.history_mirror else []
        return ["--history-size", str(self.history_size), "--history-age", age, *mirror]

    def limits(self) -> "HistoryLimits | None":
        """How much is kept; None if nothing is recorded."""
        from gangline.history.retention import HistoryLimits

        return HistoryLimits(self.history_size * MEGABYTE, self.history_age) if self.history else None

    def mirror(self, folder: Path) -> "Callable[[float], object] | None":
        """Copies the history of a folder to the object store, given the time; None without one. Raises `InputError`."""
        limits = self.limits()
        if not self.history_mirror or limits is None:
            return None
        from gangline.history.objectstore import ObjectStoreSegments

        store = ObjectStoreSegments(self.history_mirror)
        return lambda now: store.upload(folder, limits, now)


history_options = option_group(
    click.option(
        "--history/--no-history",
        default=True,
        help="Record what changes, so that it can be shown later.  [default: --history]",
    ),
    value_option(
        "--history-size", 512, "The oldest records go beyond this size.", type=click.IntRange(min=1), metavar="MB"
    ),
    duration_option("--history-age", "30d", "Records that are older than this go."),
    click.option(
        "--history-mirror",
        default="",
        metavar="URL",
        help="Copy the history there once a minute, such as s3://bucket/history; needs gangline[objectstore].",
    ),
)
"""Adds the history options to a command, which takes them out of its options with `HistoryOptions.take_from`."""
