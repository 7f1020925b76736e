"""The program of a command, as the user's shell would start it, checked before anything runs."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangline.base.errors import InputError
from gangline.base.invocation import COMMAND, own_command
from gangline.cli.manifests.from_command import is_python

ENVIRONMENT_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Set while an environment of Python packages is active."""
ON_PATH = (COMMAND, f"kubectl {COMMAND}")
"""What `own_command` returns for a gangline that the shell finds by its name."""


def check_command_files(command: Sequence[str]) -> None:
    """Raise `InputError` if the program or its Python script does not exist: every process would fail with that."""
    if not command:
        return
    program, script = command[0], command[1] if len(command) > 1 else ""
    if os.sep in program:
        if not os.access(program, os.X_OK) or Path(program).is_dir():
            problem = "is not executable" if Path(program).exists() else "no such file"
            hint = f"; for a script write its interpreter: python {program}" if program.endswith(".py") else ""
            raise InputError(f"{program}: {problem}; processes start in {Path.cwd()}{hint}")
    elif _beside_gangline(program) is None and shutil.which(program) is None:
        if Path(program).is_file():
            interpreter = "python" if program.endswith(".py") else "bash" if program.endswith(".sh") else ""
            hint = f"{interpreter} {program}" if interpreter else f"./{program}"
            raise InputError(f"{program}: no such program on PATH; write: -- {hint}")
        raise InputError(f"{program}: no such program on PATH")
    if is_python(program) and script.endswith(".py") and not Path(script).exists():
        raise InputError(f"{script}: no such file; processes start in {Path.cwd()}{_similar_script(script)}")


def _similar_script(script: str) -> str:
    from difflib import get_close_matches

    folder = Path(script).parent
    names = [entry.name for entry in folder.glob("*.py")] if folder.is_dir() else []
    similar = get_close_matches(Path(script).name, names, 1, 0.7)
    return f"; did you mean {folder / similar[0]}?" if similar else ""


def shell_command(command: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command with the path of its program, where the local node would take another one than the user's shell.

    The node looks beside gangline first. That is right for a gangline that was started by its path
    (`.venv/bin/gangline`), but not for one that has an environment of its own somewhere else (pipx, uv tool).
    """
    if not command or os.sep in command[0]:
        return tuple(command)
    own, of_shell = _beside_gangline(command[0]), shutil.which(command[0])
    is_active = any(environ.get(name) for name in ENVIRONMENT_VARIABLES)
    if own is None or of_shell is None or Path(of_shell) == own or not (is_active or own_command() in ON_PATH):
        return tuple(command)
    return (of_shell, *command[1:])


def _beside_gangline(program: str) -> Path | None:
    path = Path(sys.executable).parent / program
    return path if path.is_file() and os.access(path, os.X_OK) else None
