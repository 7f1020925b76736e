"""Commands that are imported when they are used."""

import importlib

import click
import pytest
from click.testing import CliRunner

from gangline.cli.verb import Verb
from gangline.cli.verbs import ALIASES, VERBS, verbs


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_where_the_table_says_and_has_examples(name: str) -> None:
    module, _, attribute = VERBS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, Verb)
    assert "\b\n" in (command.help or "")
    assert f"gangline {name}" in (command.help or "") or name == "resume"


def test_aliases_lead_to_commands_and_are_not_listed() -> None:
    context = click.Context(verbs)
    for alias, name in ALIASES.items():
        found = verbs.get_command(context, alias)
        assert found is not None
        assert found is verbs.get_command(context, name)
        assert alias not in verbs.list_commands(context)


def test_help_lists_every_verb_with_a_few_words() -> None:
    told = CliRunner().invoke(verbs, ["--help"]).output
    assert all(name in told and VERBS[name][1][:20] in told for name in VERBS)


def test_help_of_a_verb_keeps_examples_on_their_own_lines_and_common_options_apart() -> None:
    told = CliRunner().invoke(verbs, ["get", "--help"]).output
    assert "\n    gangline get jobs -w " in told
    assert told.index("Which server:") > told.index("--sort-by")


def test_an_unknown_verb_is_an_error_of_use() -> None:
    assert CliRunner().invoke(verbs, ["frobnicate"]).exit_code == 2
