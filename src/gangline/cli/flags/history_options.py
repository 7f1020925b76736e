"""The options of the history that a plane records."""

from datetime import timedelta
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

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> Self:
        """Take the history options out of the options of a command."""
        return cls(*(options.pop(name) for name in cls._fields))

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        if not self.history:
            return ["--no-history"]
        age = f"{self.history_age.total_seconds()}s"
        return ["--history-size", str(self.history_size), "--history-age", age]

    def limits(self) -> "HistoryLimits | None":
        """How much is kept; None if nothing is recorded."""
        from gangline.history.retention import HistoryLimits

        return HistoryLimits(self.history_size * MEGABYTE, self.history_age) if self.history else None


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
)
"""Adds the history options to a command, which takes them out of its options with `HistoryOptions.take_from`."""
