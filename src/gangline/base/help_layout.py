r"""The layout of `--help`: what a command does, examples, details, options, exit codes.

A docstring is written in this order, and its parts are recognised by their form: the first paragraph is the summary; the
first paragraph after `\b` (lines are kept as written) are the examples; one that begins with `Exit codes:` comes last.
"""

import inspect
import textwrap
from typing import Any, NamedTuple

import click

EXIT_CODES_TITLE = "Exit codes"
LITERAL_MARK = "\b"


class HelpParts(NamedTuple):
    """The parts of a help text. Paragraphs that start with `LITERAL_MARK` keep their lines."""

    summary: str = ""
    examples: str = ""
    details: tuple[str, ...] = ()
    exit_codes: str = ""


def help_parts(text: str) -> HelpParts:
    r"""The parts of a help text. A raw docstring has `\b` as two characters."""
    text = inspect.cleandoc(text.replace("\\b\n", f"{LITERAL_MARK}\n"))
    parts, details = HelpParts(), []
    for paragraph in filter(None, (part.strip("\n") for part in text.split("\n\n"))):
        if paragraph.startswith(f"{LITERAL_MARK}\n") and not parts.examples:
            parts = parts._replace(examples=textwrap.dedent(paragraph.removeprefix(f"{LITERAL_MARK}\n")))
        elif paragraph.startswith(f"{EXIT_CODES_TITLE}:"):
            parts = parts._replace(exit_codes=paragraph.removeprefix(f"{EXIT_CODES_TITLE}:").strip())
        elif not parts.summary:
            parts = parts._replace(summary=paragraph)
        else:
            details.append(paragraph)
    return parts._replace(details=tuple(details))


class HelpLayout(click.Command):
    """A command whose help shows the examples right after what the command does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("help"):
            kwargs["help"] = kwargs["help"].replace("\\b\n", f"{LITERAL_MARK}\n")
        super().__init__(*args, **kwargs)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parts = help_parts(self.help or "")
        self.format_usage(ctx, formatter)
        _write_paragraphs(formatter, (parts.summary,))
        if parts.examples:
            formatter.write_paragraph()
            formatter.write("Examples:\n")
            formatter.write(textwrap.indent(parts.examples, "  ") + "\n")
        _write_paragraphs(formatter, parts.details)
        self.format_options(ctx, formatter)
        if parts.exit_codes:
            with formatter.section(EXIT_CODES_TITLE):
                formatter.write_text(parts.exit_codes)


def _write_paragraphs(formatter: click.HelpFormatter, paragraphs: tuple[str, ...]) -> None:
    with formatter.indentation():
        for paragraph in filter(None, paragraphs):
            formatter.write_paragraph()
            formatter.write_text(paragraph)
