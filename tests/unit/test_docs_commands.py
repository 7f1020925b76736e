"""Every option that a page gives to a gangline command exists, and every object on a page is one that a server takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import click.testing
import pytest
import yaml

from gangline.cli.main import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in DOCS.rglob("*.md") if page.parent.name not in ("adr", "why") and "zh" not in page.parts),
]
TEACHING = [page for page in PAGES if page.parent.name in ("how-to", "tutorials")]
OF_OTHERS = ("kueue.", "kustomize.")
"""Groups that `gangline check` does not know. tests/contract/test_chart.py builds what the pages show of kustomize."""
PARTS_READ_BY = {
    "docs/frameworks.md": "tests/unit/node/test_node_page.py",
    "docs/goodput.md": "tests/unit/summary/test_goodput_rows.py",
    "docs/node.md": "tests/unit/node/test_node_page.py",
    "docs/notifications.md": "tests/unit/notify/test_notifications_page.py",
    "docs/recovery.md": "tests/unit/jobs/recovery/test_page.py",
}
"""Reference pages that show a part of an object or a file of our own, and the test that reads it."""
_BLOCK = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# A word behind which another command begins, or the output of this one is sent elsewhere.
_END = re.compile(r"[|;<>]|&&|\|\||\d?>\S*")


class CommandLine(NamedTuple):
    """A gangline command in a console block."""

    page: Path
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text}"


def command_lines(page: Path) -> Iterator[CommandLine]:
    for block in _BLOCK.finditer(page.read_text()):
        if block["info"].split()[:1] in (["console"], ["shell"]):
            for line in block["code"].splitlines():
                if line.startswith("$ ") and re.search(r"(?:^\$ |[|(] ?)gangline ", line):
                    yield CommandLine(page, line.removeprefix("$ "))


def gangline_words(line: str) -> list[str]:
    """The words of the gangline command in a line, without its name."""
    start = re.search(r"(?:^|[|(] ?)gangline ", line)
    assert start is not None, line
    lexer = shlex.shlex(line[start.end() :], posix=True, punctuation_chars="|;<>&()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if _END.fullmatch(word) or word in (")", "(", "&") or (word.startswith("  ") and not words):
            break
        words.append(word)
    return words


def unknown_option(words: list[str]) -> str | None:
    """The first option that the command has not; None if it has all."""
    command: click.Command = cli
    context = click.Context(cli)
    words = list(words)
    while words and isinstance(command, click.Group):
        name = words.pop(0)
        if name.startswith("-"):
            return None if name in known_options(command, context) else name
        found = command.get_command(context, name)
        if found is None:
            return name
        command, context = found, click.Context(found, info_name=name, parent=context, **found.context_settings)
    options = known_options(command, context)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    passes_on = not context.allow_interspersed_args
    while words:
        word = words.pop(0)
        if word == "--":
            break
        name, equals, _ = word.partition("=")
        if re.match(r"-\d", word) or word == "-":
            continue  # a time ago, or standard input
        if not word.startswith("-"):
            if passes_on and arguments:
                break  # what follows belongs to the command that is called
            continue
        if not word.startswith("--") and len(word) > 2 and word[:2] in options:
            continue  # several short ones, or a short one with its value
        if name not in options:
            return name
        if not equals and not options[name].is_flag and words:
            words.pop(0)
    return None


def known_options(command: click.Command, context: click.Context) -> dict[str, click.Option]:
    return {
        name: each
        for each in command.get_params(context)
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
    }


LINES = [line for page in PAGES for line in command_lines(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_on_a_page_exists(page: Path) -> None:
    wrong = {str(line): unknown_option(gangline_words(line.text)) for line in command_lines(page)}
    assert not {line: option for line, option in wrong.items() if option is not None}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("gangline run --nproc 4 -- python train.py --lr 1", None),
        ("gangline run --nprocs 4", "--nprocs"),
        ("gangline fly", "fly"),
        ("gangline scale big --worker 2", "--worker"),
        ("gangline install -o yaml | kubectl apply --server-side -f -", None),
        ("kubectl get pods | gangline apply -f - --nonsense", "--nonsense"),
        ("gangline new operator Spark --nonsense", "--nonsense"),
        ("gangline at -15m get pods -o wide", None),
        ("gangline --nonsense", "--nonsense"),
    ],
)
def test_an_option_that_does_not_exist_is_noticed(line: str, wrong: str | None) -> None:
    assert unknown_option(gangline_words(line)) == wrong


def test_the_pages_have_many_commands() -> None:
    # A wrong pattern would make the above pass.
    assert len(LINES) > 250


def documents(page: Path) -> Iterator[dict[str, Any]]:
    """What the YAML blocks of a page hold."""
    for block in _BLOCK.finditer(page.read_text()):
        if block["info"].strip() == "yaml":
            yield from (body for body in yaml.safe_load_all(block["code"]) if isinstance(body, dict))


def objects(page: Path) -> Iterator[dict[str, Any]]:
    """The whole objects in the YAML blocks of a page."""
    return (body for body in documents(page) if {"apiVersion", "kind"} <= set(body))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_object_on_a_page_is_valid(page: Path, tmp_path: Path) -> None:
    wanted = [body for body in objects(page) if not body["apiVersion"].startswith(OF_OTHERS)]
    if not wanted:
        return  # a page of commands alone
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(wanted))
    result = click.testing.CliRunner().invoke(cli, ["check", str(file)], standalone_mode=False)
    assert result.exception is None, result.output
    shows_a_mistake = "$ gangline check job.yaml\njob.yaml:" in page.read_text()
    assert bool(result.return_value) is shows_a_mistake, result.output


def test_the_pages_that_teach_have_many_objects() -> None:
    assert sum(1 for page in TEACHING for _ in objects(page)) > 20


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in TEACHING], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_part_of_an_object_on_a_page_is_read_by_a_test(page: Path) -> None:
    known = (DOCS / "reference" / "labels.md").read_text()
    parts = [body for body in documents(page) if "kind" not in body]
    notes = [body["metadata"]["annotations"] for body in parts if set(body) == {"metadata"}]
    assert [name for annotations in notes for name in annotations if f"`{name}`" not in known] == []
    name = str(page.relative_to(ROOT))
    if len(parts) > len(notes):
        assert name in PARTS_READ_BY, "write a test that reads this YAML, and name it in PARTS_READ_BY"
        assert page.name in (ROOT / PARTS_READ_BY[name]).read_text()
    else:
        assert name not in PARTS_READ_BY
