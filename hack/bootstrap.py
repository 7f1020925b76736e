"""Makes .venv from the packages pinned in requirements/: `python3 hack/bootstrap.py runtime|dev`, as `make` does.

`runtime` is what the gangline command needs, with the build backend that installs it; `dev` adds what tests, linters and
benchmarks need. Wheels only, checked by hash. With uv on PATH uv fetches them, else pip. What is there already is left
alone, so a second call takes no time. What cannot work is made anew: a folder that was moved, a set-up that was killed.

Standard library only, and nothing that Python 3.7 could not read: an old Python has to get as far as the message.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 11)
STAGES = {"runtime": ("runtime.txt", "build.txt"), "dev": ("dev.txt",)}
"""The requirement files of each stage. Those of dev contain those of runtime."""
STATE_NAME, UNFINISHED_NAME, LOG_NAME = "gangline-setup.json", "gangline-setup.unfinished", "gangline-setup.log"
TICK_SECONDS = 0.2
"""How often the line of a terminal is drawn again while a program is silent."""
PLAIN_EVERY = 10
"""Elsewhere, a line for every so many packages."""
# What a person has set for pip or Python in general, and what would lead an installation elsewhere than into .venv.
FOREIGN_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_NO_BINARY", "VIRTUAL_ENV")

_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_IGNORED = re.compile(r"^Ignoring ([A-Za-z0-9._-]+): markers ")
_FETCHED = re.compile(r"^(?:Collecting|Requirement already satisfied:|Downloading) ([A-Za-z0-9._-]+)(?:==| \(\d)")
_RESOLVED = re.compile(r"^Resolved (\d+) package")
_WRITTEN = re.compile(r"^Installing collected packages|^Prepared \d+ package")


class SetupError(Exception):
    """The set-up cannot go on. The message is one line for the person who typed `make`."""


class State(NamedTuple):
    """What .venv holds: its own place, and the hashes of what each stage was installed from."""

    prefix: str
    stages: dict[str, str]


def main() -> int:
    """Bring .venv to the requested stage. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--uv", default="uv", help='the uv program; "" for pip (default: uv, if there is one)')
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the folder to make (default: .venv)")
    options = parser.parse_args()
    try:
        if sys.version_info[:2] < OLDEST_PYTHON:
            raise SetupError(old_python_message(sys.version_info[:2], sys.executable))
        with only_one():
            Setup(options.venv, shutil.which(options.uv) if options.uv else None).bring(options.stage)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {os_error_message(error, options.venv)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up: interrupted; the next make begins anew", file=sys.stderr)
        return 130
    return 0


class Setup:
    """One virtual environment, and the program that fills it."""

    def __init__(self, venv: Path, uv: str | None) -> None:
        self._venv, self._uv = venv.absolute(), uv
        self._python = self._venv / "bin" / "python"
        self._line = ProgressLine(sys.stderr)

    def bring(self, stage: str) -> None:
        """Make what is missing, and say how long it took. Does nothing and says nothing if nothing is missing."""
        wanted = {stage: stage_hash(stage), "project": project_hash()}
        if stage == "dev":
            wanted["runtime"] = stage_hash("runtime")
        state = read_state(self._venv)
        defect = self._defect(state)
        if not defect and state is not None and {**state.stages, **wanted} == state.stages:
            return
        began = time.monotonic()
        self._make_venv(defect)
        (self._venv / UNFINISHED_NAME).touch()
        (self._venv / LOG_NAME).write_bytes(b"")
        done = dict(state.stages) if state is not None and not defect else {}
        count = 0
        if done.get(stage) != wanted[stage]:
            count = self._install_packages(stage)
        self._install_project()
        self._install_pip()
        write_state(self._venv, State(os.path.realpath(self._venv), {**done, **wanted}))
        (self._venv / UNFINISHED_NAME).unlink()
        what = f"{count} packages" if count else "gangline"
        self._line.say(f"set-up: {what} in {time.monotonic() - began:.1f} s")
        self._line.say(f"the command in this shell: . {shlex.quote(shown(self._venv))}/bin/activate")

    def _defect(self, state: State | None) -> str:
        """Why the folder cannot be used as it is; empty if it can be."""
        if not self._venv.exists() and not self._venv.is_symlink():
            return "missing"
        if (self._venv / UNFINISHED_NAME).exists():
            return "an earlier set-up was not finished"
        if not self._python.exists():
            return "its Python is gone"
        if state is not None:
            return "it was moved" if state.prefix != os.path.realpath(self._venv) else ""
        # Made by hand, or before there was a state: good if it names its own place, and has what is needed.
        activate = self._venv / "bin" / "activate"
        places = (str(self._venv), os.path.realpath(self._venv))
        text = activate.read_text(errors="replace") if activate.exists() else ""
        if not any(place in text for place in places):
            return "it was moved"
        probe = [str(self._python), "-I", "-c", f"import sys; sys.exit(sys.version_info[:2] < {OLDEST_PYTHON})"]
        if subprocess.run(probe, stderr=subprocess.DEVNULL).returncode != 0:
            return "its Python is too old, or does not run"
        return "" if self._uv or self._has_pip() else "it has no pip"

    def _make_venv(self, defect: str) -> None:
        if not defect:
            return
        if self._venv.is_symlink():
            raise SetupError(f"{shown(self._venv)} is a link, and cannot be used: {defect}; remove the link")
        if defect != "missing":
            self._line.say(f"set-up: {shown(self._venv)} is made anew: {defect}")
            shutil.rmtree(self._venv)
        self._venv.mkdir(parents=True)
        (self._venv / UNFINISHED_NAME).touch()
        # The interpreter outside of any environment: this one may run in the .venv that was just removed.
        base = getattr(sys, "_base_executable", None) or sys.executable
        if self._uv:
            command = [self._uv, "venv", "--allow-existing", "--python", base, str(self._venv)]
        else:
            missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
            if missing:
                raise SetupError(no_venv_message(sys.executable, missing))
            command = [base, "-I", "-m", "venv", str(self._venv)]
        self._run(command, f"making {shown(self._venv)} with Python {sys.version.split()[0]}")

    def _install_packages(self, stage: str) -> int:
        """Install the packages of a stage, and return how many there are."""
        files = [ROOT / "requirements" / name for name in STAGES[stage]]
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
        options += [word for file in files for word in ("-r", str(file))]
        count = PackageCount("\n".join(file.read_text() for file in files))
        if self._uv is None:
            # Python writes bytecode when a module is first imported: most modules never are.
            options += ["--no-compile", "--progress-bar", "off", "--retries", "2"]
        self._run([*self._installer(), *options], f"installing {count.total} packages", count)
        return count.total

    def _install_project(self) -> None:
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--editable", str(ROOT)]
        self._run([*self._installer(), *options], "installing gangline")

    def _install_pip(self) -> None:
        """uv makes environments without pip. People type `pip install torch` in theirs, and `make dist` needs it."""
        bundled = [str(self._python), "-I", "-c", "import ensurepip"]
        if not self._has_pip() and subprocess.run(bundled, stderr=subprocess.DEVNULL).returncode == 0:
            self._run([str(self._python), "-I", "-m", "ensurepip", "--default-pip"], "installing pip")

    def _installer(self) -> list[str]:
        if self._uv:
            return [self._uv, "pip", "install", "--python", str(self._python)]
        return [str(self._python), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]

    def _has_pip(self) -> bool:
        return subprocess.run([str(self._python), "-I", "-c", "import pip"], stderr=subprocess.DEVNULL).returncode == 0

    def _run(self, command: Sequence[str], doing: str, count: PackageCount | None = None) -> None:
        """Run a program and show how far it is. Its words go to the log, and are explained if it fails."""
        environment = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
        environment.update(PIP_USER="0", PYTHONUNBUFFERED="1", NO_COLOR="1")
        output: list[str] = []
        with subprocess.Popen(
            command,
            cwd=str(ROOT),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            self._line.show(doing)
            for line in lines_with_ticks(process.stdout):
                if line is None:
                    self._line.tick()
                    continue
                output.append(line)
                shown_text = count.read(line) if count is not None else ""
                if shown_text:
                    self._line.show(f"installing {shown_text}", every=PLAIN_EVERY)
        with contextlib.suppress(OSError), (self._venv / LOG_NAME).open("a") as log:
            log.writelines(["$ ", " ".join(command), "\n", *output])
        if process.returncode != 0:
            self._line.clear()
            raise SetupError(explained(output, f"{shown(self._venv)}/{LOG_NAME}"))


class PackageCount:
    """How many of the pinned packages an installer has come to, read from what it prints."""

    def __init__(self, requirements: str) -> None:
        self._left: dict[str, int] = {}
        for name in _PACKAGE.findall(requirements):
            self._left[name] = self._left.get(name, 0) + 1
        self._seen: set[str] = set()
        self._resolved = 0

    @property
    def total(self) -> int:
        """The packages that this Python needs: a line for another one does not count."""
        return self._resolved or sum(lines > 0 for lines in self._left.values())

    def read(self, line: str) -> str:
        """What to show after this line; empty if it changes nothing."""
        text = line.strip()
        ignored, fetched, resolved = _IGNORED.match(text), _FETCHED.match(text), _RESOLVED.match(text)
        if resolved:
            self._resolved = int(resolved[1])
        if ignored and ignored[1] in self._left:
            self._left[ignored[1]] -= 1
        elif fetched and fetched[1] in self._left and fetched[1] not in self._seen:
            self._seen.add(fetched[1])
            return f"{len(self._seen)}/{self.total} {fetched[1]}"
        elif _WRITTEN.match(text):
            return f"{self.total}/{self.total} into place"
        return ""


class ProgressLine:
    """One line that is drawn anew on a terminal; elsewhere a plain line now and then."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()
        self._text, self._began, self._calls = "", time.monotonic(), 0

    def show(self, text: str, every: int = 1) -> None:
        """What goes on now. Outside of a terminal only one of `every` calls is printed."""
        self._text, self._calls = text, self._calls + 1 if every > 1 else 0
        if self._is_terminal:
            self.tick()
        elif self._calls % every == 0:
            print(f"set-up: {text}", file=self._stream, flush=True)

    def tick(self) -> None:
        """Draw the line again, with the seconds since the beginning."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            line = f"set-up: {self._text} ... {time.monotonic() - self._began:.0f} s"
            self._stream.write(f"\r\x1b[K{line[:width]}")
            self._stream.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        print(text, file=self._stream, flush=True)


def lines_with_ticks(stream: IO[str]) -> Iterator[str | None]:
    """The lines of a stream as they come, and None whenever there was none for a tick."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=TICK_SECONDS)
        except queue.Empty:
            yield None
            continue
        if not line:
            return
        yield line


def read_state(venv: Path) -> State | None:
    """What an earlier set-up wrote down; None if there is nothing, or nothing that can be read."""
    try:
        found = json.loads((venv / STATE_NAME).read_text())
        return State(str(found["prefix"]), {str(name): str(value) for name, value in found["stages"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_state(venv: Path, state: State) -> None:
    """Write down what was installed, in one step."""
    new = venv / f"{STATE_NAME}.new"
    new.write_text(json.dumps(state._asdict(), indent=2) + "\n")
    new.replace(venv / STATE_NAME)


def stage_hash(stage: str) -> str:
    """A hash of the pinned packages of a stage."""
    content = b"".join((ROOT / "requirements" / name).read_bytes() for name in STAGES[stage])
    return hashlib.sha256(content).hexdigest()


def project_hash() -> str:
    """A hash of what an installation takes from pyproject.toml: name, version, commands, build."""
    import tomllib

    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = {name: content[name] for name in ("project", "build-system")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Let one set-up at a time into this folder; another one waits, and then finds everything done."""
    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def shown(path: Path) -> str:
    """A path as a person in this folder would write it."""
    return str(path.relative_to(ROOT)) if ROOT in path.parents else str(path)


def old_python_message(version: Sequence[int], executable: str) -> str:
    """For a Python that is too old."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    running = ".".join(map(str, version))
    newer = next((name for name in map("python3.{}".format, range(14, 10, -1)) if runs(name)), "python3.11")
    return f"Python {oldest} or newer is needed, {executable} is {running}; write: make PYTHON={newer} ..."


def runs(program: str) -> bool:
    """Whether there is such a program and it starts. A version manager may have names of what is not installed."""
    found = shutil.which(program)
    return found is not None and subprocess.run([found, "-V"], stdout=subprocess.DEVNULL).returncode == 0


def no_venv_message(executable: str, missing: Sequence[str]) -> str:
    """For a Python whose distribution has taken venv out of it."""
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"{executable} has no {' and no '.join(missing)}, so it cannot make a virtual environment; "
        f"on Debian and Ubuntu: sudo apt install python{minor}-venv (or install uv)"
    )


def os_error_message(error: OSError, venv: Path) -> str:
    """For a folder that cannot be written, a disk that is full."""
    # Where a folder is removed, names are relative to it.
    named = Path(str(error.filename)) if error.filename else venv
    where = shown(named if named.is_absolute() else venv)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"{where}: {error.strerror}; clone into a folder that you may write, or remove {shown(venv)} as its owner"
        )
    return f"{where}: {error.strerror or error}"


EXPLANATIONS = (
    (r"No space left on device", "the disk is full"),
    (r"Read-only file system|Permission denied", "{line}; clone into a folder that you may write"),
    (
        r"DO NOT MATCH THE HASHES|[Hh]ash mismatch",
        "a package of the index is not the one that requirements/ pins by hash; if the index is a mirror, it has altered it",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|[Ii]nvalid peer certificate",
        "the certificate of the package index is not trusted; name your CA: export PIP_CERT=FILE SSL_CERT_FILE=FILE",
    ),
    (
        r"[Nn]ew connection|[Nn]ame resolution|Max retries exceeded|dns error|error sending request|TimeoutError|ProxyError|Connection (?:refused|reset)|client error \(Connect\)",
        "the package index cannot be reached; check the network, HTTPS_PROXY, or set an index: PIP_INDEX_URL, UV_DEFAULT_INDEX",
    ),
    (
        r"No matching distribution found for (?P<what>\S+)|no wheels? with a matching|has no usable wheels",
        "there is no wheel of {what} for Python {python} on this machine; try another: make clean, make PYTHON=python3.12 ...",
    ),
)
"""What installers print, and what it means for the person at the keyboard. The first that matches counts."""


def explained(output: Sequence[str], log: str) -> str:
    """Why an installer failed, in one line, and where all of its words are."""
    for pattern, meaning in EXPLANATIONS:
        for line in output:
            found = re.search(pattern, line)
            if found:
                what = found.groupdict().get("what") or "a package"
                python = f"{sys.version_info[0]}.{sys.version_info[1]}"
                return f"{meaning.format(line=line.strip(), what=what, python=python)} (details: {log})"
    last = next((line.strip() for line in reversed(output) if line.strip()), "no word")
    return f"the installer failed: {last} (details: {log})"


if __name__ == "__main__":
    sys.exit(main())
