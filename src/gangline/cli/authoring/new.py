"""`gangline new operator NAME`: write a custom operator to start from, whose tests pass."""

import importlib.util
import re
import shlex
from pathlib import Path

import click

from gangline.base.errors import InputError
from gangline.base.invocation import own_python
from gangline.cli.flags.commands import CliCommand, LazyGroup
from gangline.cli.run.demo import examples_folder

EXAMPLE_FOLDER = "custom-operator"
EXAMPLE_FILES = ("relay_operator.py", "test_relay_operator.py", "relay.py", "relayjob.yaml", "operator.yaml")
PYTEST_SETTINGS = "# Makes pytest leave the settings of the folders above alone.\n[pytest]\n"
_KIND_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,30}")
_API_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


@click.group(cls=LazyGroup)
def new() -> None:
    r"""Write the files of a new project to start from.

    \b
      gangline new operator Spark       an operator for a job kind of your own, SparkJob
    """


@new.command(cls=CliCommand, short_help="Create an operator for a job kind of your own.")
@click.argument("name", metavar="NAME")
@click.option(
    "--group",
    default="example.com",
    show_default=True,
    metavar="DOMAIN",
    help="API group of the new kind: a domain of yours.",
)
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder to write to.  [default: ./NAME-operator]"
)
def operator(name: str, group: str, into: Path | None) -> None:
    r"""Create an operator for a job kind of your own: code, an example job, tests and a manifest.

    \b
      gangline new operator Spark                   an operator for SparkJob, in spark-operator/
      cd spark-operator && python -m pytest         its tests pass

    It works as written: a coordinator and members that pass a number around. Replace that with what your framework
    needs. See docs/custom-operators.md.

    Exit codes: 0 created; 1 an error, such as a folder that already exists.
    """
    word = name.removesuffix("Job")
    if not _KIND_NAME.fullmatch(word):
        raise InputError(f'"{name}": write letters and digits, beginning with a letter, such as Spark')
    if not _API_GROUP.fullmatch(group):
        raise InputError(f'--group: "{group}" is no domain; write one of yours, such as ml.example.com')
    folder = into or Path(f"{word.lower()}-operator")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists and is not empty; write --into with another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file in EXAMPLE_FILES:
        text = (examples_folder() / EXAMPLE_FOLDER / file).read_text()
        (folder / renamed_example(file, word, group)).write_text(renamed_example(text, word, group))
    (folder / "pytest.ini").write_text(PYTEST_SETTINGS)
    click.echo(f"{folder}: an operator for {word}Job", err=True)
    for command in first_commands(folder, has_pytest=importlib.util.find_spec("pytest") is not None):
        click.echo(command, err=True)


def first_commands(folder: Path, *, has_pytest: bool) -> tuple[str, ...]:
    """The lines with which to test a new operator: pytest first, if this Python has none."""
    python = own_python()
    install = () if has_pytest else (f"{python} -m pip install pytest",)
    commands = (*install, f"cd {shlex.quote(str(folder))} && {python} -m pytest")
    return tuple(f"{label}{command}" for label, command in zip(("next: ", "      "), commands, strict=False))


def renamed_example(text: str, word: str, group: str) -> str:
    """A text of the example with its kind and group replaced. `relay` is part of no other word there."""
    title = word[0].upper() + word[1:]
    replacements = {"RELAY": word.upper(), "Relay": title, "relay": word.lower(), "example.com": group}
    return re.sub("RELAY|Relay|relay|example\\.com", lambda match: replacements[match[0]], text)
