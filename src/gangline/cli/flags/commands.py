"""A group whose commands are imported when they are used: one command does not pay for all the others."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

import click


class LazyGroup(click.Group):
    """Commands by name, each as `module:attribute`. Those added the usual way work as ever.

    `aliases` are further names of commands, not listed by themselves. The short help of a lazy command stands
    beside it, so that listing all of them imports none.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        aliases: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("help"):
            # Examples keep their lines, also those of a raw docstring.
            kwargs["help"] = kwargs["help"].replace("\\b\n", "\b\n")
        super().__init__(*args, **kwargs)
        self._lazy_commands, self._aliases = dict(lazy or {}), dict(aliases or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy_commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._aliases.get(cmd_name, cmd_name)
        if name in self._lazy_commands and name not in self.commands:
            module, _, attribute = self._lazy_commands[name][0].partition(":")
            found: click.Command = getattr(import_module(module), attribute)
            return found
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            known = {*self.list_commands(ctx), *self._aliases}
            close = get_close_matches(args[0], sorted(known), 3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            ctx.fail(f"no such command: {args[0]}{hint}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            told = self._lazy_commands[name][1] if name in self._lazy_commands else ""
            command = None if told else self.get_command(ctx, name)
            if command is not None and not command.hidden:
                told = command.get_short_help_str(80)
            if told:
                rows.append((name, told))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def print_usage_error(error: click.ClickException) -> None:
    """Say what is wrong with a command line, in one line, with where to read more. No word at all gets the whole help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    text = " ".join(error.format_message().split()).rstrip(".")
    more = f" (see {context.command_path} --help)" if context is not None else ""
    click.echo(f"error: {text}{more}", err=True)


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
