"""A tutorial as a person follows it: saves the files that it shows, types its commands, compares what they print."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from support.readme import PersonShell

_SAVE = re.compile(r"\b[Ss]ave (?:it|this) as `([^`]+)`")
_FENCE = re.compile(r"^```(\S*) ?(\S*)$")
# What shows a state that takes a moment to come: a person looks again.
_LOOK = re.compile(r"gangline (?:get|why|logs) ")
FAILING_CODES = (1, 100)
LOOK_SECONDS = 90.0


class SavedFile(NamedTuple):
    """A block that the text says to save."""

    name: str
    content: str


class TypedCommand(NamedTuple):
    """A command of a console block, and the lines that the page shows below it. `…` stands for anything."""

    tag: str
    command: str
    expected: tuple[str, ...]


def tutorial_steps(page: str) -> Iterator[SavedFile | TypedCommand]:
    """The steps of a page, in order."""
    name, kind, tag, block = "", "", "", list[str]()
    in_block = False
    for line in page.splitlines():
        fence = _FENCE.match(line)
        if not in_block and fence:
            in_block, kind, tag, block = True, fence[1], fence[2], []
        elif in_block and line == "```":
            in_block = False
            if kind == "console":
                yield from _commands(tag, block)
            elif name:
                yield SavedFile(name, "\n".join(block) + "\n")
                name = ""
        elif in_block:
            block.append(line)
        elif found := _SAVE.search(line):
            name = found[1]


def _commands(tag: str, lines: Sequence[str]) -> Iterator[TypedCommand]:
    command, expected = "", list[str]()
    for line in [*lines, "$ "]:
        if line.startswith("$ "):
            if command:
                yield TypedCommand(tag, command, tuple(expected))
            command, expected = line.removeprefix("$ "), []
        else:
            expected.append(line)


def missing_lines(expected: Sequence[str], output: str) -> list[str]:
    """The expected lines that the output does not have. Spaces count as one."""
    text = _one_space(output)
    return [line for line in expected if not re.search(_pattern(line), text)]


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part.strip()) for part in _one_space(line).split("…"))


def _one_space(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)


def follow(
    page: str,
    shell: PersonShell,
    folder: Path,
    *,
    omit: Collection[str] = ("setup", "other-terminal", "cluster"),
    after: Callable[[str], None] = lambda command: None,
) -> list[str]:
    """Do everything that a page says, in a shell that stands in a folder. Returns the commands typed.

    Blocks with a tag of `omit` are left out: the caller has made that environment, or there is one terminal. `after`
    is called with each command that was typed.
    """
    for step in tutorial_steps(page):
        if isinstance(step, SavedFile):
            (folder / step.name).write_text(step.content)
        elif step.tag not in omit:
            type_step(shell, step)
            after(step.command)
    return shell.typed


def type_step(shell: PersonShell, step: TypedCommand) -> None:
    """Type a command, and look again until it prints what the page shows."""
    codes = FAILING_CODES if step.tag == "fails" else ()
    deadline = time.monotonic() + LOOK_SECONDS
    while True:
        output = shell.type(step.command, codes)
        missing = missing_lines(step.expected, output)
        if not missing:
            return
        may_look_again = _LOOK.match(step.command) and time.monotonic() < deadline
        assert may_look_again, f"$ {step.command}\nis to print {missing}, and printed:\n{output}"


def build_wheel(source: Path, folder: Path) -> Path:
    """Build the wheel of this repository into a folder, as `make dist` does."""
    words = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", *words], check=True)
    (wheel,) = folder.glob("gangline-*.whl")
    return wheel


def make_environment(folder: Path, python: Path, packages: Sequence[Path]) -> Path:
    """A virtual environment with gangline and the packages of other environments. Returns its folder of programs."""
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text("".join(f"{path}\n" for path in packages))
    command = folder / "bin" / "gangline"
    command.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m gangline "$@"\n')
    command.chmod(0o755)
    sampler = Path(sys.executable).with_name("py-spy")  # the extra stacks
    if sampler.exists():
        (folder / "bin" / sampler.name).symlink_to(sampler)
    return folder / "bin"
