"""The layout of `--help`."""

import click
from click.testing import CliRunner

from gangline.base.help_layout import HelpLayout, help_parts


@click.command(cls=HelpLayout)
@click.option("--loud", is_flag=True, help="Speak loudly.")
def greet(loud: bool) -> None:
    r"""Greet somebody.

    More about greetings.

    Exit codes: 0 greeted; 1 nobody there.

    \b
      greet --loud         so that all hear it
        | tee log
    """


def test_examples_come_after_the_summary_and_exit_codes_last() -> None:
    assert CliRunner().invoke(greet, ["--help"], prog_name="greet").output.splitlines() == [
        "Usage: greet [OPTIONS]",
        "",
        "  Greet somebody.",
        "",
        "Examples:",
        "  greet --loud         so that all hear it",
        "    | tee log",
        "",
        "  More about greetings.",
        "",
        "Options:",
        "  --loud  Speak loudly.",
        "  --help  Show this message and exit.",
        "",
        "Exit codes:",
        "  0 greeted; 1 nobody there.",
    ]


def test_a_second_literal_block_is_a_detail() -> None:
    parts = help_parts("Do it.\n\n\b\n  do it\n\n\b\n  a b\n  c d")
    assert parts.examples == "do it"
    assert parts.details == ("\b\n  a b\n  c d",)
