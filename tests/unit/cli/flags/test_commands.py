"""Commands that are imported when they are used."""

import importlib
import re

import click
import pytest
from click.testing import CliRunner

from gangline.base.help_layout import HelpLayout, help_parts
from gangline.cli.main import COMMAND_ALIASES, COMMAND_SECTIONS, COMMANDS, cli, run


def all_commands() -> dict[str, HelpLayout]:
    """Every command by its words, those of groups included."""
    commands: dict[str, HelpLayout] = {}
    for name, (location, _) in COMMANDS.items():
        module, _, attribute = location.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, click.Group):
            commands |= {f"{name} {each}": sub for each, sub in command.commands.items() if isinstance(sub, HelpLayout)}
        else:
            commands[name] = command
    return commands


ALL_COMMANDS = all_commands()


@pytest.mark.parametrize("name", sorted(ALL_COMMANDS))
def test_the_help_of_every_command_has_a_summary_examples_and_exit_codes(name: str) -> None:
    command = ALL_COMMANDS[name]
    assert isinstance(command, HelpLayout)
    parts = help_parts(command.help or "")
    assert parts.summary.endswith(".")
    assert f"gangline {name}" in parts.examples
    assert re.match(r"(0|that of the command|those of run)", parts.exit_codes)
    # They would be hidden in a paragraph.
    assert not any("xit code" in detail for detail in parts.details)


@pytest.mark.parametrize("name", sorted(ALL_COMMANDS))
def test_every_option_is_explained_by_a_sentence(name: str) -> None:
    for option in ALL_COMMANDS[name].params:
        if isinstance(option, click.Option) and not option.hidden:
            text = (option.help or "").partition("  [default")[0]
            assert re.match(r"[A-Z]|(client|json|name|text|bind|yaml)\b", text), f"{option.opts}: {option.help!r}"
            assert text.endswith("."), f"{option.opts}: {option.help!r}"


def test_aliases_resolve_to_commands_and_are_not_listed() -> None:
    context = click.Context(cli)
    for alias, name in COMMAND_ALIASES.items():
        command = cli.get_command(context, alias)
        assert command is not None
        assert command is cli.get_command(context, name)
        assert alias not in cli.list_commands(context)


@pytest.mark.parametrize("name", ["up", "down", "run", "backup", "restore"])
def test_help_fits_a_terminal_of_80_columns(name: str) -> None:
    output = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "80"}).output
    assert [line for line in output.splitlines() if len(line) > 80] == []


def test_help_lists_every_command_with_a_short_help() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    assert all(f"\n  {name} " in output and COMMANDS[name][1][:20] in output for name in COMMANDS)
    assert [title for title in COMMAND_SECTIONS if f"\n{title}:\n" not in output] == []


def test_the_help_of_a_group_cuts_no_sentence_short() -> None:
    assert "..." not in CliRunner().invoke(cli, ["new", "--help"]).output.partition("Commands:")[2]


def test_every_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in COMMAND_SECTIONS.values() for name in names) == sorted(COMMANDS)


def test_help_of_a_command_keeps_lines_of_examples_and_lists_server_options_apart() -> None:
    output = CliRunner().invoke(cli, ["get", "--help"]).output
    assert "\n  gangline get jobs -w " in output
    assert output.index("Examples:") < output.index("Options:")
    assert output.index("Which cluster:") > output.index("--sort-by")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["frobnicate"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("runn",), "error: no such command: runn; did you mean run? (see gangline --help)"),
        (("sumbit", "x"), "error: no such command: sumbit; did you mean submit? (see gangline --help)"),
        (("frobnicate",), "error: no such command: frobnicate (see gangline --help)"),
        (
            ("logs",),
            "error: which job? name one of those that gangline get jobs lists (see gangline logs --help)",
        ),
        (
            ("wait",),
            "error: which job? name one of those that gangline get jobs lists (see gangline wait --help)",
        ),
        (("get", "--sort-by"), "error: Option '--sort-by' requires an argument (see gangline get --help)"),
        (
            ("simulate", "--nodes", "many"),
            "error: Invalid value for '--nodes': 'many' is not a whole number (see gangline simulate --help)",
        ),
        (
            ("simulate", "--nodes", "0"),
            "error: Invalid value for '--nodes': 0 is not between 1 and 100000 (see gangline simulate --help)",
        ),
        (
            ("simulate", "--jobs", "0"),
            "error: Invalid value for '--jobs': 0 is less than 1 (see gangline simulate --help)",
        ),
        (("new", "operatr"), "error: no such command: operatr; did you mean operator? (see gangline new --help)"),
    ],
)
def test_a_mistake_in_the_command_line_is_one_line_and_exit_code_1(
    words: tuple[str, ...], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 1
    assert capsys.readouterr() == ("", f"{output}\n")


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(()) == 1
    output = capsys.readouterr().err
    assert output.startswith("Usage: gangline ")
    assert "gangline run job.yaml  " in output
