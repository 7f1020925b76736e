"""Every command that a text names can be copied: it goes through a function that knows how this shell runs gangline."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gangline.base.invocation import SUBCOMMANDS
from gangline.cli.main import COMMAND_ALIASES, COMMANDS

SOURCE = Path(__file__).parents[3] / "src" / "gangline"
COMMAND = re.compile(rf"(?<![\w/.-])(?<!kubectl )gangline (?:{'|'.join(sorted(SUBCOMMANDS))})\b")
# A command in the source of a file: a literal may be written in several pieces.
MAYBE_COMMAND = re.compile(rf"gangline[\s\"'f]+(?:{'|'.join(sorted(SUBCOMMANDS))})\b")
PREFIXED = "with_own_command"
# Errors are printed by cli/errors.py and cli/main.py, which replace the command.
RAISED = {
    "apiserver/store/errors.py": "StoreDamaged",
    "cli/connect/archived_runs.py": "READ_ONLY_ERROR",
    "cli/connect/server.py": "START_SERVER_HINT",
    "cli/drill/run.py": "message",
    "cli/flags/commands.py": "usage_error_text",
    "cli/get/query.py": "NO_JOB_KINDS",
    "cli/install/missing_rights.py": "_remedy",
    "cli/install/plan.py": "removal",
    "cli/manifests/jobs.py": "_script_hint",
    "cli/resources/lookup.py": "no_such_job",
    "cli/run/remote_jobs.py": "_name_taken_message",
    "notify/plan/routes.py": "_route_problems",
}
# Texts for others than the person at the shell, or replaced where they are printed.
ELSEWHERE = {
    "cli/services/doctor.py": "a result: results_text replaces it",
    "cli/services/machine_checks.py": "a remedy: results_text replaces it",
    "notify/plan/transitions.py": "a notification, for people at other shells",
    "operator/definitions.py": "a log of the operator; doctor replaces it",
    "operator/gang_schedulers.py": "a log of the operator",
    "why/diagnosis": "pure; cli/jobs/why.py replaces it in texts, JSON keeps the name",
}


class Text(NamedTuple):
    file: str
    line: int
    text: str
    enclosing: tuple[ast.AST, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def texts_with_commands(source: str, file: str) -> Iterator[Text]:
    """The string literals that name a command, without docstrings."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or not COMMAND.search(node.value):
            continue
        enclosing: list[ast.AST] = []
        around = parents.get(node)
        while around is not None:
            enclosing.append(around)
            around = parents.get(around)
        if not isinstance(enclosing[0], ast.Expr):
            yield Text(file, node.lineno, node.value, tuple(enclosing))


def is_copyable(text: Text) -> bool:
    """Whether the text passes one of the places that replace the command."""
    names = {
        target.id
        for node in text.enclosing
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    } | {
        node.name for node in text.enclosing if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    calls = {ast.unparse(node.func) for node in text.enclosing if isinstance(node, ast.Call)}
    return (
        any(isinstance(node, ast.Raise) for node in text.enclosing)
        or PREFIXED in calls
        or RAISED.get(text.file) in names
        or any(text.file.startswith(place) for place in ELSEWHERE)
    )


def all_texts() -> list[Text]:
    sources = {str(file.relative_to(SOURCE)): file.read_text() for file in sorted(SOURCE.rglob("*.py"))}
    # To parse all files takes ten seconds.
    likely = {file: source for file, source in sources.items() if MAYBE_COMMAND.search(source)}
    return [text for file, source in likely.items() for text in texts_with_commands(source, file)]


def test_every_text_with_a_command_passes_through_the_function_that_knows_the_shell() -> None:
    texts = all_texts()
    assert len(texts) > 30
    wrong = [str(text) for text in texts if not is_copyable(text)]
    assert not wrong, "wrap these in gangline.base.invocation.with_own_command:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "copyable"),
    [
        ('click.echo("look: gangline get jobs")', False),
        ('click.echo(f"look: gangline why {name}")', False),
        ('HINT = "gangline up"', False),
        ('HINT = ("write gangline "\n    f"why {name}")', False),
        ('click.echo(with_own_command(f"look: gangline why {name}"))', True),
        ('raise InputError("write: gangline run FILE")', True),
    ],
)
def test_a_text_that_bypasses_it_is_noticed(source: str, copyable: bool) -> None:
    assert MAYBE_COMMAND.search(source)
    (text,) = texts_with_commands(source, "cli/new.py")
    assert is_copyable(text) is copyable


@pytest.mark.parametrize("source", ['x = "gangline runs pods"', '"""gangline run"""', 'x = "kubectl gangline get"'])
def test_a_name_in_a_sentence_is_no_command(source: str) -> None:
    assert list(texts_with_commands(source, "cli/new.py")) == []


def test_the_words_that_make_a_command_are_those_of_the_command_line() -> None:
    assert {*COMMANDS, *COMMAND_ALIASES} == SUBCOMMANDS
