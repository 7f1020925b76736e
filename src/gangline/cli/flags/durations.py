"""Durations on the command line: `30s`, `5m`, `1h30m`, `300ms`; a bare number is in seconds."""

import re
from collections.abc import Callable
from datetime import timedelta

import click

from gangline.base.errors import InputError
from gangline.base.options import F, value_option

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")


def parse_duration(text: str) -> timedelta:
    """The duration that a text stands for; a leading `-` negates it. Raises `InputError`."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text)
    try:
        if re.fullmatch(r"\d+(\.\d+)?", rest):
            return timedelta(seconds=sign * float(rest))
        parts = _DURATION_PART.findall(rest)
        if not parts or "".join(number + unit for number, unit in parts) != rest:
            raise InputError(f'"{text}" is no duration; write 30s, 5m or 1h30m')
        return sign * timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
    except OverflowError as error:
        raise InputError(f'"{text}" is too long a time; write 30s, 5m or 1h30m') from error


def DURATION(text: str | timedelta) -> timedelta:  # noqa: N802 - a click parameter type, which are in capitals
    """The click parameter type of a duration. Raises `BadParameter`."""
    if isinstance(text, timedelta):
        return text
    try:
        return parse_duration(text)
    except InputError as error:
        raise click.BadParameter(str(error)) from error


def duration_option(name: str, default: str, text: str) -> Callable[[F], F]:
    """An option for a duration."""
    return value_option(name, default, text, type=DURATION, metavar="DURATION")
