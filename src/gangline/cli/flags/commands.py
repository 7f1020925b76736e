"""The click classes of our commands: a group that imports each command when it is used, and help in our layout."""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from gangline.base.help_layout import HelpLayout

CANDIDATES = "gangline.cli.completion.candidates"


class LazyGroup(HelpLayout, click.Group):
    """A group of commands given by name as `module:attribute` with a short help, so that listing them imports none.

    Commands that are added in click's usual way work, too. `aliases` are further names of commands; the help does not
    list them. `sections` are the names of commands under the title with which the help lists them.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        aliases: Mapping[str, str] | None = None,
        foreign: Mapping[str, str] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy_commands, self._aliases = dict(lazy or {}), dict(aliases or {})
        # Words of other tools, and what they are called here.
        self._foreign = dict(foreign or {})
        self._sections = dict(sections or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy_commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._aliases.get(cmd_name, cmd_name)
        if name in self._lazy_commands and name not in self.commands:
            module, _, attribute = self._lazy_commands[name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command
        return super().get_command(ctx, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            names = {*self.list_commands(ctx), *self._aliases}
            similar = get_close_matches(args[0], sorted(names), 3)
            hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
            if line := run_line(args) if "run" in names else "":
                hint = f"; write: gangline {line}"
            elif args[0] in self._foreign:
                hint = f"; write: gangline {self._foreign[args[0]]}"
            ctx.fail(f"no such command: {args[0]}{hint}")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if "run" not in self._lazy_commands or "--" not in words:
                raise
            line = shlex.join(("run", *words))
            raise click.UsageError(f"no command before '{error.option_name}'; write: gangline {line}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {}
        for name in self.list_commands(ctx):
            short_help = self._lazy_commands[name][1] if name in self._lazy_commands else ""
            command = None if short_help else self.get_command(ctx, name)
            if command is not None and not command.hidden:
                short_help = command.get_short_help_str(80)
            if short_help:
                rows[name] = short_help
        width = max(map(len, rows), default=0)
        titles = dict[str, str]()
        if self._sections and prefers_chinese(os.environ):
            titles, summaries = chinese_summaries()
            rows |= {name: summaries[name] for name in rows if name in summaries}
        for title, names in (self._sections or {"Commands": tuple(rows)}).items():
            with formatter.section(titles.get(title, title)):
                formatter.write_dl([(name.ljust(width), rows[name]) for name in names])


def prefers_chinese(environment: Mapping[str, str]) -> bool:
    """Whether a user has set the language to Chinese, in the variables that gettext reads, in their order."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    return next((environment[name] for name in names if environment.get(name)), "").startswith("zh")


def chinese_summaries() -> tuple[dict[str, str], dict[str, str]]:
    """The Chinese titles of sections, and the summaries of commands by name."""
    import json
    from importlib.resources import files

    sections = json.loads(files("gangline.cli").joinpath("summaries_zh.json").read_text("utf-8"))["sections"]
    titles = {title: section["zh"] for title, section in sections.items()}
    commands = (pair for section in sections.values() for pair in section["commands"].items())
    return titles, {name: texts["zh"] for name, texts in commands}


def print_usage_error(error: click.ClickException, command: str = "") -> None:
    """Print what is wrong with a command line in one line that names the help; without any argument, the help itself.

    `command`: the command that was given, for errors that do not know it.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    from gangline.base.invocation import own_command, with_own_command

    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else " ".join(filter(None, ("gangline", command)))
    see_help = f"(see {path.replace('gangline', own_command(), 1)} --help)"
    click.echo(f"error: {with_own_command(usage_error_text(error))} {see_help}", err=True)


_CLICK_PHRASES = (
    (re.compile(r"is not a valid integer(?: range)?"), "is not a whole number"),
    (re.compile(r"is not a valid float(?: range)?"), "is not a number"),
    (re.compile(r"is not in the range (\d+)<=x<=(\d+)"), r"is not between \1 and \2"),
    (re.compile(r"is not in the range x>=(\d+)"), r"is less than \1"),
    (re.compile(r"is not in the range x>0(?:\.0)?"), "is not above 0"),
)


def usage_error_text(error: click.ClickException) -> str:
    """What is wrong with a command line, in one line, with what to write where click does not say it."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        name = (error.param.metavar or error.param.name or "").rstrip(".").upper()
        if name == "JOB":
            return "which job? name one of those that gangline get jobs lists"
    text = " ".join(error.format_message().split()).rstrip(".")
    for pattern, phrase in _CLICK_PHRASES:
        text = pattern.sub(phrase, text)
    return text


def run_line(words: Sequence[str]) -> str:
    """The command line that runs a script or a file that was given instead of a command; empty if it is neither."""
    if words[0].endswith((".yaml", ".yml")):
        return shlex.join(("run", *words))
    if _PYTHON_WORD.fullmatch(words[0]):
        program = ("python",) if words[0].endswith(".py") else ()
        return shlex.join(("run", "--nproc", "4", "--", *program, *words))
    return ""


OPTIONS_OF_OTHERS = {
    **dict.fromkeys(("--nnodes", "--workers", "--num-workers", "--np", "--replicas", "--num_processes"), "--nproc"),
    **dict.fromkeys(("--gpus", "--gpu", "--gpus-per-node", "--num-gpus"), "--limit gpu=1"),
}
"""Options of torchrun, Ray, SkyPilot and accelerate, and what is written here."""
_PYTHON_WORD = re.compile(r"[^-].*\.py|(.*/)?python[0-9.]*|torchrun|mpirun")
"""The first word of a command of the user's own, as it is mostly written."""
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


class CliCommand(HelpLayout):
    """A command whose help lists the server options last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            separated = _with_separator(words, error.option_name)
            similar = OPTIONS_OF_OTHERS.get(error.option_name, "")
            if not separated and similar.split()[:1] and similar.split()[0] in self._own_options():
                text = f"No such option '{error.option_name}'. Did you mean '{similar}'?"
                raise click.UsageError(text, ctx) from None
            if not separated:
                raise
            text = f"No such option '{error.option_name}'; if it is one of your program, write: "
            raise click.UsageError(text + shlex.join((*ctx.command_path.split(), *separated)), ctx) from None

    def _own_options(self) -> set[str]:
        return {name for parameter in self.params for name in parameter.opts}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        server: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                (server if parameter.name in SERVER_OPTION_NAMES else own).append(record)
        for title, records in (("Options", own), ("Which cluster", server)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _with_separator(words: Sequence[str], option: str) -> tuple[str, ...]:
    """The words with `--` before a Python command that the option comes after; none if there is no such command."""
    program = next((at for at, word in enumerate(words) if _PYTHON_WORD.fullmatch(word)), len(words))
    if "--" in words or not any(word.partition("=")[0] == option for word in words[program:]):
        return ()
    return (*words[:program], "--", *words[program:])


def cli_command(name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], CliCommand]:
    """`click.command` that makes a `CliCommand`."""
    return click.command(name, cls=CliCommand, **settings)


def completed_by(function: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """A click completion callback: the function of that name in `CANDIDATES`, imported when a shell asks for it."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        items: list[Any] = getattr(import_module(CANDIDATES), function)(context, parameter, incomplete)
        return items

    return complete
