"""What to type in this shell to run this gangline: texts that people copy must work there."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

COMMAND = "gangline"
KUBECTL_PLUGIN = "kubectl-gangline"
SUBCOMMANDS = frozenset(
    [
        "apply",
        "at",
        "backup",
        "cancel",
        "check",
        "completion",
        "convert",
        "crd",
        "crds",
        "create",
        "dashboard",
        "delete",
        "demo",
        "describe",
        "doctor",
        "down",
        "drill",
        "events",
        "exec",
        "get",
        "handover",
        "install",
        "list",
        "log",
        "logs",
        "new",
        "node",
        "operator",
        "plan",
        "ps",
        "record",
        "restart",
        "restore",
        "resume",
        "run",
        "scale",
        "scheduler",
        "simulate",
        "stacks",
        "status",
        "submit",
        "suspend",
        "sweep",
        "top",
        "uninstall",
        "up",
        "upgrade",
        "version",
        "wait",
        "why",
    ]
)
"""The words after `gangline` that make a command of it, rather than a name in a sentence."""
ENVIRONMENT_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Set while an environment of Python packages is active."""
_WRITTEN_COMMAND = re.compile(rf"(?<![\w/.-])(?<!kubectl )gangline (?=(?:{'|'.join(sorted(SUBCOMMANDS))})\b)")


def own_command() -> str:
    """The words that run this gangline: `gangline`, `.venv/bin/gangline`, `kubectl gangline`, `python -m gangline`."""
    started = Path(sys.argv[0] or COMMAND)
    if started.name == KUBECTL_PLUGIN:
        return f"kubectl {COMMAND}"
    script = _script(started)
    if script is None:
        return f"{shown_path(Path(sys.executable))} -m {COMMAND}"
    on_path = shutil.which(COMMAND)
    return COMMAND if on_path is not None and Path(on_path).samefile(script) else shown_path(script)


def own_command_line(*words: str) -> str:
    """A command line of this gangline, to be copied into a shell."""
    return " ".join((own_command(), *map(shlex.quote, words)))


def with_own_command(text: str) -> str:
    """A text in which every `gangline SUBCOMMAND` is one that runs in this shell. Other mentions of gangline stay."""
    return _WRITTEN_COMMAND.sub(lambda _: f"{own_command()} ", text)


def own_python() -> str:
    """The words that run the interpreter of this gangline, from any folder: `python` if a shell means this one."""
    on_path = shutil.which("python")
    same = on_path is not None and Path(on_path).absolute() == Path(sys.executable).absolute()
    return "python" if same else shlex.quote(str(Path(sys.executable).absolute()))


def shell_comes_first(environ: Mapping[str, str]) -> bool:
    """Whether the programs of the user's shell come before those beside this gangline.

    Not for a gangline that was started by its path (`.venv/bin/gangline`) while no environment is active. One on PATH
    may have an environment of its own somewhere else (pipx, uv tool), which is not the user's.
    """
    is_active = any(environ.get(name) for name in ENVIRONMENT_VARIABLES)
    return is_active or own_command() in (COMMAND, f"kubectl {COMMAND}")


def shown_path(path: Path) -> str:
    """A path, quoted for a shell: relative to the working directory if it is below that."""
    try:
        folder, path = Path.cwd(), path.absolute()
    except FileNotFoundError:
        return shlex.quote(str(path))
    below = path.is_relative_to(folder) and folder != Path(folder.anchor)
    return shlex.quote(str(path.relative_to(folder) if below else path))


def _script(started: Path) -> Path | None:
    """The script that was started, else the one that is installed beside the interpreter."""
    beside = Path(sys.executable).parent / COMMAND
    candidates = (started, beside) if started.name == COMMAND and os.sep in str(started) else (beside,)
    return next((script for script in candidates if script.is_file() and os.access(script, os.X_OK)), None)
