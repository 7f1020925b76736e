"""The documentation is true: its examples run, its links lead somewhere, the commands it names exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import click
import pytest

from gangline.cli.main import cli

ROOT = Path(__file__).parents[2]
TOP = [path for path in ROOT.iterdir() if not path.name.startswith(".") and path.name != "dist"]
# Without those of the packages that build the front end.
PAGES = sorted(
    page
    for path in TOP
    for page in (path, *path.rglob("*.md"))
    if page.suffix == ".md" and "node_modules" not in page.parts
)

FENCE = re.compile(r"^(?P<marks>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"!?\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
TARGET = re.compile(r"^([A-Za-z][\w-]*):(?!=)", re.MULTILINE)


class Block(NamedTuple):
    """Code between fences. `line` is where its first line stands in the page."""

    page: Path
    line: int
    info: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def split(page: Path) -> tuple[list[Block], list[tuple[int, str]]]:
    """The blocks of a page, and the lines of prose outside of them with their numbers."""
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    marks, info, code, start = "", "", list[str](), 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line.strip())
        if marks:
            if fence and fence["marks"].startswith(marks) and not fence["info"]:
                blocks.append(Block(page, start, info, "\n".join(code) + "\n"))
                marks = ""
            else:
                code.append(line)
        elif fence:
            marks, info, code, start = fence["marks"], fence["info"].strip(), [], number + 1
        else:
            prose.append((number, line))
    assert not marks, f"{page}:{start - 1}: the code block is not closed"
    return blocks, prose


BLOCKS = [block for page in PAGES for block in split(page)[0]]
PYTHON = [block for block in BLOCKS if block.info.split()[:1] == ["python"]]
EXCERPTS = [block for block in BLOCKS if block.info == "py"]
CONSOLE = [block for block in BLOCKS if block.info.split()[:1] in (["console"], ["shell"])]


def links(page: Path) -> Iterator[tuple[int, str]]:
    for number, line in split(page)[1]:
        text = CODE_SPAN.sub("", line)
        for pattern in (LINK, IMAGE, REFERENCE):
            for found in pattern.finditer(text):
                yield number, found[1]


def anchors(page: Path) -> set[str]:
    """What `#…` may name, as GitHub makes it from headings."""
    found = (HEADING.match(line) for _, line in split(page)[1])
    headings = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).lower() for match in found if match)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def broken(page: Path, target: str) -> bool:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return False  # elsewhere: not for a test without a network
    path, _, anchor = target.partition("#")
    file = (page.parent / unquote(path)).resolve() if path else page
    if not file.exists() or not file.is_relative_to(ROOT):
        return True
    return bool(anchor) and file.suffix == ".md" and anchor not in anchors(file)


def unknown(line: str) -> str | None:
    """What a console line calls that does not exist."""
    words = re.split(r"[|;&#<>]", line.removeprefix("$ "))[0].split()
    arguments = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if words[0] == "make":
        known = set(TARGET.findall((ROOT / "Makefile").read_text()))
        return next((word for word in arguments if word not in known), None)
    if arguments and cli.get_command(click.Context(cli), arguments[0]) is None:
        return arguments[0]
    return None


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_example_runs(block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert block.info == "python", f"{block}: every example runs; write ```python and nothing more"
    monkeypatch.chdir(ROOT)
    # Blank lines before it, so that a traceback names the line of the page.
    program = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec", dont_inherit=True)
    exec(program, {"__name__": "__main__"})


@pytest.mark.parametrize("block", EXCERPTS, ids=str)
def test_excerpt_is_part_of_an_example_that_tests_run(block: Block) -> None:
    # It needs more than the tests have (torch), so that it is not run here.
    assert any(block.code in file.read_text() for file in (ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    lost = [f"{page.relative_to(ROOT)}:{line}: {to}" for line, to in links(page) if broken(page, to)]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_every_command_in_a_console_block_exists(block: Block) -> None:
    lines = [line for line in block.code.splitlines() if line.startswith(("$ gangline ", "$ make "))]
    assert not {line: wrong for line in lines if (wrong := unknown(line)) is not None}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("$ make demo", None),
        ("$ make PYTHON=python3.11 test | tee log", None),
        ("$ make nonsense", "nonsense"),
        ("$ gangline --version", None),
        ("$ gangline run job.yaml", None),
        ("$ gangline fly job.yaml", "fly"),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str, wrong: str | None) -> None:
    assert unknown(line) == wrong


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ("README.md", False),
        ("../adr/README.md", False),
        ("#the-loop", False),
        ("https://example.com/", False),
        ("nowhere.md", True),
        ("#nowhere", True),
        ("../../../outside.md", True),
    ],
)
def test_a_link_to_nowhere_is_noticed(target: str, lost: bool) -> None:
    assert broken(ROOT / "docs" / "runtime" / "README.md", target) is lost


def test_the_readme_and_the_runtime_pages_are_among_the_pages() -> None:
    # A wrong glob would make all of the above pass.
    assert {ROOT / "README.md", ROOT / "docs" / "runtime" / "README.md"} <= set(PAGES)
    assert len(PYTHON) >= 4
