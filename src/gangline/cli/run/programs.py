"""The program of a command, as the user's shell would start it, checked before anything runs."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import is_python


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


def _beside_gangline(program: str) -> Path | None:
    path = Path(sys.executable).parent / program
    return path if path.is_file() and os.access(path, os.X_OK) else None
