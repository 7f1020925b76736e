"""A command as this house writes it: examples kept as they stand, options of the server apart from its own."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

SERVER_OPTION_NAMES = (
    "kubeconfig",
    "context",
    "cluster",
    "user",
    "as_user",
    "as_groups",
    "as_uid",
    "request_timeout",
    "verbose",
)


class CliCommand(click.Command):
    r"""Its help keeps lines after `\b` as they are, also from a raw docstring, and lists common options last."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("help"):
            kwargs["help"] = kwargs["help"].replace("\\b\n", "\b\n")
        super().__init__(*args, **kwargs)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                (common if parameter.name in SERVER_OPTION_NAMES else own).append(record)
        for title, records in (("Options", own), ("Which server", common)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def cli_command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], CliCommand]:
    """`click.command` for these."""
    return click.command(name, cls=CliCommand, **settings)


def completed_by(what: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """What a shell may complete: the function of that name in `gangline.cli.completion.candidates`, imported when it is asked."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        from gangline.cli.completion import candidates

        found: list[Any] = getattr(candidates, what)(context, parameter, incomplete)
        return found

    return complete
