"""The option for notifications of a plane on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gangline.base.errors import InputError

if TYPE_CHECKING:
    from gangline.notify.plan.routes import NotificationSettings

notify_option = click.option(
    "--notify",
    multiple=True,
    metavar="RECEIVER",
    help="Who hears of the states of jobs: a URL to POST JSON to, slack=URL, command:COMMAND, or a FILE with routes; may "
    "be repeated (docs/notifications.md).",
)


def notification_settings(options: tuple[str, ...]) -> "NotificationSettings | None":
    """The settings of `--notify` options; None without any. Raises `InputError` for one that cannot be used."""
    if not options:
        return None
    from gangline.notify.channels.webhook import check_files
    from gangline.notify.plan.routes import is_file_option, settings_from_options

    settings = settings_from_options(options, {option: _read(option) for option in options if is_file_option(option)})
    for route in settings.routes:
        check_files(route)
    return settings


def absolute_option(option: str) -> str:
    """The option for a process in another folder."""
    from gangline.notify.plan.routes import is_file_option

    return str(Path(option).absolute()) if is_file_option(option) else option


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except FileNotFoundError:
        raise InputError(
            f"--notify {file}: no such file; write a URL (https://...), slack=URL, command:COMMAND or a file with routes"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise InputError(f"--notify {file}: {reason}") from error
