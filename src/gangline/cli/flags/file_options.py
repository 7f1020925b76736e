"""The files that a command reads: arguments, `-f`, and `-R` for folders."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gangline.base.options import option_group

F = TypeVar("F", bound=Callable[..., Any])


def file_options(metavar: str) -> Callable[[F], F]:
    """The arguments `files`, and the options `more` and `recursive`."""
    return option_group(
        click.argument("files", nargs=-1, metavar=metavar, type=click.Path()),
        click.option(
            "-f",
            "--filename",
            "more",
            multiple=True,
            metavar="FILE",
            help="A file or folder to read; - is standard input; may be repeated.",
        ),
        recursive_option,
    )


recursive_option = click.option("-R", "--recursive", is_flag=True, help="Read the files in subfolders, too.")
