"""The options of the dashboard of a plane or a run on this machine."""

from typing import Any, NamedTuple, Self

import click

from gangline.base.options import F, option_group


class DashboardOptions(NamedTuple):
    """Whether there is a dashboard, and whether a browser is opened with it."""

    dashboard: bool = True
    open_dashboard: bool = False
    dashboard_port: int = 0

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> Self:
        """Remove the values of these options from those of a command."""
        return cls(**{name: options.pop(name) for name in cls._fields})

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options, except that it opens no browser."""
        return ["--dashboard-port", str(self.dashboard_port)] if self.dashboard else ["--no-dashboard"]


def dashboard_options(command: F) -> F:
    """Add the options to a command, which takes them among its other options."""
    return option_group(
        click.option(
            "--dashboard/--no-dashboard",
            default=True,
            help="Whether there is a dashboard: a page of this machine that shows jobs live.  [default: yes]",
        ),
        click.option("--open", "open_dashboard", is_flag=True, help="Open the dashboard in a browser."),
        click.option(
            "--dashboard-port",
            type=click.IntRange(0, 65535),
            default=0,
            metavar="PORT",
            help="Port of the dashboard.  [default: a free one]",
        ),
    )(command)
