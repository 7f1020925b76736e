"""The README as a person at a terminal plays it: types each command, and each command that is printed after `next:`."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from support.terminal import PtyTerminal

_BLOCK = re.compile(r"^```console(?: (?P<tag>\w+))?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"<<(\d+)>>\Z")
# bash shows the exit code of the last command, then waits.
_PS1 = "<<$?>>"
NEXT, INDENT = "next: ", "      "
_HEALTHY = re.compile(r"gangline'? why ")
# What names a package index and its certificates: a person has these where the tests have them.
_INDEX_VARIABLES = re.compile(r"(?i)(PIP_|UV_|SSL_CERT_|REQUESTS_CA|HTTPS?_PROXY|NO_PROXY|ALL_PROXY)")


class ConsoleBlock(NamedTuple):
    """The commands of a `console` block. A tag says where it can be played; without one: anywhere, in order."""

    tag: str
    commands: tuple[str, ...]


def console_blocks(page: str) -> list[ConsoleBlock]:
    """The blocks of a page, in order."""
    return [
        ConsoleBlock(
            found["tag"] or "",
            tuple(line.removeprefix("$ ") for line in found["code"].splitlines() if line.startswith("$ ")),
        )
        for found in _BLOCK.finditer(page)
    ]


def next_commands(output: str) -> list[str]:
    """The commands after `next:`, of which the second and later stand in lines of their own below the first."""
    commands: list[str] = []
    listing = False
    for line in output.splitlines():
        if line.startswith(NEXT):
            listing = True
            commands.append(line.removeprefix(NEXT))
        elif listing and line.startswith(INDENT):
            commands.append(line.removeprefix(INDENT))
        else:
            listing = False
    return commands


def allowed_exit_codes(command: str) -> tuple[int, ...]:
    """0; of `why` also the documented one that says that nothing is wrong."""
    return (0, 3) if _HEALTHY.search(command) else (0,)


class Person(NamedTuple):
    """Who plays: a user with a home folder, a umask, and what is on PATH."""

    home: Path
    uid: int
    umask: int
    path: str
    environment: Mapping[str, str] = {}

    def environ(self) -> dict[str, str]:
        """A clean environment, with the settings of the package index."""
        index = {
            name: value
            for name, value in os.environ.items()
            if _INDEX_VARIABLES.match(name) and value != os.devnull and name != "PIP_CACHE_DIR"
        }
        base = {"HOME": str(self.home), "PATH": self.path, "LANG": "C.UTF-8", "TERM": "xterm-256color", "PS1": _PS1}
        return {**index, **base, **self.environment}

    def command(self, words: Sequence[str]) -> list[str]:
        """The words, run as this user."""
        if self.uid == os.getuid():
            return list(words)
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", *words]

    def own(self, path: Path) -> None:
        """Make a folder and all in it this user's."""
        if self.uid != os.getuid():
            subprocess.run(["chown", "-R", f"{self.uid}:{self.uid}", str(path)], check=True)


class PersonShell:
    """A bash on a pty. Every command typed must end well; what it printed after `next:` is typed as well."""

    def __init__(self, person: Person, folder: Path, columns: int, *, patience: float = 240.0) -> None:
        self._patience = patience
        self.typed: list[str] = []
        """What was typed so far, in order."""
        start = f"umask {person.umask:03o}; cd -- {_quoted(folder)}; exec bash --norc --noprofile -i"
        # PtyTerminal adds the environment of the tests: `env -i` takes it away.
        settings = [f"{name}={value}" for name, value in person.environ().items()]
        words = ["env", "-i", *settings, *person.command(["sh", "-c", start])]
        self._terminal = PtyTerminal(words, cwd=Path("/"), size=(24, columns))
        self._wait_for_prompt("")

    def __enter__(self) -> "PersonShell":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._terminal.press_keys("\x04")
        self._terminal.__exit__(kind, error, trace)

    def play(self, commands: Sequence[str]) -> str:
        """Type the commands and all that they say comes next, each only once. Returns all that was printed."""
        printed = ""
        waiting = list(commands)
        while waiting:
            command = waiting.pop(0)
            output = self.type(command)
            printed += output
            waiting[:0] = [line for line in next_commands(output) if line not in (*self.typed, *waiting)]
        return printed

    def type(self, command: str, codes: Collection[int] = ()) -> str:
        """Type one command, and return what it printed. Fails with the screen if its exit code is not as documented."""
        screen = self._terminal.screen
        # Below the cursor there may be lines that a block left empty when it became smaller.
        first = screen.row + 1
        self._terminal.press_keys(f"{command}\n")
        self.typed.append(command)
        code = self._wait_for_prompt(command, first)
        output = "\n".join(line.rstrip() for line in screen.lines[first : screen.row])
        assert code in (codes or allowed_exit_codes(command)), f"$ {command}\nexit code {code}\n{output}"
        return output

    def _wait_for_prompt(self, command: str, row: int = 0) -> int:
        """Read on until bash asks for the next command. Returns the exit code of the last one."""
        screen = self._terminal.screen
        self._terminal.wait_for(
            lambda _: screen.row >= row and _PROMPT.search(screen.lines[screen.row]), self._patience
        )
        found = _PROMPT.search(screen.lines[screen.row])
        assert found is not None, command
        return int(found[1])


def fresh_clone(source: Path, folder: Path) -> Path:
    """A clone of the repository, with what is changed and not committed yet."""
    git = ["git", "-c", "safe.directory=*"]
    subprocess.run([*git, "clone", "--quiet", "--no-hardlinks", str(source), str(folder)], check=True)
    listed = [*git, "-C", str(source), "ls-files", "-z"]
    changed = subprocess.run([*listed, "-m", "-o", "--exclude-standard"], check=True, capture_output=True, text=True)
    for name in changed.stdout.split("\0"):
        # A link to an environment elsewhere is none of the files of the repository.
        if not name or (source / name).is_symlink():
            continue
        if (source / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    return folder


def python_folder(person: Person) -> Path | None:
    """A folder with a `python3` that this user can make environments with; None if there is none."""
    probe = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    base = Path(getattr(sys, "_base_executable", sys.executable)).parent
    for folder in (base, *map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep)), Path("/usr/bin")):
        if folder.is_relative_to(sys.prefix) or not (folder / "python3").exists():
            continue
        words = person.command([str(folder / "python3"), "-I", "-c", probe])
        if subprocess.run(words, cwd="/", capture_output=True).returncode == 0:
            return folder
    return None


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
