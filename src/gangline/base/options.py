"""Click options that many commands have in the same form."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """One decorator for several click options, in the order of the help."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def value_option(name: str, default: Any, text: str, **settings: Any) -> Callable[[F], F]:
    """An option with a value, whose default the help shows unless it is an empty text."""
    return click.option(name, default=default, show_default=default != "", help=text, **settings)


def choice_option(name: str, choices: Sequence[str], text: str) -> Callable[[F], F]:
    """An option with one of these values. The first is the default."""
    return value_option(name, choices[0], text, type=click.Choice(choices))


def seconds_option(name: str, default: float, text: str) -> Callable[[F], F]:
    """An option for a duration in seconds."""
    return value_option(name, default, text, type=click.FloatRange(min=0), metavar="SECONDS")
