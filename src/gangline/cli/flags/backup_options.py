"""The options of periodic backups."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from gangline.base.options import option_group, value_option
from gangline.cli.flags.durations import duration_option

if TYPE_CHECKING:
    from gangline.local.backups import BackupSettings


class BackupOptions(NamedTuple):
    """The backup options, as given on the command line."""

    backup: Path | None
    backup_every: timedelta
    backup_keep: int

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> Self:
        """Take the backup options out of the options of a command."""
        return cls(*(options.pop(name) for name in cls._fields))

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        if self.backup is None:
            return []
        every = f"{self.backup_every.total_seconds()}s"
        return [
            *("--backup", str(self.backup.absolute())),
            *("--backup-every", every),
            *("--backup-keep", str(self.backup_keep)),
        ]

    def settings(self) -> "BackupSettings | None":
        """The settings of periodic backups; None without them."""
        from gangline.local.backups import BackupSettings

        return BackupSettings(self.backup, self.backup_every, self.backup_keep) if self.backup is not None else None


backup_options = option_group(
    click.option(
        "--backup",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="FOLDER",
        help="Write backups of all objects there while the plane runs, and a last one when it stops.",
    ),
    duration_option("--backup-every", "10m", "Time between two backups; without a change there is none."),
    value_option("--backup-keep", 24, "How many backups are kept.", type=click.IntRange(min=1), metavar="COUNT"),
)
"""Adds the backup options to a command, which takes them out of its options with `BackupOptions.take_from`."""
